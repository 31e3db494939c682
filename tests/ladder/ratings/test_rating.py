"""Ratings: the worked examples, the properties of the fit, and its coverage by simulation."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.ladder.ratings.davidson import fit_davidson, outcomes
from royale_lightning.ladder.ratings.elo import NATURAL_PER_ELO as C
from royale_lightning.ladder.ratings.elo import elo_of, expected_score, swept_bound
from royale_lightning.ladder.ratings.matches import DRAWN, LOSS, WIN, Matches, count_matches
from royale_lightning.ladder.ratings.rating import ANCHOR, DavidsonRater, Ratings
from royale_lightning.ladder.results import Result, ResultsLog

#: Players 0 (anchor) to 3: (i, j, wins, draws, losses).
B1 = [(0, 1, 12, 4, 24), (0, 2, 6, 2, 32), (1, 2, 14, 4, 22), (2, 3, 0, 0, 10)]


def game(blue: str, red: str, seed: int, winner: int) -> Result:
    return Result(
        kind="eval", blue=blue, red=red, seed=seed, winner=winner, ticks=1, crowns=(0, 0), iteration=0, game_step=0
    )


def matches(rows: list[tuple[int, int, int, int, int]], players: int | None = None) -> Matches:
    """Counts without pairs; player 0 is the anchor, the others sort behind it."""
    i, j, w, d, l = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))  # noqa: E741
    names = (ANCHOR, *(f"snap-{k}" for k in range(1, players or int(max(i.max(), j.max())) + 1)))
    return Matches(names, i, j, np.stack([l, d, w], axis=1), np.zeros((len(rows), 3, 3), dtype=np.int64))


def b1() -> Ratings:
    return DavidsonRater(prior_sd=400, pool_sd=0).rate_matches(matches(B1))


# ---- worked examples ---------------------------------------------------------------------------------------------
def test_b1_ratings_and_errors() -> None:
    r = b1()
    assert r.elo == pytest.approx([0, 137.4879, 235.9289, 719.4847], abs=5e-5)
    assert r.fit.eta == pytest.approx(-1.6023111, abs=5e-8)
    assert r.draw == pytest.approx(0.2014305, abs=5e-8)
    assert [t.se for t in r.table] == pytest.approx([0, 50.593, 53.408, 199.706], abs=5e-4)
    assert math.sqrt(r.fit.covariance[-1, -1]) == pytest.approx(0.32276, abs=5e-6)
    two_one, three_two = r.difference("snap-2", "snap-1"), r.difference("snap-3", "snap-2")
    assert two_one is not None
    assert three_two is not None
    assert (two_one.elo, two_one.se) == pytest.approx((98.441, 49.960), abs=5e-4)
    assert (three_two.elo, three_two.se) == pytest.approx((483.556, 195.451), abs=5e-4)
    assert math.hypot(r.table[1].se, r.table[2].se) == pytest.approx(73.57, abs=5e-3), "the naive error is far off"
    assert (two_one.low, two_one.high) == pytest.approx((98.441 - 1.95996 * 49.96, 98.441 + 1.95996 * 49.96), abs=2e-3)


def test_b1_path_of_newton_and_curvature() -> None:
    fit = b1().fit
    want = [-142.819598, -102.873853, -101.401670, -101.379642, -101.379634]
    assert fit.trace[:5] == pytest.approx(want, abs=5e-7)
    upper = [
        [16.634833, -8.484222, 0, -0.143309], [15.542272, -0.607544, -1.075497], [0.796155, -0.190023], [9.801448]
    ]
    for k, row in enumerate(upper):
        assert fit.precision[1 + k, 1 + k :] == pytest.approx(row, abs=5e-7)
    prior = 0.5 * float(np.sum((fit.theta / (400 * C)) ** 2)) + 0.5 * (fit.eta / 2) ** 2
    assert fit.trace[-1] + prior == pytest.approx(-99.208011, abs=5e-7)


def test_b1_predictions() -> None:
    r = b1()
    o = outcomes(r.fit.theta[:1] - r.fit.theta[1:2], r.fit.eta)
    assert (o.win[0], o.draw[0], o.loss[0]) == pytest.approx((0.285242, 0.085349, 0.629409), abs=5e-7)
    e = r.expected(ANCHOR, ["snap-1", "snap-3"])
    assert e is not None
    assert e.score[0] == pytest.approx(0.285242 + 0.085349 / 2, abs=1e-6)
    assert r.expected("snap-9", [ANCHOR]) is None
    assert r.expected(ANCHOR, ["snap-1", "snap-9"]) is None
    # The delta method against differences of refits is not possible, but against its own definition it is.
    h = 1e-6

    def score(dtheta: float, deta: float) -> float:
        return float(outcomes(r.fit.theta[:1] - r.fit.theta[1:2] - dtheta, r.fit.eta + deta).score[0])

    slope = np.array([(score(h, 0) - score(-h, 0)) / (2 * h), (score(0, h) - score(0, -h)) / (2 * h)])
    block = r.fit.covariance[np.ix_([1, 4], [1, 4])]
    assert e.covariance[0, 0] == pytest.approx(slope @ block @ slope, rel=1e-6)


def test_b2_closed_form_of_two_players() -> None:
    fit = fit_davidson(np.array([0]), np.array([1]), np.array([[60, 10, 30]]), 2, 0, 1e4, 0.0, 1e4)
    assert fit.theta[1] / C == pytest.approx(120.4120, abs=5e-5)
    assert fit.theta[1] == pytest.approx(math.log(2))
    assert math.exp(fit.eta) == pytest.approx(0.2357023, abs=5e-8)
    score = elo_of((60 + 5) / 100)
    assert score == pytest.approx(107.5, abs=0.05), "score Elo is shorter than the rating's by 1 - draws"


def test_mm_reaches_the_same_maximum() -> None:
    """Hunter's minorisation-maximisation (2004) without a prior, on the first three matches of B1."""
    pi, nu = np.ones(3), 1.0
    rows = B1[:3]
    points = np.zeros(3)
    for i, j, w, d, l in rows:  # noqa: E741
        points += np.bincount([i, j], [w + d / 2, l + d / 2], 3)
    for _ in range(4000):
        worth, tied = np.zeros(3), 0.0
        for i, j, *k in rows:
            g = math.sqrt(pi[i] * pi[j])
            z = pi[i] + pi[j] + nu * g
            worth[i] += sum(k) * (1 + nu / 2 * math.sqrt(pi[j] / pi[i])) / z
            worth[j] += sum(k) * (1 + nu / 2 * math.sqrt(pi[i] / pi[j])) / z
            tied += sum(k) * g / z
        pi, nu = points / worth, sum(r[3] for r in rows) / tied
        pi /= pi[0]
    m = matches(rows)
    fit = fit_davidson(m.first, m.second, m.games, 3, 0, 1e4, 0.0, 1e4)
    assert fit.theta / C == pytest.approx(np.log(pi) / C, abs=1e-4)
    assert fit.theta[1:] / C == pytest.approx([149.26359, 255.54738], abs=5e-5)
    assert math.exp(fit.eta) == pytest.approx(nu)
    assert nu == pytest.approx(0.2060528, abs=5e-8)


