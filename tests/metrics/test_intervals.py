"""Intervals with the seed as unit: known figures, and exact coverage."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from royale_lightning.metrics.intervals import Z95, mean_interval, score_interval, share_interval, wilson

_SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=40).map(np.array)


@pytest.mark.parametrize("method", ["bootstrap", "effective"])
@pytest.mark.parametrize(("n", "low"), [(10, 0.722), (20, 0.839), (50, 0.929), (100, 0.963)])
def test_all_won_gives_wilson_on_seeds(n: int, low: float, method: str) -> None:
    got = score_interval(np.ones(n), method=method)  # type: ignore[arg-type]
    assert got == (1.0, pytest.approx(low, abs=5e-4), 1.0)
    assert got.low == pytest.approx(n / (n + Z95**2))


@pytest.mark.parametrize(("n", "half"), [(10, 0.263), (20, 0.201), (50, 0.134), (100, 0.096)])
def test_all_split_is_deliberately_wide(n: int, half: float) -> None:
    got = score_interval(np.full(n, 0.5))
    assert (got.high - got.low) / 2 == pytest.approx(half, abs=5e-4)
    assert got.low + got.high == pytest.approx(1.0)


def test_all_lost_mirrors_all_won() -> None:
    lost, won = score_interval(np.zeros(20)), score_interval(np.ones(20))
    assert lost.score == lost.low == 0.0
    assert lost.high == pytest.approx(1.0 - won.low)


def test_wilson_known_values() -> None:
    # Newcombe 1998, table I: 81 of 263 and 1 of 29 (method 3).
    assert wilson(81 / 263, 263, Z95) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(1 / 29, 29, Z95) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(0.5, 10, 0.0) == (0.5, 0.5)


@pytest.mark.parametrize(("x", "n"), [(1.1, 10), (-0.1, 10), (0.5, 0), (math.nan, 10), (0.5, math.nan)])
def test_wilson_refuses_nonsense(x: float, n: float) -> None:
    with pytest.raises(ValueError, match="wilson needs"):
        wilson(x, n, Z95)


def test_effective_size_is_games_when_games_are_independent() -> None:
    # 0 draws, no correlation: cells 1/4, 1/2, 1/4. Then n_e is the number of games less the one of n - 1.
    scores = np.repeat([0.0, 0.5, 1.0], [25, 50, 25])
    n_e = 0.25 * 99 * 100 / float(((scores - 0.5) ** 2).sum())
    assert n_e == pytest.approx(198.0)
    got = score_interval(scores, method="effective")
    assert (got.low, got.high) == pytest.approx(wilson(0.5, 198.0, Z95))


def test_effective_size_contains_the_seats_correlation() -> None:
    same = score_interval(np.repeat([0.0, 1.0], 50), method="effective")  # both games of a seed agree
    split = score_interval(np.repeat([0.25, 0.75], 50), method="effective")
    assert (same.high - same.low) > 1.5 * (split.high - split.low)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.3])
def test_half_widths_at_one_half_match_the_table(rho: float) -> None:
    # 95 % half-width at s = 1/2 without draws, 100 pairs, by t: 5.9, 7.0, 8.0 percentage points.
    agree = round(100 * (1 + rho) / 4)
    scores = np.repeat([0.0, 0.5, 1.0], [agree, 100 - 2 * agree, agree])
    want = {-0.3: 0.059, 0.0: 0.070, 0.3: 0.080}[rho]
    for method in ("bootstrap", "effective"):
        got = score_interval(scores, method=method)
        assert (got.high - got.low) / 2 == pytest.approx(want, abs=2.5e-3)


def test_bootstrap_is_the_exact_percentile_where_that_is_known() -> None:
    # Scores 0 and 1 only: the resampled mean is a binomial share, whose quantiles are on record.
    got = score_interval(np.repeat([0.0, 1.0], [10, 10]))
    assert (got.low, got.high) == pytest.approx((0.3, 0.7), abs=0.051)
    n, p = 20, 0.5
    cdf = np.cumsum([math.comb(n, k) * p**n for k in range(n + 1)])
    assert got.low in (np.searchsorted(cdf, 0.025) / n, np.searchsorted(cdf, 0.025) / n + 1 / n)


@settings(max_examples=60, deadline=None)
@given(_SCORES, st.sampled_from(["bootstrap", "effective"]), st.randoms(use_true_random=False))
def test_any_scores_give_a_proper_interval_whatever_their_order(
    scores: np.ndarray, method: str, shuffle: object
) -> None:
    got = score_interval(scores, method=method)  # type: ignore[arg-type]
    assert got.score == pytest.approx(scores.mean())
    assert 0.0 <= got.low <= got.score + 1e-12
    assert got.score - 1e-12 <= got.high <= 1.0
    assert got.low < got.high
    mixed = list(scores)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    again = score_interval(np.array(mixed), method=method)  # type: ignore[arg-type]
    assert again == pytest.approx(got)
    wide = score_interval(scores, 0.99, method)  # type: ignore[arg-type]
    assert wide.low <= got.low + 1e-12
    assert wide.high >= got.high - 1e-12


def test_same_scores_same_interval() -> None:
    scores = np.array([0.0, 0.5, 0.75, 1.0, 1.0])
    before = np.random.get_state()[1].copy()
    assert score_interval(scores) == score_interval(scores.copy())
    assert (np.random.get_state()[1] == before).all()


def test_coverage_of_the_effective_interval_near_one() -> None:
    # N = 20 pairs, s = 0.9, rho = 0.3, no draws: .962 on record (t: .883). Exact, by summing the multinomial.
    s, rho, n = 0.9, 0.3, 20
    both = s * s + rho * s * (1 - s)
    p = (1 - 2 * s + both, 2 * (s - both), both)
    covered = 0.0
    for lost in range(n + 1):
        for split in range(n + 1 - lost):
            won = n - lost - split
            ways = math.comb(n, lost) * math.comb(n - lost, split)
            scores = np.repeat([0.0, 0.5, 1.0], [lost, split, won])
            got = score_interval(scores, method="effective")
            if got.low <= s <= got.high:
                covered += ways * p[0] ** lost * p[1] ** split * p[2] ** won
    assert covered == pytest.approx(0.962, abs=1e-3)


@pytest.mark.parametrize(
    ("scores", "options", "sentence"),
    [
        ([], {}, "at least one complete pair"),
        ([0.3], {}, "pair scores must be"),
        ([math.nan, 1.0], {}, "pair scores must be"),
        ([1.25], {}, "pair scores must be"),
        ([1.0], {"confidence": 1.0}, r"confidence must be in \(0, 1\)"),
        ([1.0], {"method": "t"}, "method must be"),
    ],
)
def test_refusals(scores: list[float], options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        score_interval(np.array(scores), **options)


def test_the_quantile_is_the_normal_distributions() -> None:
    assert pytest.approx(NormalDist().inv_cdf(0.975), abs=5e-7) == Z95
# ---- a mean over opponents ---------------------------------------------------------------------------------------
@settings(max_examples=30, deadline=None)
@given(_SCORES)
@example(np.array([0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.75]))
def test_the_mean_over_one_opponent_is_its_score(scores: np.ndarray) -> None:
    assert mean_interval(scores[None]) == score_interval(scores)


def test_a_mean_over_opponents_counts_seeds_and_not_battles() -> None:
    """Five opponents on whose seeds the same luck falls are one measurement; five of their own luck are more."""
    rng = np.random.default_rng(4)
    one = rng.choice([0.0, 0.5, 1.0], 200)
    alike, apart = np.tile(one, (5, 1)), np.stack([rng.permutation(one) for _ in range(5)])
    single, same, own = score_interval(one), mean_interval(alike), mean_interval(apart)
    assert (same.score, same.low, same.high) == pytest.approx(single)
    assert own.score == pytest.approx(single.score)
    assert (own.high - own.low) == pytest.approx((single.high - single.low) / math.sqrt(5), rel=0.15)
    order = rng.permutation(200)
    assert mean_interval(apart[:, order]) == own, "blind to the order of the seeds"


def test_the_mean_interval_covers() -> None:
    """Nominal 95 % of 40 seeds against five opponents, half of every result the seed's."""
    rng = np.random.default_rng(9)
    runs, hit = 300, 0
    skill = np.array([0.5, 0.6, 0.7, 0.8, 0.9])[:, None]
    for _ in range(runs):
        seed, own = rng.random(40), rng.random((5, 40))
        won = np.where(rng.random((5, 40)) < 0.5, seed, own) < skill
        got = mean_interval(won.astype(float))
        hit += got.low <= skill.mean() <= got.high
    assert 0.91 <= hit / runs <= 0.98


