"""Ratings as a run makes them: whom the learner meets, what that says, and what it costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.battle.opponents import LADDER
from royale_lightning.battle.players import scripted_player
from royale_lightning.ladder.pairing import informative
from royale_lightning.ladder.ratings.arrow import Arrow, Spread, independent
from royale_lightning.ladder.ratings.components import strong_components
from royale_lightning.ladder.ratings.davidson import outcomes
from royale_lightning.ladder.ratings.elo import expected_score
from royale_lightning.ladder.ratings.matches import Matches, count_matches
from royale_lightning.ladder.ratings.rating import ANCHOR, DavidsonRater, Ratings
from royale_lightning.ladder.results import Result
from royale_lightning.ladder.schedule import rating_due, rating_games

#: A learner 200 points above the anchor; it never loses to the opponent that never acts.
STRENGTH = {
    **{scripted_player(n): -elo for n, elo in zip(LADDER, (3000, 380, 300, 240, 150, 200), strict=True)}, ANCHOR: -200.0
}


def played(blue: str, red: str, seed: int, winner: int) -> Result:
    return Result(
        kind="eval", blue=blue, red=red, seed=seed, winner=winner, ticks=1, crowns=(0, 0), iteration=0, game_step=0
    )


class Run:
    """Ratings of 24 battles, one after the other, of a learner of strength 0, against rungs and snapshots of itself.

    Args:
        rater: of the run.
        strength: of everybody who is not as strong as the learner, Elo.
    """

    def __init__(self, rater: DavidsonRater, strength: Mapping[str, float] = STRENGTH, seed: int = 1) -> None:
        self.rater, self.strength, self.rng = rater, dict(strength), np.random.default_rng(seed)
        self.results: list[Result] = []
        self.members: list[str] = []
        self.known = rater.rate([])
        self.met: Counter[str] = Counter()

    def rate(self, turn: int) -> str:
        """Play a rating of the learner; its name."""
        if 1.25 ** len(self.members) <= turn + 1:
            self.members.append(f"snap-{len(self.members):02d}")
        live = f"live:{turn}"
        for g in rating_games(live, self.members, self.known, range(100 * turn, 100 * turn + 12)):
            self.met[g.red if g.blue == live else g.blue] += 1
            p = float(expected_score(self.strength.get(g.blue, 0.0) - self.strength.get(g.red, 0.0)))
            self.results.append(played(g.blue, g.red, g.seed, int(self.rng.random() > p)))
        return live

    def fit(self) -> Ratings:
        self.known = self.rater.rate(self.results)
        return self.known


# ---- a rating that does not move by itself -----------------------------------------------------------------------
def slope(rater: DavidsonRater, turns: int) -> tuple[float, float, list[float], Counter[str]]:
    """Elo per rating and its standard error, the errors of the ratings after ten and at the end, and who was met.

    Fitted at every tenth rating, which takes a tenth of the time.
    """
    run = Run(rater)
    at, elo, se = [], [], []
    for turn in range(turns):
        live = run.rate(turn)
        if turn % 10 == 9:
            rating = run.fit().of(live)
            assert rating is not None
            at.append(turn + 1.0)
            elo.append(rating.elo)
            se.append(rating.se)
    x, y, e = (np.array(v) for v in (at, elo, se))
    x -= x.mean()
    return float(x @ y / (x @ x)), float(np.sqrt(x**2 @ e**2) / (x @ x)), [se[0], se[-1]], run.met


def test_a_learner_that_does_not_change_has_a_flat_rating_with_a_small_error() -> None:
    found, error, (early, late), met = slope(DavidsonRater(), 400)
    assert abs(found) < 2 * error
    assert 400 * abs(found) < 100
    assert early < 100, "after 240 battles"
    assert late < 90
    assert met["scripted:noop"] <= 0.02 * met.total(), "a swept opponent says nothing"
    assert met[ANCHOR] >= 0.05 * met.total()


def test_a_swept_anchor_would_lift_it() -> None:
    """Why the anchor is one that is lost to: with this one the same learner climbs."""
    found, _, (_, late), _ = slope(DavidsonRater(anchor="scripted:noop"), 150)
    assert 150 * found > 200
    assert late > 150


def test_ratings_are_spaced_by_the_growth_of_the_run() -> None:
    taken: list[int] = []
    steps = 0
    while steps < 10**9:
        steps += max(200_000, steps // 1000)  # affordable every 200,000 game steps
        if rating_due(steps, taken[-1] if taken else None):
            taken.append(steps)
    assert sum(t <= 20_000_000 for t in taken) == 100, "all that are paid for, in a run of an hour or a day"
    assert len(taken) < 520
    doubled = sum(5 * 10**8 < t <= 10**9 for t in taken)
    assert 60 <= doubled <= 72


# ---- whom to meet ------------------------------------------------------------------------------------------------
def test_a_pair_is_the_one_that_takes_most_off_the_variance() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        k = 5
        root = rng.normal(size=(k, k))
        covariance, delta, weight = root @ root.T / k, rng.normal(0, 1.5, k), rng.random(k)
        prior = 2.0
        # By hand: player and opponents, the information of a pair added, and all distances summed again.
        whole = np.zeros((k + 1, k + 1))
        whole[0, 0], whole[1:, 1:] = prior, covariance
        contrast = np.hstack([np.ones((k, 1)), -np.eye(k)])
        after = []
        for i in range(k):
            uncertain = prior + covariance[i, i]
            flat = 1 / math.sqrt(1 + math.pi / 8 * uncertain)
            information = 2 * flat * float(outcomes(delta[i : i + 1] * flat, -2.0).variance[0])
            new = np.linalg.inv(np.linalg.inv(whole) + information * np.outer(contrast[i], contrast[i]))
            after.append(float(weight @ np.einsum("ki,ij,kj->k", contrast, new, contrast)))
        assert informative(delta, covariance, prior, weight, -2.0, 1) == [int(np.argmin(after))]


def test_battles_go_where_they_say_something() -> None:
    # The learner always beats noop and snap-0, has even games with snap-1 and the anchor, and never met snap-2.
    results = [
        played("live:1", other, seed, 0 if sweep else seed % 2)
        for other, sweep in (("scripted:noop", True), ("snap-0", True), ("snap-1", False), (ANCHOR, False))
        for seed in range(40)
    ]
    known = DavidsonRater().rate(results)
    games = rating_games("live:2", ["snap-0", "snap-1", "snap-2"], known, range(12))
    assert len(games) == 24
    for blue, red in zip(games[::2], games[1::2], strict=True):
        assert (blue.blue, blue.red, blue.seed) == (red.red, red.blue, red.seed)
    met = Counter(p for g in games for p in (g.blue, g.red) if p != "live:2")
    assert not {"scripted:noop", "snap-0"} & set(met)
    assert {"snap-2", ANCHOR} <= set(met)
    # Nobody is known: everybody may be anything, and the anchor matters most.
    first = Counter(g.red for g in rating_games("live:0", [], DavidsonRater().rate([]), range(12))[::2])
    assert first.most_common(1)[0][0] == ANCHOR
    assert set(first) <= {scripted_player(name) for name in LADDER}


# ---- what a fit costs --------------------------------------------------------------------------------------------
def many_selves(selves: int, others: int, seed: int) -> Matches:
    """Each self of the learner met 12 of the others twice; the first of the others is the anchor."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, 0.8, others + selves)
    first, second, games = [], [], []
    for k in range(selves):
        for other in sorted(rng.choice(others, 12, replace=False)):
            won = rng.binomial(2, 1 / (1 + math.exp(theta[others + k] - theta[other])))
            first.append(other)
            second.append(others + k)
            games.append([2 - won, 0, won])
    names = (ANCHOR, *(f"snap-{k:03d}" for k in range(others - 1)), *(f"zelf-{k:04d}" for k in range(selves)))
    counts = np.array(games, dtype=np.int64)
    return Matches(names, np.array(first), np.array(second), counts, np.zeros((len(games), 3, 3), dtype=np.int64))