@pytest.mark.parametrize(
    ("sd", "want"), [(400, {5: 406, 10: 497, 20: 592, 100: 819}), (200, {5: 236, 10: 318, 20: 406, 100: 622})]
)
def test_an_undefeated_player_stays_finite(sd: float, want: dict[int, float]) -> None:
    for n, elo in want.items():
        # The figures are of a model without draws; a wide prior on eta lets it go that way.
        fit = fit_davidson(np.array([0]), np.array([1]), np.array([[n, 0, 0]]), 2, 0, sd * C, 0.0, eta_sd=1e4)
        assert fit.theta[1] / C == pytest.approx(elo, abs=0.5)
    r = DavidsonRater(prior_sd=sd).rate_matches(matches([(0, 1, 0, 0, 100)]))
    assert 0 < r.elo[1] < 4000
    assert r.table[1].separable


@pytest.mark.parametrize(("n", "score", "elo"), [(5, 0.549, 34), (10, 0.741, 183), (20, 0.861, 317), (100, 0.970, 607)])
def test_bound_of_a_sweep(n: int, score: float, elo: float) -> None:
    assert swept_bound(n) == pytest.approx(score, abs=5e-4)
    assert elo_of(swept_bound(n)) == pytest.approx(elo, abs=0.5)


def test_prior_weight() -> None:
    # A decisive even game carries 1/4 per natural unit squared: sd 400 is worth 0.75 such games, sd 200 3.0.
    games = [4 / (sd * C) ** 2 for sd in (400, 200)]
    assert games == pytest.approx([0.75, 3.0], abs=0.02)
    r = DavidsonRater(400, 0).rate_matches(matches([(0, 1, 0, 0, 1), (0, 2, 10, 0, 10)]))
    assert [t.prior_dominated for t in r.table] == [False, True, False]


