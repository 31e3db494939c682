"""The trajectory store against a naive model, and what single members say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from royale_lightning.errors import UserError
from royale_lightning.restarts.records.points import Bucket, Key, RestartPoint
from royale_lightning.restarts.records.route import Priority, Reference, Route
from royale_lightning.restarts.routes.borrowed_names import TrajectoryStore
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from royale_lightning.restarts.selection.selection import SelectionSettings
from tests.support.restarts import FROZEN, STAMP, end_of, minted, point, route

KEYS = [(0, 0, 0), (0, 0, 1), (1, 1, 1)]
#: Episodes come in handfuls, so that a short life of a store already crowds it.
EPISODES = st.lists(
    st.fixed_dictionaries({
        "cells": st.lists(st.sampled_from(KEYS), min_size=3, max_size=6), "won": st.booleans(),
        "margin": st.integers(1, 3), "mint": st.booleans(), "value": st.integers(0, 2), "seat": st.integers(0, 1),
        "opponent": st.sampled_from([FROZEN, FROZEN, "learner"]), "steps": st.sampled_from([7, 20]),
    }),
    min_size=2, max_size=6,
)
TAILS = st.lists(
    st.fixed_dictionaries({
        "cells": st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), "won": st.booleans(),
        "margin": st.integers(1, 4), "mint": st.booleans(), "value": st.integers(0, 2),
        "another_battle": st.booleans(),
    }),
    min_size=2, max_size=6,
)
CURRICULUM = CurriculumSettings(window=2, grace=0, first_steps=20)


def rated(made: Route, value: float) -> Route:
    """With a metric that priority retention compares."""
    return replace(made, segments=tuple(replace(s, metrics=(("v", value),)) for s in made.segments))


class StoreMachine(RuleBasedStateMachine):
    """Random lives of a store, next to lists and dictionaries that follow the rules literally.

    Invariants 18 to 22 of the package's README are checked on the way. The store is the one with the borrowed names,
    some of which mint later what a route lacks.
    """

    @initialize(max_per_key=st.integers(1, 3), archive_size=st.integers(1, 2), priority=st.booleans())
    def start(self, max_per_key: int, archive_size: int, priority: bool) -> None:
        self.settings = StoreSettings(
            max_per_key=max_per_key, archive_size=archive_size, retention="priority" if priority else "fifo",
            retention_metric="v" if priority else None, curriculum=CURRICULUM,
        )
        self.store = TrajectoryStore(self.settings, 1, STAMP)
        self.routes: dict[int, Route] = {}
        self.buckets: dict[Bucket, list[Reference]] = {}
        self.archive: list[int] = []
        self.episodes: dict[str, Reference] = {}
        self.next = self.asked = 0
        self.outcomes: Counter[str] = Counter()
        self.episode([(0, 0, 0), (0, 0, 1), (1, 1, 1)], True, 1, True, 0, 0, FROZEN, 20)

    # ---- the model ---------------------------------------------------------------------------------------------
    def holders(self) -> dict[int, Counter[str]]:
        out: dict[int, Counter[str]] = {}
        for refs in self.buckets.values():
            for r in refs:
                out.setdefault(r.route, Counter())["bucket"] += 1
        for i in self.archive:
            out.setdefault(i, Counter())["archive"] += 1
        for name, r in self.episodes.items():
            out.setdefault(r.route, Counter())[name] += 1
        return out

    def model_rank(self, reference: Reference) -> tuple[float, int]:
        segment = self.routes[reference.route].segments[reference.first]
        return segment.metric("v"), segment.end_step - segment.first_step

    def model_insert(self, bucket: Bucket, reference: Reference) -> str:
        held = self.buckets.setdefault(bucket, [])
        if len(held) < self.settings.max_per_key:
            held.append(reference)
            return "stored"
        if self.settings.retention == "fifo":
            held[:] = [*held[1:], reference]
            return "replaced"
        worst = min(held, key=self.model_rank)
        if self.model_rank(reference) <= self.model_rank(worst):
            return "dropped"
        held[held.index(worst)] = reference
        return "replaced"

    def model_add(self, kept: Route, new: int) -> list[str]:
        name, self.next = self.next, self.next + 1
        self.routes[name] = kept
        outcomes = []
        for i in range(len(kept.segments) - new, len(kept.segments)):
            outcomes.append(
                self.model_insert(Bucket(kept.partition, kept.segments[i].end_key), Reference(name, i, i + 1))
            )
        self.outcomes.update(outcomes)
        if kept.complete and kept.won and kept.opponent != "learner":
            rivals = [i for i in self.archive if self.routes[i].group == kept.group]
            if len(rivals) < self.settings.archive_size:
                self.archive.append(name)
            else:
                worst = max((i for i in rivals), key=lambda i: (tuple(-x for x in self.routes[i].priority), i))
                if kept.priority > self.routes[worst].priority:
                    self.archive[self.archive.index(worst)] = name
        return outcomes

    # ---- rules -------------------------------------------------------------------------------------------------
    def episode(
        self, cells: list[Key], won: bool, margin: int, mint: bool, value: int, seat: int, opponent: str, steps: int
    ) -> None:
        players = ("learner", opponent) if seat == 0 else (opponent, "learner")
        made = rated(
            route(cells, won=won, margin=margin, seat=seat, players=players, steps=steps, source=(0, self.next)), value
        )
        if mint:
            made = minted(made)
        assert self.store.add(made) == self.model_add(made, len(made.segments))

    @rule(episodes=EPISODES)
    def episodes_from_true_starts(self, episodes: list[dict[str, Any]]) -> None:
        for e in episodes:
            self.episode(**e)

    @rule(n=st.integers(1, 4))
    def begin(self, n: int) -> None:
        self.store.freeze()
        starts = [s.end for r in self.routes.values() for s in r.segments]
        for _ in range(n):
            self.asked += 1
            entry = self.store.bucket_start(0, self.asked)
            wanted = any(self.routes[r.route].segments[r.first].end for refs in self.buckets.values() for r in refs)
            assert (entry is not None) == wanted
            if entry is not None:
                self.hold(f"bucket {self.asked}", entry.reference, entry.segment.end)
            start = self.store.curriculum_start(0, self.asked)
            if start is not None:
                assert start.point in starts
                assert start.reference.route in self.archive
                self.hold(f"curriculum {self.asked}", start.reference, start.point)

    def hold(self, holder: str, reference: Reference, at: RestartPoint | None) -> None:
        seam = self.routes[reference.route].segments[reference.stop - 1]
        assert not seam.terminal, "invariant 26"
        assert (at.state_hash, at.game_step) == (seam.end_hash, seam.end_step)
        self.store.repository.retain(reference.route, holder)
        self.episodes[holder] = reference

    @precondition(lambda self: self.episodes)
    @rule(data=st.data(), tails=TAILS)
    def finish(self, data: st.DataObject, tails: list[dict[str, Any]]) -> None:
        for tail in tails[: len(self.episodes)]:
            self.tail(data.draw(st.sampled_from(sorted(self.episodes))), **tail)

    def tail(
        self, holder: str, cells: list[Key], won: bool, margin: int, another_battle: bool, value: int, mint: bool
    ) -> None:
        reference = self.episodes[holder]
        prefix = self.routes[reference.route]
        seam = prefix.segments[reference.stop - 1]
        tail = rated(route(
            [seam.end_key, *cells], first=seam.end_step, won=won, margin=margin, seat=prefix.seat,
            players=prefix.players, source=(0, self.next), first_hash=seam.end_hash + another_battle,
        ), value)
        if mint:
            tail = minted(tail)
        joined = prefix.complete and not another_battle
        segments = prefix.segments[: reference.stop] + tail.segments
        kept = replace(tail, complete=True, segments=segments) if joined else tail
        assert self.store.add(tail, reference) == self.model_add(kept, len(tail.segments))
        self.store.repository.release(reference.route, holder)
        del self.episodes[holder]
        with pytest.raises(KeyError):
            self.store.repository.release(reference.route, holder)

    @precondition(lambda self: self.archive)
    @rule(data=st.data(), lucky=st.booleans())
    def judge(self, data: st.DataObject, lucky: bool) -> None:
        name = data.draw(st.sampled_from(self.archive))
        self.store.judge_route(name, lucky, {20: 0.5}, contested_step=20)
        if lucky:
            self.archive.remove(name)
            with pytest.raises(KeyError):
                self.store.judge_route(name, lucky)
        else:
            self.routes[name] = replace(self.routes[name], checked=True)

    @precondition(lambda self: self.routes)
    @rule(data=st.data())
    def mint(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(range(self.next + 1)))
        if name not in self.routes:
            assert not self.store.set_frame_stacks(name, {})
            return
        made = minted(self.routes[name])
        assert self.store.set_frame_stacks(name, {i: s.end for i, s in enumerate(made.segments) if s.end})
        self.routes[name] = made
        assert name not in self.store.paths_needing_frame_stacks(99)

    @rule(data=st.data())
    def reload(self, data: st.DataObject) -> None:
        going_on = data.draw(st.sets(st.sampled_from(sorted(self.episodes)))) if self.episodes else set()
        state = msgspec.msgpack.encode(self.store.state())
        before = self.store.diagnostics()
        self.store = TrajectoryStore(self.settings, 1, STAMP)
        self.store.load(msgspec.msgpack.decode(state), going_on)
        if going_on == set(self.episodes):
            assert msgspec.msgpack.encode(self.store.state()) == state
            assert self.store.diagnostics() == before
        self.episodes = {name: r for name, r in self.episodes.items() if name in going_on}

    # ---- what holds always -------------------------------------------------------------------------------------
    @invariant()
    def as_the_model_says(self) -> None:
        holders = self.holders()
        self.routes = {i: r for i, r in self.routes.items() if i in holders}
        assert {i: self.store.repository.holds(i) for i in self.store.repository.ids} == holders
        assert {b: [e.reference for e in held] for b, held in self.store.buckets.view().items()} == self.buckets
        assert self.store.archive.ids == sorted(self.archive)
        assert self.store.outcomes == self.outcomes
        assert len(self.store.buckets) == len(self.buckets)

    @invariant()
    def every_held_reference_materialises(self) -> None:
        for name, kept in self.routes.items():
            assert self.store.repository.get(name).segments == kept.segments
        for bucket, held in self.store.buckets.view().items():
            for reference, segment in held:
                assert segment == self.routes[reference.route].segments[reference.first]
                assert segment.end_key == bucket.key
                assert self.store.materialize_prefix_segments(reference)[-1] == segment

    @invariant()
    def archived_routes_begin_with_their_battle_and_win_it(self) -> None:
        for i in self.store.archive.ids:
            kept = self.store.repository.get(i)
            assert (kept.complete, kept.won, kept.first_step) == (True, True, 0)
            assert kept.opponent != "learner"

    @invariant()
    def bytes_are_shared(self) -> None:
        told = self.store.occupancy()
        ends = [s.end for r in self.routes.values() for s in r.segments if s.end is not None]
        assert told["bytes"] == sum({e.blob: len(e.payload) for e in ends}.values())
        assert told["referenced_bytes"] == sum(len(e.payload) for e in ends) >= told["bytes"]
        assert told["orphaned"] == len(set(self.routes) - set(self.archive) - {
            r.route for refs in self.buckets.values() for r in refs
        })

    def teardown(self) -> None:
        """Invariant 18: when everybody has let go nothing is left."""
        if not hasattr(self, "store"):
            return
        for name, reference in self.episodes.items():
            self.store.repository.release(reference.route, name)
        for name in self.archive:
            self.store.judge_route(name, lucky=True)
        store, repository = self.store, self.store.repository
        for refs in self.buckets.values():
            for r in refs:
                store.repository.release(r.route, "bucket")
        assert repository.ids == []
        assert repository.diagnostics([])["bytes"] == 0


StoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestStore = StoreMachine.TestCase


# ---- single members ----------------------------------------------------------------------------------------------
PATH = [(0, 0, 0), (0, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 2)]


def store(**changed: Any) -> RouteStore:
    return RouteStore(StoreSettings(**{"curriculum": CURRICULUM, **changed}), 1, STAMP)


def judged(made: RouteStore, *routes: Route) -> RouteStore:
    for r in routes:
        made.add(r)
    for i in made.archive.ids:
        made.judge_route(i, lucky=False)
    made.freeze()
    return made


def test_no_amount_of_bucket_turnover_loses_an_archived_route() -> None:
    """Invariant 20."""
    made = store(max_per_key=1)
    made.add(minted(route(PATH, margin=3)))
    for i in range(60):
        made.add(minted(route(PATH, won=False, source=(0, i))))
    best = made.repository[made.archive.best]
    assert best.priority.crown_margin == 3
    assert [s.end for s in best.segments[:-1]] == [end_of(route(PATH), i) for i in range(3)]
    assert made.best_priority == Priority(0, 1, 3, 0.5, -800)
    assert made.archive.priorities == {0: made.best_priority}
    assert len(made.archive) == 1
    assert made.diagnostics()["best/crown_margin"] == 3
    assert len(made.repository.get(0).segments) == 4


def test_an_empty_store_starts_nothing() -> None:
    made = store()
    assert made.best_priority is None
    assert (made.bucket_start(0, 0), made.curriculum_start(0, 0)) == (None, None)
    made.freeze()
    assert (made.bucket_start(0, 0), made.curriculum_start(0, 0)) == (None, None)


def test_a_displaced_route_leaves_its_distance_to_its_successor() -> None:
    made = judged(store(archive_size=1), minted(route(PATH)))
    made.curriculum.front(0).move(0)
    assert made.curriculum.front(0).rungs[0].steps_left == 60
    made.add(minted(route(PATH * 2, margin=2)))
    made.judge_route(1, lucky=False)
    front = made.curriculum.front(1)
    assert made.curriculum.front(0) is None
    assert front.rungs[front.index].steps_left == 60


def test_only_judged_routes_lead_and_a_measured_beginning_is_kept() -> None:
    made = store()
    made.add(minted(route(PATH)))
    made.freeze()
    assert made.put_fronts() == []
    made.judge_route(0, lucky=False, reference_rates={40: 0.75}, contested_step=40)
    assert made.put_fronts() == [0]
    front = made.curriculum.front(0)
    assert front.rungs[front.index] == (40, 40, 0.75)
    with pytest.raises(KeyError, match="not archived"):
        made.judge_route(7, lucky=False)


def test_a_route_whose_opponent_is_gone_sleeps() -> None:
    made = judged(store(), minted(route(PATH)))
    assert made.curriculum_start(0, 0) is not None
    made.freeze(playable=["snapshot-2"])
    assert made.curriculum_start(0, 0) is None
    made.freeze(playable=[FROZEN])
    assert made.curriculum_start(0, 0) is not None


def test_a_curriculum_start_names_its_vote_its_prefix_and_its_state() -> None:
    made = judged(store(), minted(route(PATH)))
    for ordinal in range(50):
        start = made.curriculum_start(0, ordinal)
        assert start == made.curriculum_start(0, ordinal)
        stop = start.reference.stop
        assert start.point == end_of(route(PATH), stop - 1)
        assert start.vote.rung == stop - 1
    bare = judged(store(), route(PATH))
    assert bare.curriculum_start(0, 0) is None, "nothing is minted"
    assert bare.start_coverage() == (0, 3)
    assert made.start_coverage() == (3, 3)


def test_a_rung_a_game_step() -> None:
    made = judged(store(curriculum=replace(CURRICULUM, decision_granular=True)), minted(route(PATH)))
    assert made.route_to_mint() == 0
    assert made.start_coverage() == (0, 0)
    states: dict[int, RestartPoint] = {t: point(t, game_step=t) for t in range(1, 81)}
    assert not made.set_decisions(5, states)
    with pytest.raises(ValueError, match="another game step"):
        made.set_decisions(0, {3: states[4]})
    assert made.set_decisions(0, states)
    assert made.decision_coverage() == (79, 79), "the end is none"
    assert made.route_to_mint() is None
    starts = [made.curriculum_start(0, o) for o in range(60)]
    assert all(s.point.game_step == s.vote.rung + 1 < 80 for s in starts)
    inside = [s for s in starts if s.point.game_step % 20]
    assert inside, "most steps lie inside a segment"
    assert all(s.reference.stop == 0 for s in inside), "and cannot be stitched"
    data = msgspec.msgpack.encode(made.state())
    copy = store(curriculum=replace(CURRICULUM, decision_granular=True))
    copy.load(msgspec.msgpack.decode(data))
    copy.freeze()
    assert [copy.curriculum_start(0, o) for o in range(60)] == starts


def test_the_statistics_hear_of_whole_routes() -> None:
    made = store()
    made.add(minted(route(PATH[:4], won=False)))
    made.add(
        route([PATH[2], PATH[0], PATH[4]], first=40, first_hash=1040, source=(0, 1)), Reference(0, 0, 2)
    )
    seen, (a, b, c) = made.statistics, (Bucket("starter", k) for k in PATH[:3])
    assert seen.successors(a) == {b: 2, Bucket("starter", PATH[4]): 1}
    assert seen.successors(b) == {c: 2}
    assert seen.route_value(a) == pytest.approx(0.98**1)
    assert seen.route_cost(b) == 800
    assert seen.visits(b) == 1, "the prefix is no new segment"


def test_a_resume_with_a_smaller_archive_lets_go() -> None:
    """Invariant 19, when settings changed: holds, fronts and rungs of what does not fit any more are gone."""
    made = judged(store(archive_size=3, max_per_key=3), *[minted(route(PATH, margin=m)) for m in (1, 2, 3)])
    data = msgspec.msgpack.encode(made.state())
    small = store(archive_size=1, max_per_key=1)
    small.load(msgspec.msgpack.decode(data))
    assert small.archive.ids == small.curriculum.route_ids == [2]
    told = small.occupancy()
    assert (told["routes"], told["holds"], told["orphaned"]) == (1, 5, 0)


def test_foreign_states_are_refused() -> None:
    made = store()
    foreign = replace(STAMP, cards="another")
    bad = minted(route(PATH))
    bad = replace(bad, segments=(replace(bad.segments[0], end=replace(bad.segments[0].end, stamp=foreign)),
                                 *bad.segments[1:]))
    with pytest.raises(ValueError, match="another game"):
        made.add(bad)
    made.add(minted(route(PATH)))
    with pytest.raises(UserError, match="another game"):
        RouteStore(StoreSettings(), 1, foreign).load(made.state())
    with pytest.raises(UserError, match="no repository"):
        made.load({})


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"max_per_key": 0}, "max_per_key 0"), ({"retention": "best"}, "retention is 'best'"),
        ({"retention": "priority"}, "name the metric"), ({"retention_metric": "v"}, "only then"),
        ({"archive_size": 0, "curriculum": CURRICULUM}, "archive_size is 0"),
    ],
)
def test_bad_settings(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        StoreSettings(**bad)


def test_start_selection_filters_by_a_minimum() -> None:
    made = store(start=SelectionSettings(metric="v", minimum=2.0))
    for i, value in enumerate((1.0, 4.0)):
        made.add(rated(minted(route(PATH, source=(0, i))), value))
    made.freeze()
    assert {made.bucket_start(0, o).reference.route for o in range(40)} == {1}
