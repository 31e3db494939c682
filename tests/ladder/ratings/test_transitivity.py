"""Circles in the results: worked examples, and false alarms on results that have none."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from royale_lightning.ladder.ratings.matches import Matches
from royale_lightning.ladder.ratings.rating import DavidsonRater
from royale_lightning.ladder.ratings.transitivity import _chi_squared_tail, hodge, transitivity

FIRST, SECOND = np.array([0, 1, 0]), np.array([1, 2, 2])


def logits(*scores: float) -> np.ndarray:
    s = np.array(scores)
    return np.log(s / (1 - s))


def matches(first: np.ndarray, second: np.ndarray, wins: np.ndarray, games: np.ndarray | int) -> Matches:
    n = int(max(first.max(), second.max())) + 1
    table = np.stack([games - wins, np.zeros_like(wins), wins], axis=1)
    return Matches(
        tuple(f"p{k:02d}" for k in range(n)), first, second, table, np.zeros((len(wins), 3, 3), dtype=np.int64)
    )


def test_hodge_of_three_players() -> None:
    # 1v2 .6, 2v3 .6, 1v3 .45, equal weights.
    got = hodge(FIRST, SECOND, logits(0.6, 0.6, 0.45), np.ones(3), 3)
    assert got.rating == pytest.approx([0.068265, 0, -0.068265], abs=5e-7)
    assert np.abs(got.residual) == pytest.approx(0.337200, abs=5e-7)
    assert got.cyclicity == pytest.approx(0.92424, abs=5e-6)


def test_curl_and_its_error() -> None:
    y, n = logits(0.6, 0.6, 0.45), 100
    weight = n * np.array([0.24, 0.24, 0.2475])
    curl, sd = y[0] + y[1] - y[2], math.sqrt(float((1 / weight).sum()))
    assert (curl, sd) == pytest.approx((1.0116, 0.3518), abs=5e-5)
    assert curl / sd == pytest.approx(2.88, abs=5e-3)
    left = hodge(FIRST, SECOND, y, weight, 3).residual
    assert float((weight * left**2).sum()) == pytest.approx(8.27, abs=5e-3)


def test_the_report_on_those_games() -> None:
    r = transitivity(DavidsonRater(anchor="p00").rate_matches(matches(FIRST, SECOND, np.array([60, 60, 45]), 100)))
    assert r.freedom == 1
    # One circle, so its z (half a game is added to either side), the fit's residual and chi-squared tell one story.
    (triad,) = r.triads
    assert (triad.a, triad.b, triad.c) == ("p00", "p01", "p02")
    assert triad.curl == pytest.approx(1.0116, rel=0.02)
    assert triad.z == pytest.approx(2.88, rel=0.02)
    assert r.residual == pytest.approx(8.27, rel=0.05)
    assert r.p == pytest.approx(0.004, abs=0.001)
    assert r.worst is not None
    assert abs(r.worst[2]) == pytest.approx(1.7, abs=0.1)
    json.dumps(r.as_dict(), allow_nan=False)


def test_a_circle_is_told_in_the_order_it_turns() -> None:
    r = transitivity(DavidsonRater(anchor="p00").rate_matches(matches(FIRST, SECOND, np.array([20, 20, 80]), 100)))
    assert (r.triads[0].a, r.triads[0].b, r.triads[0].c) == ("p00", "p02", "p01")
    assert r.cyclicity == pytest.approx(1.0, abs=0.01)


def test_a_chain_shows_no_circle() -> None:
    r = transitivity(
        DavidsonRater(anchor="p00").rate_matches(matches(np.array([0, 1]), np.array([1, 2]), np.array([10, 12]), 20))
    )
    assert (r.freedom, r.p, r.cyclicity, r.triads) == (0, None, None, ())


def test_transitive_players_raise_the_alarm_as_often_as_promised() -> None:
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(8, 1)
    alarms, triads, residual, freedom = 0, 0, [], []
    runs = 200
    for _ in range(runs):
        theta = rng.normal(0, 0.8, 8)
        p = 1 / (1 + np.exp(-(theta[i] - theta[j])))
        r = transitivity(DavidsonRater(anchor="p00").rate_matches(matches(i, j, rng.binomial(60, p), 60)))
        # A match too one-sided for five points is a circle less.
        assert r.freedom == 21 - r.left_out
        assert r.p is not None
        freedom.append(r.freedom)
        residual.append(r.residual)
        alarms += r.p < 0.05
        triads += bool(r.triads)
    assert np.mean(residual) == pytest.approx(np.mean(freedom), rel=0.08)
    assert alarms / runs <= 0.1
    assert triads / runs <= 0.07


def test_matches_of_two_games_raise_no_alarm_whatever_their_number() -> None:
    """Two hundred selves of a learner met twelve others twice each, as a run rates it: their scores are far from normal
    and say nothing of circles, so they are left out and counted. The others met each other often."""
    rng = np.random.default_rng(5)
    alarms = 0
    runs = 40
    i, j = np.triu_indices(12, 1)
    selves = np.arange(12, 212)
    first, second = np.concatenate([i, np.tile(np.arange(12), 200)]), np.concatenate([j, np.repeat(selves, 12)])
    games = np.concatenate([np.full(i.size, 40), np.full(2400, 2)])
    for _ in range(runs):
        theta = np.concatenate([rng.normal(0, 0.6, 12), np.linspace(-1, 3, 200)])
        p = 1 / (1 + np.exp(-(theta[first] - theta[second])))
        counts = matches(first, second, rng.binomial(games, p), games)
        names = tuple(f"p{k:03d}" for k in range(212))
        r = transitivity(DavidsonRater(anchor="p000").rate_matches(replace(counts, players=names)))
        assert r.left_out >= 2400
        assert r.matches + r.left_out == first.size
        assert r.p is not None
        alarms += r.p < 0.05
    assert alarms / runs <= 0.15
    only = matches(first[i.size :], second[i.size :], np.ones(2400, dtype=np.int64), 2)
    alone = transitivity(DavidsonRater(anchor="p00").rate_matches(only))
    assert (alone.p, alone.cyclicity, alone.worst, alone.matches, alone.left_out) == (None, None, None, 0, 2400)


def test_the_flow_is_split_as_least_squares_does() -> None:
    rng = np.random.default_rng(8)
    i, j = np.triu_indices(9, 1)
    kept = (rng.random(i.size) < 0.4) & (i < 6) & (j < 6) | (i > 5)  # in two parts
    i, j = i[kept], j[kept]
    flow, weight = rng.normal(size=i.size), rng.uniform(0.5, 3, i.size)
    design = np.zeros((i.size, 9))
    design[np.arange(i.size), i], design[np.arange(i.size), j] = np.sqrt(weight), -np.sqrt(weight)
    want = np.linalg.lstsq(design, np.sqrt(weight) * flow, rcond=None)[0]
    got = hodge(i, j, flow, weight, 9)
    assert got.rating == pytest.approx(want)
    assert got.residual == pytest.approx(flow - (want[i] - want[j]))


@pytest.mark.parametrize(
    ("x", "freedom", "p"), [(3.841, 1, 0.05), (18.307, 10, 0.05), (32.671, 21, 0.05), (8.27, 1, 0.004)]
)
def test_chi_squared_tail(x: float, freedom: int, p: float) -> None:
    assert _chi_squared_tail(x, freedom) == pytest.approx(p, abs=0.004)