# ---- the scale and the read-out ----------------------------------------------------------------------------------
def test_elo_scale() -> None:
    assert (expected_score(40), expected_score(20)) == pytest.approx((0.5573116, 0.5287506), abs=5e-8)
    assert pytest.approx(0.00575646, abs=5e-9) == C
    assert elo_of(0.51) == pytest.approx(6.95, abs=5e-3)
    assert [elo_of(s) for s in (0.0, 1.0)] == [-math.inf, math.inf]
    with pytest.raises(ValueError, match="score in"):
        elo_of(1.1)
    with pytest.raises(ValueError, match="at least 1 pair"):
        swept_bound(0)


# ---- properties --------------------------------------------------------------------------------------------------
_GAMES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("bcde"), st.integers(0, 40), st.integers(0, 2)).filter(
        lambda g: g[0] != g[1]
    ),
    min_size=1, max_size=60, unique_by=lambda g: g[:3],
).map(lambda rows: [game(*row) for row in rows])


@settings(max_examples=40, deadline=None)
@given(_GAMES, st.randoms(use_true_random=False))
def test_any_order_gives_the_same_bits(games: list[Result], shuffle: object) -> None:
    rater = DavidsonRater(anchor="a")
    mixed = [*games, *games[:5]]
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    one, two = rater.rate(games), rater.rate(mixed)
    assert one.players == two.players
    for x, y in ((one.elo, two.elo), (one.covariance, two.covariance), (one.fit.precision, two.fit.precision)):
        assert x.tobytes() == y.tobytes()
    assert json.dumps(one.as_dict(), allow_nan=False) == json.dumps(two.as_dict(), allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(_GAMES)
def test_the_fit_is_a_maximum_and_its_errors_are_its_curvature(games: list[Result]) -> None:
    r = DavidsonRater(anchor="a").rate(games)
    free = [i for i, p in enumerate(r.players) if p != "a"] + [len(r.players)]
    block = np.ix_(free, free)
    assert r.fit.precision[block] @ r.fit.covariance[block] == pytest.approx(np.eye(len(free)), abs=1e-8)
    assert all(later >= earlier - 1e-9 for earlier, later in zip(r.fit.trace, r.fit.trace[1:], strict=False))
    played = {p for g in games for p in (g.blue, g.red)}
    assert set(r.players) == played, "who did not play is absent, and nobody else"
    for p in "abcdez":
        assert (r.of(p) is None) == (p not in played)
    assert r.difference("a", "z") is None
    own = r.difference(r.players[0], r.players[0])
    assert own is not None
    assert own.elo == own.se == 0.0


def test_swapping_everybody_mirrors_the_ratings() -> None:
    m = matches([(1, 2, 8, 3, 5), (1, 3, 4, 1, 9)])
    turned = Matches(m.players, m.first, m.second, m.games[:, ::-1].copy(), m.pairs)
    rater = DavidsonRater()
    assert rater.rate_matches(turned).elo == pytest.approx(-rater.rate_matches(m).elo)


def test_a_pool_far_from_the_anchor_is_not_drawn_back_by_who_played_least() -> None:
    # Everybody beats the anchor always; 1 and 2 are equals, one of them with few games.
    rows = [(0, 1, 0, 0, 60), (0, 2, 0, 0, 2), (1, 2, 3, 0, 3)]
    near = DavidsonRater(400, 0).rate_matches(matches(rows))
    far = DavidsonRater(400, 1000).rate_matches(matches(rows))
    gap = [float(r.elo[1] - r.elo[2]) for r in (near, far)]
    assert gap[0] > 25
    assert gap[1] < 0.75 * gap[0]


def test_pairs_are_counted_from_both_seats() -> None:
    m = count_matches(
        [
            game("b", "a", 1, 0), game("a", "b", 1, 0),  # blue won both: a lost as red and won as blue
            game("a", "b", 2, 2), game("b", "a", 2, 1),  # a draws as blue, wins as red
            game("a", "b", 3, 1),  # half a pair: a game, but no pair
        ]
    )
    assert m.players == ("a", "b")
    assert m.games.tolist() == [[2, 1, 2]]
    want = np.zeros((3, 3), dtype=int)
    want[WIN, LOSS] = want[DRAWN, WIN] = 1
    assert m.pairs[0].tolist() == want.tolist()
    score, count = m.payoff
    assert score[0, 1] == 0.5
    assert score[1, 0] == 0.5
    assert count.tolist() == [[0, 5], [5, 0]]
    assert np.isnan(np.diag(score)).all()


def test_payoff_of_an_unplayed_pair_is_missing() -> None:
    score, count = count_matches([game("a", "b", 1, 0), game("b", "c", 1, 0)]).payoff
    assert np.isnan(score[0, 2])
    assert np.isnan(score[2, 0])
    assert count[0, 2] == 0
    assert (score[0, 1], score[1, 0]) == (1.0, 0.0)


def test_only_rated_results_count() -> None:
    probe = Result(
        kind="probe", blue="a", red="z", seed=1, winner=0, ticks=1, crowns=(0, 0), iteration=0, game_step=0
    )
    r = DavidsonRater().rate([game("a", "b", 1, 0), probe])
    assert r.players == ("a", "b")
    assert DavidsonRater().rate([probe]).players == ()


def test_two_outcomes_of_one_battle_are_refused() -> None:
    with pytest.raises(UserError, match="two different winners"):
        count_matches([game("a", "b", 1, 0), game("a", "b", 1, 1)])


@pytest.mark.parametrize("bad", [{"prior_sd": 0.0}, {"prior_sd": math.nan}, {"pool_sd": -1.0}, {"pool_sd": math.inf}])
def test_refused_settings(bad: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"rater {next(iter(bad))} is"):
        DavidsonRater(**bad)


def test_separable_players_are_named() -> None:
    # a and b trade wins, c beats everybody, the anchor loses to everybody, d is unconnected to c but trades with a.
    rows = [(1, 2, 5, 0, 5), (0, 1, 0, 0, 9), (2, 3, 0, 0, 4), (1, 4, 0, 2, 0)]
    r = DavidsonRater().rate_matches(matches(rows))
    assert [t.separable for t in r.table] == [True, False, False, True, False]


def test_correlated_seats_widen_the_errors() -> None:
    def rated(swap: bool) -> Ratings:
        # Either the stronger deck of the seed decides (seats agree) or the seat does (they split).
        rows = []
        for seed in range(120):
            won = seed % 2
            rows += [game("a", "b", seed, won), game("b", "a", seed, won if swap else 1 - won)]
        return DavidsonRater(anchor="a").rate(rows)

    agree, split = rated(False), rated(True)
    assert agree.rho == pytest.approx(0.9)
    assert split.rho == pytest.approx(-0.9)
    assert agree.table[1].se > 3 * split.table[1].se
    few = DavidsonRater(anchor="a").rate([game("a", "b", s, s % 2) for s in range(40)])
    assert few.rho is None


_REFIT = """
import json, sys
from pathlib import Path
from royale_lightning.ladder import DavidsonRater
from royale_lightning.ladder.results import read_results
print(json.dumps(DavidsonRater().rate(read_results(Path(sys.argv[1]))).as_dict()))
"""


def test_another_process_refits_the_log_to_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    names = [ANCHOR, *(f"snap-{k:02d}" for k in range(40))]
    rows = []
    for i in range(41):
        for j in rng.choice(41, 6, replace=False):
            if i != j:
                rows += [game(names[i], names[j], 1000 * i + s, int(rng.integers(3))) for s in range(5)]
    log = ResultsLog(tmp_path / "results.jsonl")
    log.append({r.key: r for r in rows}.values())
    log.close()
    here = DavidsonRater().rate(rows).as_dict()
    there = subprocess.run(
        [sys.executable, "-c", _REFIT, str(log.path)], capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    assert json.loads(there.stdout) == here


# ---- coverage ----------------------------------------------------------------------------------------------------
def simulated_coverage(pools: int, players: int, seed: int, rho: float) -> tuple[float, float]:
    """Share of true ratings, and of true differences of neighbours, within 2 standard errors of the fit.

    The shipped rater on pools of sd 300 Elo some way above the anchor. Each player meets about twelve others over 20
    seeds, which favour one *player* from both seats (rho above 0) as a lucky deck would.
    """
    rng = np.random.default_rng(seed)
    hit, hit_difference, total = 0, 0, 0
    for _ in range(pools):
        theta = np.concatenate([[0.0], rng.normal(rng.normal(400, 200), 300, players)]) * C
        met = {tuple(sorted((i, int(j)))) for i in range(players + 1) for j in rng.choice(players + 1, 6) if i != j}
        met |= {(0, i) for i in range(1, players + 1, 3)}
        i, j = np.array(sorted(met)).T
        o = outcomes(theta[i] - theta[j], math.log(0.2))
        chances = np.stack([o.loss, o.draw, o.win], axis=1)
        pairs = np.zeros((i.size, 3, 3), dtype=np.int64)
        for m in range(i.size):
            same = rng.random(20) < rho
            blue = rng.choice(3, 20, p=chances[m])
            red = np.where(same, blue, rng.choice(3, 20, p=chances[m]))
            np.add.at(pairs[m], (blue, red), 1)
        names = (ANCHOR, *(f"snap-{k:02d}" for k in range(players)))
        games = pairs.sum(axis=1) + pairs.sum(axis=2)
        r = DavidsonRater().rate_matches(Matches(names, i, j, games, pairs))
        off = r.elo - theta / C
        se = np.sqrt(np.diag(r.covariance))
        hit += int((np.abs(off[1:]) <= 2 * se[1:]).sum())
        c = r.covariance
        gap_se = np.sqrt(np.diag(c)[1:] + np.diag(c)[:-1] - 2 * np.diag(c, 1))
        hit_difference += int((np.abs(np.diff(off)) <= 2 * gap_se).sum())
        total += players
    return hit / total, hit_difference / total


@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_two_standard_errors_cover_what_they_should(rho: float) -> None:
    """2,000 simulated players: between 93 % and 97.5 %."""
    rating, difference = simulated_coverage(pools=100, players=20, seed=20_240_601, rho=rho)

    assert 0.93 <= rating <= 0.975
    assert 0.93 <= difference <= 0.975
