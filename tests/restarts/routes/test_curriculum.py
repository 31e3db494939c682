"""Fronts: where starts are drawn, whose results vote, and when a front moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from royale_lightning.errors import UserError
from royale_lightning.restarts.records.route import Rung
from royale_lightning.restarts.routes.curriculum import (
    MODES,
    BackwardCurriculum,
    CurriculumSettings,
    Front,
    Vote,
    rung_at,
)

SMALL: dict[str, Any] = {"window": 4, "grace": 0, "patience": 6, "step": 10, "first_steps": 20, "band": 10}


def rungs(*steps: int, rate: float | None = None) -> tuple[Rung, ...]:
    return tuple(Rung(s, steps[-1] - s, rate) for s in steps)


TEN = rungs(*range(10, 101, 10))


def curriculum(route: tuple[Rung, ...] = TEN, **changed: Any) -> BackwardCurriculum:
    """With one route, number 0, whose front has 20 game steps left."""
    made = BackwardCurriculum(CurriculumSettings(**{**SMALL, **changed}), 1)
    assert made.register(0, route, "starter/0", "snapshot-1", 2)
    made.freeze(lambda name: True)
    return made


def front_of(made: BackwardCurriculum) -> Front:
    front = made.front(0)
    assert front is not None
    return front


def vote(made: BackwardCurriculum, results: list[bool], margin: int = 2) -> Front:
    """Votes of the front itself, in order."""
    front = front_of(made)
    for won in results:
        assert made.vote(Vote(0, front.generation, front.index), won, margin)
    return front


class CurriculumMachine(RuleBasedStateMachine):
    """Random lives of several fronts: invariants 24, 25 and 26 of the package's README, at every step."""

    @initialize(mode=st.sampled_from(MODES), window=st.integers(1, 4), grace=st.integers(0, 5),
                step=st.sampled_from([1, 10, 25]), retreats=st.integers(1, 2))
    def start(self, mode: str, window: int, grace: int, step: int, retreats: int) -> None:
        self.settings = CurriculumSettings(
            mode=mode, window=window, grace=grace, patience=3, step=step, first_steps=20, band=20,
            most_retreats=retreats, retreat_rate=0.0,
        )
        self.made = BackwardCurriculum(self.settings, 1)
        self.spent: set[Vote] = set()
        for route in (0, 1):
            self.register(route, [10] * 8, None)

    @rule(route=st.integers(0, 2), gaps=st.lists(st.integers(1, 30), min_size=2, max_size=12),
          left=st.sampled_from([None, 1, 30, 500]))
    def register(self, route: int, gaps: list[int], left: int | None) -> None:
        steps = [sum(gaps[: i + 1]) for i in range(len(gaps))]
        known = self.made.front(route)
        was = None if known is None or known.index < 0 else known.rungs[known.index].steps_left
        assume(known is None or len(steps) > 2)
        before = None if known is None else known.generation
        new = rungs(*steps)
        changed = known is not None and new != known.rungs
        has = self.made.register(route, new, "g", f"snapshot-{route}", 1, steps_left=left)
        assert has == (known is not None or len(steps) > 2), "a route with nothing to walk has no front"
        if known is not None and changed:
            assert known.generation == before + 1
            assert not known.votes
            assert known.index == (-1 if was is None else rung_at(known.rungs, was)), "the distance to the end stays"

    @rule(route=st.integers(0, 2))
    def withdraw(self, route: int) -> None:
        front = self.made.front(route)
        left = None if front is None or front.index < 0 else front.rungs[front.index].steps_left
        assert self.made.withdraw(route) == left

    @rule(awake=st.sets(st.sampled_from(["snapshot-0", "snapshot-1", "snapshot-2"])))
    def freeze(self, awake: set[str]) -> None:
        self.made.freeze(lambda name: name in awake)
        drawn = [v for o in range(20) if (v := self.made.choose(0, o)) is not None]
        walking = [i for i in self.made.route_ids if self.made.front(i).index >= 0 and f"snapshot-{i}" in awake]
        assert bool(drawn) == bool(walking)
        for v in drawn:
            front = self.made.front(v.route)
            assert v.route in walking
            assert 0 <= v.rung <= front.last, "the end is never served"
            assert v.generation == front.generation

    @precondition(lambda self: self.made.route_ids)
    @rule(data=st.data(), wins=st.lists(st.booleans(), min_size=6, max_size=16), all_equal=st.booleans(),
          margin=st.integers(0, 2), by=st.sampled_from(["learner", "learner", "learner", "explorer", "elsewhere"]))
    def play(self, data: st.DataObject, wins: list[bool], all_equal: bool, margin: int, by: str) -> None:
        route = data.draw(st.sampled_from(self.made.route_ids))
        front = self.made.front(route)
        for i, each in enumerate(wins):
            won = wins[0] if all_equal else each
            band = self.made.credit_band(front)
            assert band == [] or band[-1] == front.index
            if by != "elsewhere" and not band:
                return
            outside = [r for r in range(-1, len(front.rungs)) if r not in band]
            rung = outside[i % len(outside)] if by == "elsewhere" else band[i % len(band)]
            cast = Vote(route, front.generation, rung)
            place = (front.index, front.generation, list(front.votes), front.seen, front.stalled)
            assert self.made.vote(cast, won, margin, by != "explorer") == (by == "learner")
            if by != "learner":
                assert place == (front.index, front.generation, list(front.votes), front.seen, front.stalled)
                continue
            self.check_move(front, *place)
            if front.generation != place[1]:
                self.spent.add(cast)

    def check_move(
        self, front: Front, index: int, generation: int, votes: list[bool], seen: int, stalled: bool
    ) -> None:
        moved = front.index != index
        assert front.generation == generation or front.seen == 0
        if front.generation == generation:
            assert not moved
            return
        assert len(votes) + 1 >= self.settings.window, "nothing is judged from a part of a window"
        assert self.settings.mode != "plateau" or seen + 1 >= self.settings.grace
        if not moved:
            assert index == front.last, "there is nothing easier to retreat to"
            return
        at = [r.game_step for r in front.rungs]
        was, now = at[index], at[front.index] if front.index >= 0 else 0
        if now < was:
            assert not stalled, "a stalled front never advances"
        between = at[front.index + 1 : index] if now < was else at[index + 1 : front.index]
        assert all(abs(x - was) < self.settings.step for x in between), "no rung is passed over beyond one step"

    @rule()
    def votes_of_a_front_that_moved_change_nothing(self) -> None:
        for cast in self.spent:
            front = self.made.front(cast.route)
            if front is not None and front.generation > cast.generation:
                before = self.made.state()["fronts"]
                assert not self.made.vote(cast, True, 9)
                assert self.made.state()["fronts"] == before
        assert not self.made.vote(Vote(9, 0, 0), True, 9)

    @rule()
    def reload(self) -> None:
        data = msgspec.msgpack.encode(self.made.state())
        fresh = BackwardCurriculum(self.settings, 1)
        fresh.load(msgspec.msgpack.decode(data))
        assert msgspec.msgpack.encode(fresh.state()) == data
        self.made = fresh

    @invariant()
    def fronts_stand_on_their_routes(self) -> None:
        for i in self.made.route_ids:
            front = self.made.front(i)
            assert -1 <= front.index <= len(front.rungs) - 2
            assert len(front.votes) <= self.settings.window
            if front.index >= 0:
                weights = self.made.rung_weights(front)
                assert sum(weights) == pytest.approx(1.0)
                assert weights[-1] == 0.0
                assert min(weights) >= 0.0
                assert weights[front.index] > 0.0


CurriculumMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCurriculum = CurriculumMachine.TestCase


def test_a_front_walks_to_the_beginning_and_retires() -> None:
    made = curriculum()
    path = [front_of(made).index]
    while front_of(made).index >= 0:
        vote(made, [True] * 4)
        path.append(front_of(made).index)
    assert path == [7, 6, 5, 4, 3, 2, 1, 0, -1]
    made.freeze(lambda name: True)
    assert made.choose(0, 0) is None
    assert made.diagnostics()["retired"] == 1
    assert not made.vote(Vote(0, front_of(made).generation, -1), True, 2)


@pytest.mark.parametrize(
    ("wins", "reference", "moves"),
    [(50, None, True), (20, None, True), (14, None, False), (45, 0.9, True), (40, 0.9, False)],
)
def test_the_lower_confidence_bound_must_pass_the_bar(wins: int, reference: float | None, moves: bool) -> None:
    """40 of 50 is 0.8, above the bar of 0.8 x 0.9, but its 95 % bound is 0.69; 14 of 50 is bounded by 0.19."""
    made = curriculum(rungs(*range(10, 101, 10), rate=reference), window=50, patience=1000)
    before = front_of(made).index
    front = vote(made, [i < wins for i in range(49, -1, -1)])
    assert (front.index < before) == moves


