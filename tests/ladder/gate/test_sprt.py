"""The sequential test: published vectors, symmetries, and its operating characteristic against the Brownian limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.ladder.gate.sprt import (
    ACCEPT,
    CELLS,
    CONTINUE,
    MIN_PAIRS,
    REJECT,
    UNDECIDED,
    Sprt,
    log_likelihood_ratio,
    normalized_elo,
    normalized_log_likelihood_ratio,
)
from royale_lightning.ladder.ratings.elo import expected_score
from tests.support.pairs import pair_cells, simulate_sprt

S0, S1 = 0.5, float(expected_score(40.0))
T1, T2, T3 = (12, 6, 48, 8, 26), (30, 0, 80, 0, 50), (40, 2, 130, 3, 75)


def exact(counts: tuple[float, ...], elo0: float = 0.0, elo1: float = 40.0) -> float:
    return float(log_likelihood_ratio(np.array(counts), float(expected_score(elo0)), float(expected_score(elo1))))


def alt1(counts: tuple[float, ...], s0: float = S0, s1: float = S1) -> float:
    n = np.maximum(np.array(counts), 1e-3)
    return float(n.sum() / 2 * np.log((n * (CELLS - s0) ** 2).sum() / (n * (CELLS - s1) ** 2).sum()))


def alt2(counts: tuple[float, ...], s0: float = S0, s1: float = S1) -> float:
    n = np.maximum(np.array(counts), 1e-3)
    m = (n * CELLS).sum() / n.sum()
    return float(n.sum() * (s1 - s0) * (2 * m - s0 - s1) / (2 * (n * (CELLS - m) ** 2).sum() / n.sum()))


# ---- published vectors -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counts", "llr", "first", "second"),
    [(T1, 2.61423, 2.62792, 2.70681), (T2, 2.50895, 2.52210, 2.56285), (T3, 5.29680, None, None)],
)
def test_exact_ratio_and_its_approximations(
    counts: tuple[int, ...], llr: float, first: float | None, second: float | None
) -> None:
    assert exact(counts) == pytest.approx(llr, abs=5e-6)
    if first is not None and second is not None:
        assert (alt1(counts), alt2(counts)) == pytest.approx((first, second), abs=5e-6)


def test_t1_in_detail() -> None:
    n = np.array(T1, dtype=float)
    mean = (n * CELLS).sum() / n.sum()
    assert mean == pytest.approx(0.575)
    assert (n * (CELLS - mean) ** 2).sum() / n.sum() == pytest.approx(0.098125)
    assert normalized_log_likelihood_ratio(n, 0, 40) == pytest.approx(2.49232, abs=5e-6)
    assert normalized_elo(n) == pytest.approx(58.8208, abs=5e-5)
    # The contribution of one pair per cell: a small count more moves the ratio by ln(p1 / p0) of its cell.
    jumps = [-0.344765, -0.143302, 0.010285, 0.132580, 0.232957]
    for k, jump in enumerate(jumps):
        up, down = (n + s * 1e-4 * np.eye(5)[k] for s in (1, -1))
        slope = (log_likelihood_ratio(up, S0, S1) - log_likelihood_ratio(down, S0, S1)) / 2e-4
        assert slope == pytest.approx(jump, abs=2e-6)


def test_t4_of_a_fishtest_server() -> None:
    n = (13, 37, 50, 25, 3)
    assert normalized_log_likelihood_ratio(np.array(n), 0, 4) == pytest.approx(-0.54912, abs=5e-6)
    assert normalized_elo(np.array(n)) == pytest.approx(-63.97, abs=5e-3)
    nt = float(normalized_elo(np.array(n))) / (800 / math.log(10))
    nt1 = 4 / (800 / math.log(10))
    assert 128 * math.log((1 + nt**2) / (1 + (nt - nt1) ** 2)) == pytest.approx(-0.54012, abs=5e-5)
    # The converted score: 1/2 + nt1 sigma, with the data's sigma of a game.
    share = np.array(n) / 128
    sd = math.sqrt(2 * float((share * (CELLS - (share * CELLS).sum()) ** 2).sum()))
    s1 = 0.5 + nt1 * sd
    assert log_likelihood_ratio(np.array(n), 0.5, s1) == pytest.approx(-0.53772, abs=5e-6)
    assert (alt1(n, 0.5, s1), alt2(n, 0.5, s1)) == pytest.approx((-0.52194, -0.55961), abs=5e-6)


@pytest.mark.parametrize(
    ("counts", "elo0", "elo1", "llr"),
    [((871, 26175, 55983, 26678, 821), 0, 2, -4.98), ((223, 9863, 21279, 10037, 246), 0.5, 2.5, -3.07)],
)
def test_t5_of_fastchess(counts: tuple[int, ...], elo0: float, elo1: float, llr: float) -> None:
    assert exact(counts, elo0, elo1) == pytest.approx(llr, abs=5e-3)


def test_t5_of_fastchess_normalized() -> None:
    n = np.array((365, 16618, 36229, 16974, 390))
    assert normalized_log_likelihood_ratio(n, 0, 2) == pytest.approx(2.25, abs=5e-3)


@pytest.mark.parametrize(
    ("cell", "pairs", "llr", "first", "second"),
    [
        (2, 8, -0.967, -15.06, -168.3), (4, 8, 0.868, 0.974, 922.8), (2, 16, -1.940, -35.56, -673.0),
        (4, 16, 1.736, 1.948, 3690.0),
    ],
)
def test_one_cell_holds_everything(cell: int, pairs: int, llr: float, first: float, second: float) -> None:
    n = tuple(pairs if k == cell else 0 for k in range(5))
    assert exact(n) == pytest.approx(llr, abs=5e-4)
    assert alt1(n) == pytest.approx(first, rel=2e-3), "approximations break here; the exact ratio does not"
    assert alt2(n) == pytest.approx(second, rel=2e-3)


def test_limits_of_one_cell() -> None:
    many = 10**6
    assert exact((0, 0, many, 0, 0)) / many == pytest.approx(math.log(2 * (1 - S1)), abs=5e-6)
    assert exact((0, 0, 0, 0, many)) / many == pytest.approx(math.log(2 * S1), abs=5e-6)
    assert (math.log(2 * (1 - S1)), math.log(2 * S1)) == pytest.approx((-0.12174, 0.10852), abs=5e-6)
    plain = Sprt(batch_pairs=1)
    assert [int(plain.decide(np.array([0, 0, k, 0, 0]))) for k in (24, 25)] == [CONTINUE, REJECT]
    assert [int(plain.decide(np.array([0, 0, 0, 0, k]))) for k in (27, 28)] == [CONTINUE, ACCEPT]


@pytest.mark.parametrize(("alpha", "upper"), [(0.05, 2.9444), (0.025, 3.638), (0.01, 4.554), (0.001, 6.856)])
def test_wald_bounds(alpha: float, upper: float) -> None:
    assert Sprt(alpha=alpha).upper == pytest.approx(upper, abs=5e-4)
    assert Sprt(alpha=0.05).lower == pytest.approx(-2.9444, abs=5e-5)


def test_overshoot_per_look() -> None:
    # v = 1/8: 0.095 of a pair's look is left out, so 0.30 at 10 pairs becomes 0.20, and 0.47 at 25 becomes 0.38.
    even = np.array([250, 0, 500, 0, 250])
    for pairs, whole in ((1, 0.095), (10, 0.30), (25, 0.47)):
        assert Sprt(batch_pairs=pairs).overshoot(even) == pytest.approx(whole - 0.0945, abs=5e-3)
        # With no draws and no correlation 40 normalized Elo are nearly 40 logistic ones.
        assert Sprt(batch_pairs=pairs, scale="normalized").overshoot(even) == pytest.approx(whole - 0.0945, abs=5e-3)


# ---- properties --------------------------------------------------------------------------------------------------
_COUNTS = st.lists(st.integers(0, 400), min_size=5, max_size=5).filter(lambda c: sum(c) > 0)


@settings(deadline=None)
@given(_COUNTS, st.floats(-80, 80), st.floats(1, 80))
def test_turned_round_the_ratio_changes_its_sign(counts: list[int], elo0: float, gap: float) -> None:
    turned = exact(tuple(counts[::-1]), -elo0 - gap, -elo0)
    assert exact(tuple(counts), elo0, elo0 + gap) == pytest.approx(-turned, abs=1e-7, rel=1e-7)


@settings(deadline=None)
@given(_COUNTS)
def test_the_cells_found_are_the_best_with_their_mean(counts: list[int]) -> None:
    """Their loss of likelihood against free cells is the maximum of the dual, found here by scanning it."""
    n = np.where(np.array(counts) == 0, 1e-3, np.array(counts, dtype=float))
    share = n / n.sum()
    for s in (S0, S1):
        # Dense towards both poles.
        grid = -1 / (1 - s) + (1 / (1 - s) + 1 / s) / (1 + np.exp(-np.linspace(-25, 25, 20_001)))
        dual = (share * np.log1p(grid[:, None] * (CELLS - s))).sum(axis=1).max()
        got = log_likelihood_ratio(n, s, float((share * CELLS).sum()))
        assert got / n.sum() == pytest.approx(dual, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(_COUNTS, min_size=1, max_size=8))
def test_many_matches_at_once_are_each_one(rows: list[list[int]]) -> None:
    for scale in ("logistic", "normalized"):
        test = Sprt(scale=scale)
        together = test.llr(np.array(rows))
        assert together == pytest.approx([float(test.llr(np.array(r))) for r in rows], rel=1e-6, abs=1e-7)
        assert test.decide(np.array(rows)).tolist() == [int(test.decide(np.array(r))) for r in rows]


def test_no_verdict_on_a_handful() -> None:
    test = Sprt(alpha=0.4, beta=0.4)
    assert int(test.decide(np.array([0, 0, 0, 0, MIN_PAIRS - 1]))) == CONTINUE
    assert int(test.decide(np.array([0, 0, 0, 0, MIN_PAIRS]))) == ACCEPT
    assert int(test.decide(np.zeros(5, dtype=int))) == CONTINUE


def test_the_cap_is_a_third_outcome() -> None:
    test = Sprt(max_pairs=100)
    assert int(test.decide(np.array([10, 20, 38, 21, 11]))) == UNDECIDED
    assert int(test.decide(np.array([10, 20, 38, 21, 10]))) == CONTINUE


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"elo0": 40.0}, "the first below the second"), ({"alpha": 0.5}, "gate alpha is 0.5"),
        ({"beta": 0.0}, "gate beta is 0.0"), ({"max_pairs": 10}, "gate max_pairs is 10"),
        ({"batch_pairs": 0}, "gate batch_pairs is 0"), ({"scale": "elo"}, "give one of logistic, normalized"),
        ({"elo1": math.nan}, "gate elo0 is 0.0 and elo1 nan"),
    ],
)
def test_refusals(bad: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Sprt(**bad)


# ---- operating characteristic ------------------------------------------------------------------------------------
def brownian(elo: float, elo1: float, rho: float, draws: float) -> tuple[float, float]:
    """P(accept) and mean pairs of the untruncated test with plain bounds in the Brownian limit (Wald 1947; Siegmund
    1985, section 3.1), bounds 0 / ``elo1``, 5 % / 5 %."""
    a, b = -math.log(19), math.log(19)
    s1, s = (float(expected_score(e)) for e in (elo1, elo))
    v = (s * (1 - s) - draws / 4) * (1 + rho) / 2
    sigma2 = (s1 - 0.5) ** 2 / v
    gamma = (s - (0.5 + s1) / 2) / (s1 - 0.5)
    if abs(gamma) < 1e-3:
        return -a / (b - a), -a * b / sigma2
    p = (1 - math.exp(2 * gamma * a)) / (1 - math.exp(-2 * gamma * (b - a)))
    return p, (p * b + (1 - p) * a) / (gamma * sigma2)


@pytest.mark.parametrize(
    ("rho", "draws", "pairs"),
    [
        (0.0, 0.0, [111, 202, 281, 329, 278, 199, 109, 72]), (-0.3, 0.0, [78, 141, 197, 230, 195, 139, 76, 50]),
        (0.3, 0.0, [144, 262, 365, 427, 362, 259, 142, 94]), (-0.15, 0.1, [85, 154, 215, 251, 213, 152, 83, 55]),
    ],
)
def test_the_limit_has_the_tabulated_cost(rho: float, draws: float, pairs: list[int]) -> None:
    at = [-20, 0, 10, 20, 30, 40, 60, 80]
    got = [brownian(e, 40, rho, draws) for e in at]
    assert [round(n) for _, n in got] == pytest.approx(pairs, abs=1)
    # Tabulated: the gap between 10 and 30 Elo is not exactly 20 / 40 of the gap in score, hence 0.01.
    assert [p for p, _ in got] == pytest.approx([0.003, 0.05, 0.19, 0.50, 0.81, 0.95, 0.997, 1.0], abs=0.01)


@pytest.mark.parametrize(
    ("rho", "draws", "pairs"),
    [
        (0.0, 0.0, [801, 1310, 799, 440, 294]), (-0.3, 0.0, [561, 917, 559, 308, 206]),
        (0.3, 0.0, [1042, 1703, 1038, 573, 382]), (-0.15, 0.1, [613, 1002, 611, 337, 225]),
    ],
)
def test_the_limit_at_20(rho: float, draws: float, pairs: list[int]) -> None:
    got = [brownian(e, 20, rho, draws) for e in (0, 10, 20, 30, 40)]
    assert [n for _, n in got] == pytest.approx(pairs, rel=2e-3)
    assert [p for p, _ in got] == pytest.approx([0.05, 0.50, 0.95, 0.997, 1.0], abs=0.005)


def undecided(elo: float, elo1: float, cap: int) -> tuple[float, float]:
    """P(would accept only after the cap) and P(would reject only after it), no draws, plain bounds: a Brownian
    motion between two absorbing ends, by its eigenfunctions (Feller 1971, section X.5)."""
    a, b = -math.log(19), math.log(19)
    s1, s = (float(expected_score(e)) for e in (elo1, elo))
    sigma2 = (s1 - 0.5) ** 2 / (s * (1 - s) / 2)
    gamma = (s - (0.5 + s1) / 2) / (s1 - 0.5)
    mu, x, width = gamma * sigma2, -a, b - a
    n = np.arange(1, 200)
    decay = (n * math.pi) ** 2 * sigma2 / (2 * width**2) + mu**2 / (2 * sigma2)
    w = math.pi * sigma2 / width**2 * n * np.sin(n * math.pi * x / width) * np.exp(-decay * cap) / decay
    late_accept = math.exp(gamma * (width - x)) * float(((-1.0) ** (n + 1) * w).sum())
    return late_accept, math.exp(-gamma * x) * float(w.sum())


@pytest.mark.parametrize(
    ("elo1", "cap", "open_0", "open_1", "alpha", "power"),
    [
        (40, 200, 0.38, 0.37, 0.031, 0.60), (40, 300, 0.19, 0.18, 0.041, 0.78), (40, 500, 0.046, 0.044, 0.048, 0.91),
        (20, 500, 0.63, 0.63, 0.018, 0.35), (20, 800, 0.38, 0.38, 0.031, 0.59), (20, 1500, 0.11, 0.11, 0.045, 0.85),
    ],
)
def test_what_a_cap_costs(elo1: float, cap: int, open_0: float, open_1: float, alpha: float, power: float) -> None:
    at_0, at_1 = undecided(0, elo1, cap), undecided(elo1, elo1, cap)
    assert (sum(at_0), sum(at_1)) == pytest.approx((open_0, open_1), abs=0.006)
    assert 0.05 - at_0[0] == pytest.approx(alpha, abs=0.0012)
    assert 0.95 - at_1[0] == pytest.approx(power, abs=0.006)


def test_the_caps_price_by_simulation() -> None:
    test = Sprt(max_pairs=300, batch_pairs=1)
    verdict, _ = simulate_sprt(test, pair_cells(40), 1000, np.random.default_rng(8))
    assert (verdict == UNDECIDED).mean() == pytest.approx(sum(undecided(40, 40, 300)), abs=0.04)
    assert (verdict == ACCEPT).mean() == pytest.approx(0.78, abs=0.04)


@pytest.mark.parametrize(("elo", "rho"), [(0, 0.0), (40, -0.3)])
def test_simulated_test_is_near_the_limit(elo: float, rho: float) -> None:
    test = Sprt(max_pairs=4000, batch_pairs=1)
    verdict, pairs = simulate_sprt(test, pair_cells(elo, 0.0, rho), 1000, np.random.default_rng(7))
    p, n = brownian(elo, 40, rho, 0.0)
    assert (verdict == ACCEPT).mean() == pytest.approx(p, abs=0.035)
    assert pairs.mean() == pytest.approx(n, rel=0.1)