def test_the_cubic_part_of_a_fit_does_not_grow_with_the_learners_selves() -> None:
    """A thousand ratings of the learner: what is factored has one unknown per snapshot, not one per rating."""
    small, large = (DavidsonRater().rate_matches(many_selves(n, 40, 1)) for n in (200, 1000))
    assert small.fit.posterior.core.shape == large.fit.posterior.core.shape == (41, 41)
    assert len(large.fit.trace) < 20
    assert large.of("zelf-0999") is not None
    assert {"precision", "covariance"}.isdisjoint(vars(large.fit)), "nothing of players times players was made"


def test_the_elimination_is_exact() -> None:
    r = DavidsonRater().rate_matches(many_selves(60, 12, 2))
    free = [i for i, p in enumerate(r.players) if p != ANCHOR] + [len(r.players)]
    dense = np.linalg.inv(r.fit.precision[np.ix_(free, free)])
    assert r.fit.covariance[np.ix_(free, free)] == pytest.approx(dense, abs=1e-12)
    assert r.fit.precision_diagonal == pytest.approx(np.diag(r.fit.precision)[:-1])
    se = np.sqrt(np.diag(r.covariance))
    assert [t.se for t in r.table] == pytest.approx(se)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 12), st.integers(1, 6), st.integers(0, 2**31))