def test_a_plateau_above_the_bar_moves_on_and_below_it_stalls() -> None:
    """0.5 a window of 4 has a bound of 0.18, never above 0.2: only patience ends the wait."""
    made = curriculum()
    front = vote(made, [True, False] * 5)
    assert (front.index, front.stalled) == (6, False)
    made = curriculum(minimum_rate=0.6)
    front = vote(made, [True, False] * 5)
    assert (front.index, front.stalled) == (7, True)
    assert vote(made, [True] * 50).index == 7, "a stalled front never advances"
    assert vote(made, [False] * 4).index == 8, "but it may retreat"
    assert made.diagnostics()["stalls"] == 1


def test_failure_waits_out_its_grace_and_then_retreats() -> None:
    made = curriculum(grace=10, most_retreats=2)
    assert vote(made, [False] * 9).index == 7
    assert vote(made, [False]).index == 8
    assert vote(made, [True] * 10).index == 7
    front = vote(made, [False] * 10)
    assert (front.index, front.stalled) == (8, True), "the second retreat from one place ends in a stall"
    assert vote(made, [True] * 20).index == 8


def test_salimans_and_chen_tie_the_route_in_a_band_on_the_harder_side() -> None:
    made = curriculum(mode="salimans_chen", minimum_rate=0.5, retreat_rate=0.0)
    front = front_of(made)
    assert made.credit_band(front) == [6, 7]
    for rung, won, margin in ((6, True, 2), (7, True, 1), (6, False, 5), (7, True, 3)):
        assert made.vote(Vote(0, 0, rung), won, margin)
    assert front.index == 6, "two of four won by the route's own margin of 2"
    assert made.vote(Vote(0, 1, 8), True, 2) is False, "rehearsals do not vote"


def test_starts_are_drawn_at_the_front_and_easier() -> None:
    """Half at the front, 15 % over all easier rungs, the rest halving from rung to rung (RFCL's offsets)."""
    made = curriculum(first_steps=50)
    front = front_of(made)
    assert front.index == 4
    weights = made.rung_weights(front)
    spread = 0.35 / (1 - 0.5**4)
    assert weights == pytest.approx([0] * 4 + [0.5] + [0.15 / 4 + spread * 0.5**k for k in (1, 2, 3, 4)] + [0])
    drawn = Counter(v.rung for o in range(4000) if (v := made.choose(0, o)))
    assert all(drawn[i] / 4000 == pytest.approx(w, abs=0.03) for i, w in enumerate(weights))


def test_routes_are_drawn_by_what_remains() -> None:
    made = curriculum()
    made.register(1, rungs(*range(10, 301, 10)), "g", "snapshot-1", 1)
    made.freeze(lambda name: True)
    assert [front.remaining for front in (made.front(0), made.front(1))] == [80, 280]
    drawn = Counter(v.route for o in range(4000) if (v := made.choose(0, o)))
    assert drawn[0] / 4000 == pytest.approx(80 / 360, abs=0.03)


def test_a_successor_begins_at_its_predecessors_distance() -> None:
    made = curriculum()
    vote(made, [True] * 8)
    assert made.withdraw(0) == 40
    assert made.register(1, rungs(*range(7, 200, 7)), "g", "snapshot-1", 1, steps_left=40)
    front = made.front(1)
    assert front.rungs[front.index].steps_left == 42, "the latest rung with at least as much to play"


def test_a_vote_from_before_a_move_is_stale_even_where_the_front_stands_again() -> None:
    made = curriculum()
    old = Vote(0, 0, 7)
    vote(made, [False] * 4)
    vote(made, [True] * 4)
    assert front_of(made).index == 7
    assert not made.vote(old, True, 2)
    assert not front_of(made).votes


def test_only_full_windows_tell_a_rate() -> None:
    made = curriculum(grace=100)
    vote(made, [True, False, True])
    assert "rate" not in made.diagnostics()
    vote(made, [True])
    assert made.diagnostics()["rate"] == 0.75


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"mode": "hard"}, "mode is 'hard'"), ({"window": 0}, "window is 0"), ({"step": 0}, "step is 0"),
        ({"minimum_rate": 1.5}, "minimum_rate is 1.5"), ({"front_share": 0.0}, "front_share 0.0"),
        ({"front_share": 0.9, "rehearsal_share": 0.2}, "together"),
    ],
)
def test_bad_settings(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        CurriculumSettings(**bad)