def test_seeds_that_all_went_the_same_way_claim_no_certainty() -> None:
    assert mean_interval(np.ones((3, 20))) == score_interval(np.ones(20))
    assert mean_interval(np.array([[1.0] * 20, [0.0] * 20])) == score_interval(np.full(20, 0.5))


@pytest.mark.parametrize("scores", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)])
def test_a_mean_of_nothing_is_refused(scores: np.ndarray) -> None:
    with pytest.raises(ValueError, match="an interval of a mean needs"):
        mean_interval(scores)
    with pytest.raises(ValueError, match="confidence must be"):
        mean_interval(np.ones((2, 2)), 1.0)


# ---- seeds with more and fewer games ---------------------------------------------------------------------------
@given(_SCORES)
def test_two_games_a_seed_are_a_pair(scores: np.ndarray) -> None:
    ours = share_interval(2.0 * scores, np.full(len(scores), 2))
    assert ours == pytest.approx(score_interval(scores, method="effective"), abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), min_size=1, max_size=30))
def test_a_share_of_unequal_seeds_lies_in_its_interval(seeds: list[tuple[int, int]]) -> None:
    games = np.array([n for n, _ in seeds])
    points = np.array([min(n, k / 2) for n, k in seeds])
    got = share_interval(points, games)
    assert got.score == pytest.approx(points.sum() / games.sum())
    assert 0.0 <= got.low <= got.score + 1e-12
    assert got.score - 1e-12 <= got.high <= 1.0
    assert got.low < got.high
    back = share_interval(games - points, games)
    assert (back.low, back.high) == pytest.approx((1 - got.high, 1 - got.low), abs=1e-9)


def test_a_share_covers_what_it_says() -> None:
    """Seeds of one to six games that share their seed's luck: games as units would cover far less."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1500):
        games = rng.integers(1, 7, 40)
        luck = rng.beta(1.2, 0.8, 40)
        got = share_interval(rng.binomial(games, luck).astype(float), games)
        covered += got.low <= 0.6 <= got.high
    assert 0.92 <= covered / 1500 <= 0.98


@pytest.mark.parametrize(
    ("points", "games"), [([], []), ([1.0], [0]), ([2.0], [1]), ([-1.0], [1]), ([1.0, 1.0], [1])]
)
def test_a_share_of_nonsense_is_refused(points: list[float], games: list[int]) -> None:
    with pytest.raises(ValueError, match="seed"):
        share_interval(np.array(points), np.array(games))
