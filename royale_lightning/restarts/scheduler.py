"""The one authority on where an episode begins, and the ledger of what became of it.

Inside an iteration it answers from frozen tables, so that an answer depends on ``(battle, ordinal)`` alone. At the
boundary every rank enters the same lists in the same order: what was begun, then what came of it, then what will not be
heard of any more. Two authorities would contradict each other: a pool's restart that passes for a whole episode becomes
"the best route", being short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..battle.players import LEARNER
from ..battle.round import BUCKET, CURRICULUM, POOL, START_KINDS, TRUE, TRUE_START, Start
from .pool.pool import RestartPool
from .records.key import advantage_rank
from .records.points import Bucket, EpisodeResult, Key, RestartPoint
from .records.route import Reference, Route
from .routes.curriculum import Vote
from .routes.store import RouteStore
from .selection.selection import draw, pick
from .shares import TRUE_RESERVE, EpisodeLengths, StartShares, start_chances

#: Weight of an iteration in the running share of true game steps: it remembers some ten.
_RATE = 0.1


class Begun(NamedTuple):
    """An episode as it was begun, in plain values for every rank to hear of.

    Attributes:
        battle, ordinal: which.
        players: who plays.
        wanted: the kind of start that was drawn.
        kind: the kind that was given; ``true`` where the wanted one had nothing to begin from.
        ref: what :attr:`~royale_lightning.battle.round.Start.ref` says.
        seat, partition, key: credited seat, and the bucket of the point; -1 and empty for a true start.
    """

    battle: int
    ordinal: int
    players: tuple[str, str]
    wanted: str
    kind: str
    ref: str = ""
    seat: int = -1
    partition: str = ""
    key: Key = ()


@dataclass(frozen=True)
class Finished:
    """An episode that ended, and what was minted from it.

    Args:
        result: of the credited seat; of any learner's seat for a true start.
        points: moments to keep, of either seat.
        routes: of either seat; one of the credited seat continues the route its start lay on.
    """

    result: EpisodeResult
    points: Sequence[RestartPoint] = ()
    routes: Sequence[Route] = ()


class StartScheduler:
    """See the module; a :class:`~royale_lightning.rollout.plan.StartAuthority`.

    Args:
        seed: of its named stream.
        pool: always there; it may be empty.
        store: unset, there are neither curriculum nor bucket starts.
    """

    def __init__(self, seed: int, pool: RestartPool, store: RouteStore | None = None) -> None:
        self.seed = seed
        self.pool = pool
        self.store = store
        self.counts: Counter[str] = Counter()
        #: Chance of each kind for an episode of this iteration.
        self.chances = start_chances(StartShares(0.0), {})
        self.lengths = EpisodeLengths()
        #: Running share of the game steps that true starts had.
        self.true_share = 1.0
        self._playable: Collection[str] | None = None
        self._log: list[Begun] = []
        self._flights: dict[tuple[int, int], Begun] = {}
        self._latest: dict[int, int] = {}

    # ---- inside an iteration -----------------------------------------------------------------------------------
    def freeze(self, policy_version: int, shares: StartShares, playable: Collection[str] | None = None) -> None:
        """Fix what :meth:`begin` answers from until the next call.

        Args:
            policy_version: number of the iteration; old points are retired by it.
            shares: of the game steps. None is restarted in an iteration that begins with true starts below their
                reserve: measured lengths can be wrong for a while.
            playable: opponents that can be met now, beside the learner itself; None for all.
        """
        self._playable = playable
        self.pool.freeze(policy_version)
        if self.store is not None:
            self.store.freeze(None if playable is None else [*playable, LEARNER])
        held_back = self.true_share < TRUE_RESERVE
        self.counts["held_back"] += held_back
        self.chances = start_chances(StartShares(0.0) if held_back else shares, self.lengths.means)

    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> tuple[tuple[str, str], Start]:
        """Who plays this episode, and from where. Tables stay as they are; the answer is logged for :meth:`drain`.

        A start is played against the very opponent it was recorded against, for only that result says something about
        the policy alone. Where that opponent is gone the matchmaker's takes its seat.
        """
        (u,) = draw(self.seed, "start/kind", battle, ordinal, 1)
        wanted = START_KINDS[pick([self.chances[k] for k in START_KINDS], u)]
        found = self._find(wanted, battle, ordinal)
        if found is None:
            self._log.append(Begun(battle, ordinal, players, wanted, TRUE))
            return players, TRUE_START
        point, ref = found
        table = self._seated(point, players)
        credited = point.seat, point.partition, point.key
        self._log.append(Begun(battle, ordinal, table, wanted, wanted, ref, *credited))
        return table, Start(wanted, point.blob, point.payload, point.seat, ref)

    def _find(self, kind: str, battle: int, ordinal: int) -> tuple[RestartPoint, str] | None:
        if kind == POOL:
            point = self.pool.choose(battle, ordinal)
            return None if point is None else (point, point.id)
        if self.store is None:
            return None
        if kind == CURRICULUM:
            start = self.store.curriculum_start(battle, ordinal)
            return None if start is None else (start.point, _write_ref(*start.vote, start.reference.stop))
        if kind == BUCKET:
            entry = self.store.bucket_start(battle, ordinal)
            if entry is not None and entry.segment.end is not None:
                return entry.segment.end, _write_ref(entry.reference.route, entry.reference.stop)
        return None

    def _seated(self, point: RestartPoint, players: tuple[str, str]) -> tuple[str, str]:
        other = point.opponent
        if other != LEARNER and self._playable is not None and other not in self._playable:
            other = next((p for p in players if p != LEARNER), LEARNER)
        return (LEARNER, other) if point.seat == 0 else (other, LEARNER)

    # ---- at the boundary ---------------------------------------------------------------------------------------
    def drain(self) -> list[Begun]:
        """The episodes begun here since the last call, to be gathered over ranks."""
        log, self._log = self._log, []
        return log

    def close(
        self, begun: Iterable[Begun], finished: Iterable[Finished] = (),
        timeouts: Mapping[tuple[int, int], str] | None = None, steps: Mapping[str, int] | None = None,
    ) -> None:
        """Enter an iteration: of all ranks, in any order, alike on every rank.

        Args:
            begun: what :meth:`drain` gave.
            finished: at most one an episode.
            timeouts: ``(battle, ordinal)`` to one of :data:`~royale_lightning.restarts.records.points.TIMEOUTS`, for
                starts that came to nothing. What such an episode gave is still kept, but it has no result.
            steps: game steps played, by kind of start.
        """
        for one in sorted(begun):
            self._enter(one)
        for at, kind in sorted((timeouts or {}).items()):
            self._time_out(at, kind)
        for ended in sorted(finished, key=lambda f: (f.result.round, f.result.battle)):
            self._finish(ended)
        for at in [at for at in self._flights if at[1] < self._latest[at[0]]]:
            self._let_go(at)
        total = sum((steps or {}).values())
        if steps and total:
            self.true_share += _RATE * (steps.get(TRUE, 0) / total - self.true_share)

    def _enter(self, one: Begun) -> None:
        at = (one.battle, one.ordinal)
        self._latest[one.battle] = max(one.ordinal, self._latest.get(one.battle, -1))
        self.counts[f"begun/{one.kind}"] += 1
        self.counts[f"starved/{one.wanted}"] += one.kind != one.wanted
        if self.store is not None and self.store.curriculum is not None and one.wanted == CURRICULUM:
            self.store.curriculum.record_attempt(one.kind == CURRICULUM)
        self._flights[at] = one
        if one.kind == POOL:
            self.pool.serve(*at, one.ref, one.players)
        elif one.kind != TRUE and self.store is not None:
            self.store.repository.retain(_reference(one).route, _holder(at))
        if one.kind != TRUE and self.store is not None:
            self.store.statistics.record_start(Bucket(one.partition, one.key))

    def _time_out(self, at: tuple[int, int], kind: str) -> None:
        self.pool.record_timeout(*at, kind)
        flight = self._flights.get(at)
        if flight is not None:
            self.counts[f"timeout/{kind}"] += flight.kind != TRUE
            self._let_go(at)

    def _finish(self, ended: Finished) -> None:
        result = ended.result
        at = (result.battle, result.ordinal)
        flight = self._flights.get(at)
        try:
            if flight is not None:
                self.lengths.record(flight.kind, result.game_steps)
            self.pool.record_episode(result, ended.points)
            if self.store is not None:
                self._store(self.store, flight, ended)
        finally:
            self._let_go(at)

    def _store(self, store: RouteStore, flight: Begun | None, ended: Finished) -> None:
        result = ended.result
        by_learner = result.players[result.seat] == LEARNER
        restarted = flight is not None and flight.kind != TRUE
        if flight is not None and restarted and result.score is not None:
            bucket = Bucket(flight.partition, flight.key)
            if by_learner:
                rank = advantage_rank(flight.key)
                moved = result.won or (result.best_rank is not None and result.best_rank > rank)
                store.statistics.record_outcome(bucket, result.score, moved)
            if flight.kind == CURRICULUM and store.curriculum is not None:
                vote = Vote(*_read_ref(flight.ref)[:3])
                store.curriculum.vote(vote, result.won, result.crown_margin, by_learner)
        for route in ended.routes:
            began_at = None
            if flight is not None and restarted and route.seat == flight.seat:
                store.statistics.record_reach(
                    Bucket(flight.partition, flight.key), [Bucket(route.partition, s.end_key) for s in route.segments]
                )
                began_at = _reference(flight) if flight.kind != POOL and _reference(flight).stop else None
            store.add(route, began_at)
        if result.won and by_learner:
            store.wins += 1

    def _let_go(self, at: tuple[int, int]) -> None:
        """Whatever is still held for an episode, whose result is entered or will not come."""
        self.pool.abandon(*at)
        flight = self._flights.pop(at, None)
        if flight is not None and flight.kind in (CURRICULUM, BUCKET) and self.store is not None:
            self.store.repository.release(_reference(flight).route, _holder(at))

    def forget(self, battles: int) -> None:
        """Let go of what battles from this global id on had in flight: a run that goes on without them."""
        for at in [at for at in self._flights if at[0] >= battles]:
            self._let_go(at)
        self._latest = {battle: ordinal for battle, ordinal in self._latest.items() if battle < battles}

    # ---- read-outs and state -----------------------------------------------------------------------------------
    def diagnostics(self) -> dict[str, float]:
        """Chances, counts and lengths by kind of start, and ``pool/...``, ``store/...`` and ``curriculum/...``."""
        restarted = [f for f in self._flights.values() if f.kind != TRUE]
        out: dict[str, float] = {
            "true_share": self.true_share, "in_flight": len(restarted), "held_back": self.counts["held_back"],
        }
        for kind in START_KINDS:
            out[f"chance/{kind}"] = self.chances[kind]
            out[f"begun/{kind}"] = self.counts[f"begun/{kind}"]
            if kind != TRUE:
                out[f"starved/{kind}"] = self.counts[f"starved/{kind}"]
            if kind in self.lengths.means:
                out[f"game_steps/{kind}"] = self.lengths.means[kind]
        out |= {f"pool/{k}": v for k, v in self.pool.diagnostics().items()}
        if self.store is not None:
            out |= {f"store/{k}": v for k, v in self.store.diagnostics().items()}
            if self.store.curriculum is not None:
                out |= {f"curriculum/{k}": v for k, v in self.store.curriculum.diagnostics().items()}
        return out

    def state(self) -> dict[str, Any]:
        """Everything, pool and store included, as plain data; after :meth:`close`. :meth:`freeze` follows a load."""
        return {
            "pool": self.pool.state(),
            "store": None if self.store is None else self.store.state(),
            "flights": [list(f) for _, f in sorted(self._flights.items())],
            "latest": [list(item) for item in sorted(self._latest.items())],
            "lengths": self.lengths.state(),
            "true_share": self.true_share,
            "counts": dict(sorted(self.counts.items())),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` gave.

        Raises:
            UserError: its save states are of another game.
        """
        self._log = []
        self._flights = {}
        for battle, ordinal, players, wanted, kind, ref, seat, partition, key in state["flights"]:
            self._flights[battle, ordinal] = Begun(
                battle, ordinal, (players[0], players[1]), wanted, kind, ref, seat, partition, tuple(key)
            )
        self.pool.load(state["pool"])
        if self.store is not None and state["store"] is not None:
            self.store.load(state["store"], [_holder(at) for at in self._flights])
        self._latest = dict(state["latest"])
        self.lengths.load(state["lengths"])
        self.true_share = state["true_share"]
        self.counts = Counter(state["counts"])


def _holder(at: tuple[int, int]) -> str:
    return f"episode {at[0]}/{at[1]}"


def _write_ref(*numbers: int) -> str:
    return "/".join(map(str, numbers))


def _read_ref(ref: str) -> tuple[int, ...]:
    return tuple(map(int, ref.split("/")))


def _reference(flight: Begun) -> Reference:
    """The stored segments that a start of the store continues: the first number of its ref is the route, the last the
    stop."""
    numbers = _read_ref(flight.ref)
    return Reference(numbers[0], 0, numbers[-1])