def test_an_arrow_solves_its_matrix(leaves: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    border, root = rng.normal(size=(leaves, size)), rng.normal(size=(size, size))
    own = rng.uniform(0.5, 2.0, leaves)
    core = root @ root.T + np.eye(size) + (border / own[:, None]).T @ border
    arrow = Arrow.of(own, border, core)
    whole = np.block([[np.diag(own), border], [border.T, core]])
    right = rng.normal(size=leaves + size)
    assert np.concatenate(arrow.solve(right[:leaves], right[leaves:])) == pytest.approx(np.linalg.solve(whole, right))
    spread = Spread(np.vstack([-arrow.pull, np.eye(size)]), arrow.core_inverse, np.append(1 / own, np.zeros(size)))
    inverse = np.linalg.inv(whole)
    assert spread.whole == pytest.approx(inverse)
    assert spread.variance == pytest.approx(np.diag(inverse))
    at = rng.permutation(leaves + size)[:3]
    assert spread.block(at) == pytest.approx(inverse[np.ix_(at, at)])


_EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] < e[1]), unique=True)


@settings(max_examples=60, deadline=None)
@given(_EDGES, st.sets(st.integers(0, 9)))
def test_independent_nodes_share_no_edge_and_none_is_missing(edges: list[tuple[int, int]], kept: set[int]) -> None:
    first, second = (np.array([e[k] for e in edges], dtype=np.int64) for k in (0, 1))
    held = np.isin(np.arange(10), list(kept))
    chosen = independent(first, second, 10, held)
    assert not (chosen & held).any()
    assert not (chosen[first] & chosen[second]).any()
    for node in np.flatnonzero(~chosen & ~held):
        assert any(chosen[j] for i, j in [*edges, *((j, i) for i, j in edges)] if i == node), "it could be added"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=30))
def test_components_are_who_reaches_each_other(arrows: list[tuple[int, int]]) -> None:
    reach = np.eye(8, dtype=bool)
    for i, j in arrows:
        reach[i, j] = True
    for k in range(8):  # Warshall's closure
        reach |= reach[:, k, None] & reach[k]
    source, target = (np.array([a[k] for a in arrows], dtype=np.int64) for k in (0, 1))
    label = strong_components(8, source, target)
    assert ((label[:, None] == label) == (reach & reach.T)).all()


def test_a_long_chain_of_players_is_no_deep_recursion() -> None:
    n = 5000
    label = strong_components(n, np.arange(n), (np.arange(n) + 1) % n)
    assert (label == label[0]).all()


# ---- one seed, many battles --------------------------------------------------------------------------------------
def met_on(seeds_of: Mapping[int, range], luck: Mapping[int, bool]) -> Ratings:
    """Ten candidates met the anchor, most of them losing on its lucky seeds; one further player met the candidates."""
    rng = np.random.default_rng(7)
    results = []
    for k, seeds in seeds_of.items():
        for seed in seeds:
            lost = luck[seed] if rng.random() < 0.8 else rng.random() < 0.5
            results += [played(f"snap-{k}", ANCHOR, seed, int(lost)), played(ANCHOR, f"snap-{k}", seed, int(not lost))]
        for seed in range(100_000 * (k + 1), 100_000 * (k + 1) + 40):
            results.append(played("other", f"snap-{k}", seed, int(rng.random() < 0.5)))
    return DavidsonRater().rate(results)


def test_an_anchors_seeds_that_everybody_meets_count_once() -> None:
    """What ten candidates scored on the same 50 seeds is not ten independent measurements of the anchor."""
    luck = {seed: bool(seed % 2) for seed in range(1000)}
    same = met_on({k: range(50) for k in range(10)}, luck)
    fresh = met_on({k: range(50 * k, 50 * k + 50) for k in range(10)}, luck)
    assert fresh.seed_rho == 0.0
    assert same.seed_rho == pytest.approx(0.5), "as much as is believed"
    pair, apart = (r.difference("snap-1", "snap-2") for r in (same, fresh))
    far = [r.difference("other", ANCHOR) for r in (same, fresh)]
    assert pair is not None
    assert apart is not None
    assert far[0] is not None
    assert far[1] is not None
    assert far[0].se > 1.3 * far[1].se, "who is tied to the anchor through all of them"
    assert pair.se < 0.95 * apart.se, "and they are compared on equal terms"
    assert np.linalg.eigvalsh(same.covariance).min() > -1e-6


def test_seeds_are_shared_where_one_player_met_several_on_them() -> None:
    rows = [
        played("a", "x", 1, 0), played("x", "a", 1, 2), played("b", "x", 1, 1), played("a", "b", 2, 0),
        played("c", "d", 1, 0), played("a", "x", 3, 0),
    ]
    m = count_matches(rows)
    shared = m.shared
    entries = [
        (m.players[m.first[k]], m.players[m.second[k]], games) for k, games in
        zip(shared.match, shared.games.tolist(), strict=True)
    ]
    assert entries == [("a", "x", [0, 1, 1]), ("b", "x", [1, 0, 0])]
    assert len(set(shared.seed.tolist())) == 1
