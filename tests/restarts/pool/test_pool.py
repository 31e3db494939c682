"""The restart pool against a naive model, and what single rules say."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from royale_lightning.errors import UserError
from royale_lightning.restarts.pool.bucket_results import SELECTIONS, BucketResults
from royale_lightning.restarts.pool.pool import REJECTIONS, PoolSettings, RestartPool
from royale_lightning.restarts.records import points as s
from royale_lightning.restarts.records.key import advantage_rank
from royale_lightning.restarts.records.points import Bucket
from tests.support.restarts import FROZEN, STAMP, point

KEYS = [(0, 0, 0), (1, 0, 1), (1, 1, 2), (2, -1, -2)]
PLAYERS = ("learner", FROZEN)
MIRROR = ("learner", "learner")
OTHERS = ("learner", "scripted:idle")
RANKS = [None, (0, 0), (1, 1), (2, 2)]
NOTHING = [*s.TIMEOUTS, s.DEAD_START, "abandoned", "cut", "foreign_hands"]


def result(battle: int, ordinal: int, score: float | None = 1.0, **changed: Any) -> s.EpisodeResult:
    given: dict[str, Any] = {
        "round": 0, "battle": battle, "ordinal": ordinal, "players": PLAYERS, "seat": 0, "score": score,
        "game_steps": 100,
    }
    return s.EpisodeResult(**{**given, **changed})


class PoolMachine(RuleBasedStateMachine):
    """Random lives of a pool, next to lists and dictionaries that follow the rules literally.

    Invariants 1 to 11 and 13 of the package's README are checked on the way.
    """

    @initialize(
        max_per_key=st.integers(1, 3), max_strikes=st.integers(1, 2), max_uses=st.integers(2, 9),
        selection=st.sampled_from(SELECTIONS),
    )
    def start(self, max_per_key: int, max_strikes: int, max_uses: int, selection: str) -> None:
        self.settings = PoolSettings(
            max_per_key=max_per_key, max_strikes=max_strikes, max_uses=max_uses, max_age=6, window=4,
            selection=selection, maximum_values={"phase": 1}, per_battle=2,
        )
        self.pool = RestartPool(self.settings, 1, STAMP)
        self.rings: dict[Bucket, list[dict[str, Any]]] = {}
        self.flights: dict[tuple[int, int], dict[str, Any]] = {}
        self.windows: dict[Bucket, list[tuple[bool, float, bool]]] = {}
        self.counts: Counter[str] = Counter()
        self.made = self.version = self.begun = 0
        self.frozen: set[str] = set()
        self.harvest(KEYS, 1, False)
        self.freeze()

    def model_store(self, p: s.RestartPoint) -> None:
        ring = self.rings.setdefault(Bucket(p.partition, p.key), [])
        ring.append({"point": p, "uses": 0, "strikes": 0})
        if len(ring) > self.settings.max_per_key:
            ring.pop(0)
            self.counts["displaced"] += 1

    def model_find(self, bucket: Bucket, name: str) -> dict[str, Any] | None:
        return next((e for e in self.rings.get(bucket, []) if e["point"].id == name), None)

    def model_drop(self, bucket: Bucket, entry: dict[str, Any], why: str) -> None:
        self.rings[bucket] = [e for e in self.rings[bucket] if e is not entry]
        if not self.rings[bucket]:
            del self.rings[bucket]
        self.counts[why] += 1

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4), memories=st.integers(0, 3), same_bytes=st.booleans())
    def harvest(self, keys: list[s.Key], memories: int, same_bytes: bool) -> None:
        blind = memories == 0
        points = []
        for key in keys:
            self.made += 1
            p = point(self.made, key, remembered=(not blind, True), policy_version=self.version)
            points.append(replace(p, payload=b"equal", blob="") if same_bytes else p)
        stored: Counter[s.Key] = Counter()
        for p in points:
            self.counts["offered"] += 1
            if blind:
                self.counts["blind"] += 1
            elif p.key[0] > 1:
                self.counts["bounds"] += 1
            elif stored[p.key] == 2:
                self.counts["crowded"] += 1
            else:
                stored[p.key] += 1
                self.counts["stored"] += 1
                self.model_store(p)
        assert self.pool.record_episode(result(99, self.made), points) == stored.total()

    @rule()
    def offer_again(self) -> None:
        held = self.pool.export_points()[:1]
        assert self.pool.record_episode(result(98, 0), held) == 0
        self.counts["offered"] += len(held)
        self.counts["duplicate"] += len(held)

    @rule()
    def freeze(self) -> None:
        self.version += 1
        self.pool.freeze(self.version)
        for bucket in list(self.rings):
            for entry in list(self.rings[bucket]):
                if entry["uses"] >= self.settings.max_uses:
                    self.model_drop(bucket, entry, "worn")
                elif self.version - entry["point"].policy_version > 6:
                    self.model_drop(bucket, entry, "aged")
        self.frozen = {e["point"].id for ring in self.rings.values() for e in ring}

    @rule(tables=st.lists(st.sampled_from([PLAYERS, PLAYERS, MIRROR, OTHERS]), min_size=4, max_size=8))
    def begin(self, tables: list[tuple[str, str]]) -> None:
        for players in tables:
            at = (self.begun % 5, self.begun)
            self.begun += 1
            chosen = self.pool.choose(*at)
            assert chosen == self.pool.choose(*at), "a choice changes nothing"
            if not self.frozen:
                assert chosen is None
                continue
            assert chosen is not None
            assert chosen.id in self.frozen
            bucket = Bucket(chosen.partition, chosen.key)
            entry = self.model_find(bucket, chosen.id)
            if entry is None:  # gone since the tables were frozen, which no iteration does
                with pytest.raises(KeyError):
                    self.pool.serve(*at, chosen.id, players)
                continue
            self.pool.serve(*at, chosen.id, players)
            self.flights[at] = {"point": chosen, "bucket": bucket, "steers": players == PLAYERS}
            self.counts["restarts"] += 1
            entry["uses"] += 1

    def land(self, data: st.DataObject) -> tuple[tuple[int, int], dict[str, Any]]:
        at = data.draw(st.sampled_from(sorted(self.flights)))
        return at, self.flights.pop(at)

    @rule(
        data=st.data(),
        ends=st.lists(
            st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(RANKS)), min_size=2, max_size=6
        ),
    )
    def finish(self, data: st.DataObject, ends: list[tuple[float, s.Rank | None]]) -> None:
        for score, rank in ends[: len(self.flights)]:
            at, flight = self.land(data)
            self.pool.record_episode(result(*at, score, best_rank=rank, value_error=0.1))
            advanced = score == 1.0 or (rank is not None and rank > flight["point"].rank)
            self.windows.setdefault(flight["bucket"], []).append((advanced, score, flight["steers"]))
            self.counts["scored"] += 1

    @rule(data=st.data(), kinds=st.lists(st.sampled_from(NOTHING), min_size=4, max_size=8))
    def come_to_nothing(self, data: st.DataObject, kinds: list[str]) -> None:
        for kind in kinds[: len(self.flights)]:
            at, flight = self.land(data)
            if kind == "abandoned":
                self.pool.abandon(*at)
            elif kind == "cut":
                self.pool.record_episode(result(*at, None))
            elif kind == "foreign_hands":
                self.pool.record_episode(result(*at, 1.0, players=("snapshot-2", FROZEN)))
            else:
                self.pool.record_timeout(*at, kind)
            self.counts[{"cut": "capped", "foreign_hands": "abandoned"}.get(kind, kind)] += 1
            entry = self.model_find(flight["bucket"], flight["point"].id)
            if entry is None:
                continue
            entry["strikes"] += kind == s.DEAD_START
            if kind in (s.REFUSED, s.CRASHED) or entry["strikes"] == self.settings.max_strikes:
                self.model_drop(flight["bucket"], entry, "evicted")

    @rule(at=st.tuples(st.integers(0, 4), st.integers(1000, 1010)), kind=st.sampled_from(s.TIMEOUTS))
    def unknown_results_change_nothing(self, at: tuple[int, int], kind: str) -> None:
        before = self.pool.state()
        self.pool.record_timeout(*at, kind)
        self.pool.abandon(*at)
        assert self.pool.record_episode(result(*at)) == 0
        assert self.pool.state() == before

    @rule(newest=st.integers(0, 2))
    def export_and_import(self, newest: int) -> None:
        points = self.pool.export_points(newest)
        other = RestartPool(self.settings, 1, STAMP)
        assert other.import_points(points) == len(points)
        expected = [e["point"] for b in sorted(self.rings) for e in self.rings[b][-newest:]]
        assert other.export_points() == points == expected
        foreign = RestartPool(self.settings, 1, replace(STAMP, cards="another"))
        assert foreign.import_points(points) == 0
        assert foreign.diagnostics()["foreign"] == len(points)
        assert foreign.diagnostics()["points"] == 0

    @rule()
    def reload(self) -> None:
        """A checkpoint later, everything goes on as it would have."""
        data = msgspec.msgpack.decode(msgspec.msgpack.encode(self.pool.state()))
        fresh = RestartPool(self.settings, 1, STAMP)
        fresh.load(data)
        assert msgspec.msgpack.encode(fresh.state()) == msgspec.msgpack.encode(self.pool.state())
        assert fresh.diagnostics() == self.pool.diagnostics()
        self.pool = fresh
        self.freeze()

    @invariant()
    def as_the_model_says(self) -> None:
        told = self.pool.diagnostics()
        assert self.pool.export_points() == [e["point"] for b in sorted(self.rings) for e in self.rings[b]]
        assert all(0 < len(ring) <= self.settings.max_per_key for ring in self.rings.values())
        assert told["points"] == sum(map(len, self.rings.values()))
        assert {n: told[n] for n in told if n in self.counts} == dict(self.counts)
        assert self.pool.in_flight == sorted(self.flights)
        # Books: what came in is here or was let go for a reason; what was begun ended in one way or is awaited.
        gone = sum(told[n] for n in ("displaced", "worn", "aged", "evicted"))
        assert told["stored"] + told["imported"] == told["points"] + gone
        assert told["offered"] == told["stored"] + sum(told[n] for n in REJECTIONS)
        ended = sum(told[n] for n in ("scored", *s.TIMEOUTS, "abandoned"))
        assert told["restarts"] == ended + told["in_flight"]
        assert told["bytes"] == sum({e["point"].blob: len(e["point"].payload) for r in self.rings.values()
                                     for e in r}.values())

    @invariant()
    def windows_hold_what_their_starts_brought(self) -> None:
        rates = {r.bucket: r for r in self.pool.advance_rates()}
        assert sorted(rates) == sorted(self.windows) == list(rates)
        for bucket, window in self.windows.items():
            advances = [a for a, _, _ in window][-4:]
            steering = [score for _, score, steers in window if steers][-4:]
            assert rates[bucket].results == len(advances)
            assert rates[bucket].rate == pytest.approx(sum(advances) / len(advances))
            assert rates[bucket].score == (pytest.approx(sum(steering) / len(steering)) if steering else None)

    @invariant()
    def every_bucket_can_be_drawn(self) -> None:
        weights = self.pool.selection_weights()
        assert [w.bucket for w in weights] == sorted(self.rings)
        assert all(w.share > 0.0 and 0.1 <= w.weight <= 1.0 for w in weights)
        assert not weights or sum(w.share for w in weights) == pytest.approx(1.0)


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase


def filled(n: int, **changed: Any) -> RestartPool:
    pool = RestartPool(PoolSettings(**{"per_battle": 99, **changed}), 1, STAMP)
    pool.record_episode(result(0, 0), [point(i, KEYS[i % len(KEYS)]) for i in range(n)])
    pool.freeze(0)
    return pool


def test_choices_are_addressed_and_not_queued() -> None:
    """Whatever else was asked, episode (b, o) begins from the same point; harvests wait for the next iteration."""
    a, b = filled(12), filled(12)
    order = [(x, y) for x in range(6) for y in range(6)]
    first = {at: a.choose(*at) for at in order}
    b.record_episode(result(1, 1), [point(50 + i, KEYS[0]) for i in range(8)])
    assert {at: b.choose(*at) for at in reversed(order)} == first
    assert len({p.id for p in first.values() if p}) > 6


def test_shares_are_what_is_drawn() -> None:
    pool = filled(16)
    drawn = Counter(p.key for o in range(4000) if (p := pool.choose(0, o)))
    for w in pool.selection_weights():
        assert drawn[w.bucket.key] / 4000 == pytest.approx(w.share, abs=0.03)


def test_a_group_is_not_crowded_out() -> None:
    """One deck with many cells gets no more practice than another with one."""
    pool = RestartPool(PoolSettings(), 1, STAMP)
    pool.record_episode(result(0, 0), [point(i, key) for i, key in enumerate(KEYS)])
    pool.record_episode(result(0, 1), [point(9, KEYS[0], partition="hog")])
    share = {w.bucket: w.share for w in pool.selection_weights()}
    assert share[Bucket("hog", KEYS[0])] == pytest.approx(0.5)
    assert sum(v for b, v in share.items() if b.partition == "starter") == pytest.approx(0.5)


def test_losses_never_evict_and_strikes_hit_one_of_two_equal_states() -> None:
    pool = RestartPool(PoolSettings(max_strikes=2), 1, STAMP)
    twins = [replace(point(i), payload=b"equal", blob="") for i in (1, 2)]
    pool.record_episode(result(0, 0), twins)
    assert pool.diagnostics()["bytes"] == 5
    assert pool.diagnostics()["referenced_bytes"] == 10
    for ordinal in range(30):
        pool.serve(0, ordinal, twins[0].id, PLAYERS)
        pool.record_episode(result(0, ordinal, 0.0))
    assert pool.export_points() == twins
    for ordinal in (30, 31):
        pool.serve(0, ordinal, twins[0].id, PLAYERS)
        pool.record_timeout(0, ordinal, s.DEAD_START)
    assert pool.export_points() == twins[1:]
    assert pool.diagnostics()["bytes"] == 5


def test_equal_rank_is_no_advance_and_a_win_always_is() -> None:
    pool = filled(2)
    p = point(1, KEYS[1])
    with pytest.raises(KeyError):
        pool.serve(0, 99, "unheard of", PLAYERS)
    for ordinal, (score, rank) in enumerate([(0.0, p.rank), (0.0, (0, 2)), (1.0, None), (0.0, (0, 0))]):
        pool.serve(0, ordinal, p.id, PLAYERS)
        pool.record_episode(result(0, ordinal, score, best_rank=rank))
    assert [(r.bucket.key, r.rate, r.results) for r in pool.advance_rates()] == [(KEYS[1], 0.5, 4)]


def test_a_mirror_battle_adds_one_vote_that_does_not_steer() -> None:
    """Invariants 12 and 13: the credited seat alone counts, and mirrored results mirror."""
    for score, recorded in itertools.product((0.0, 0.5, 1.0), (PLAYERS, MIRROR)):
        pool = RestartPool(PoolSettings(selection="learnability"), 1, STAMP)
        pool.import_points([point(0, players=recorded)])
        pool.serve(0, 0, point(0, players=recorded).id, MIRROR)
        pool.record_episode(result(0, 0, score, players=MIRROR))
        pool.record_episode(result(0, 0, 1.0 - score, players=MIRROR, seat=1))
        (rate,) = pool.advance_rates()
        assert (rate.results, rate.score) == (1, None)
        assert pool.selection_weights()[0].weight == 1.0
    pool.serve(0, 1, point(0, players=MIRROR).id, MIRROR)
    with pytest.raises(ValueError, match="seat"):
        pool.record_episode(result(0, 1, 1.0, players=MIRROR, seat=1))


def test_a_point_of_another_game_is_never_stored() -> None:
    pool = filled(1)
    with pytest.raises(ValueError, match="cards"):
        pool.record_episode(result(0, 5), [point(7, stamp=replace(STAMP, cards="x"))])
    with pytest.raises(UserError, match="another game"):
        RestartPool(PoolSettings(), 1, replace(STAMP, cards="x")).load(pool.state())


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=20), st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=20))
def test_weights_follow_their_statistic(a: list[float], b: list[float]) -> None:
    one, two = BucketResults(100), BucketResults(100)
    one.scores.extend(a)
    two.scores.extend(b)
    if a and b and sum(a) / len(a) <= sum(b) / len(b):
        assert one.weight("failure_rate", 0.1, 0.0) >= two.weight("failure_rate", 0.1, 0.0)
    p, q = ((sum(x) + 1) / (len(x) + 2) for x in (a, b))
    if p * (1 - p) <= q * (1 - q):
        assert one.weight("learnability", 0.1, 0.0) <= two.weight("learnability", 0.1, 0.0) + 1e-12
    one.errors.append(0.2)
    two.errors.append(0.4)
    assert one.weight("value_error", 0.1, 0.4) == 0.5
    assert two.weight("value_error", 0.1, 0.4) == 1.0


def test_the_deepest_cell_is_that_of_the_best_rank() -> None:
    pool = RestartPool(PoolSettings(), 1, STAMP)
    pool.record_episode(result(0, 0), [point(0, (4, -1, 0)), point(1, (0, 1, -1)), point(2, (2, 1, 0))])
    told = pool.diagnostics()
    deepest = tuple(told[f"deepest/{n}"] for n in ("phase", "crowns", "hp"))
    assert deepest == (2, 1, 0)
    assert advantage_rank(deepest) == max(p.rank for p in pool.export_points())


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"max_per_key": 0}, "max_per_key is 0"), ({"selection": "hardest"}, "selection is 'hardest'"),
        ({"selection_floor": 0.0}, "selection_floor is 0"), ({"minimum_values": {"elixir": 1}}, "names 'elixir'"),
    ],
)
def test_bad_settings(bad: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        PoolSettings(**bad)
