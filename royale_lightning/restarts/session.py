"""A run's restarts, whole: what is kept of its battles, and what is done about it when an iteration begins and ends.

The callbacks ``RestartHarvest`` and ``RouteCurriculum`` say when each of it happens. What happens is here and in
``route_work.py``, and takes what it needs as plain values, so that it runs without torch and without a Trainer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..battle.opponents import EXTRA, LADDER
from ..battle.players import scripted_player
from ..battle.round import EpisodeRecord, Start
from ..battle.spec import BattleSpec
from ..battle.stamp import stamp_of
from .harvest import Harvester
from .moments import MarkerSettings
from .outcomes import crashed, finished_of, timeout_of
from .pool.bank_import import read_any_bank
from .pool.pool import PoolSettings, RestartPool
from .records.bank import write_bank
from .records.key import key_digest
from .route_work import RouteSettings, RouteWork
from .routes.demonstrations import RouteDemonstrations
from .row_metrics import pool_counts, pool_figures
from .scheduler import StartScheduler
from .shares import StartShares


@dataclass(frozen=True)
class PlayedIteration:
    """What a rank played in an iteration.

    Args:
        iteration: counted from 1; its weights played.
        episodes: finished in it, ascending by round and battle.
        ended_in: their rounds.
        value_errors: per episode and seat, mean absolute advantage; None where unknown.
        start_steps: game steps by kind of start.
        first: global id of the rank's first battle.
        running: battle -> ordinal of its latest episode, where battles were lost with a worker; else empty.
    """

    iteration: int
    episodes: Sequence[EpisodeRecord]
    ended_in: Sequence[int]
    value_errors: Sequence[tuple[float | None, float | None]]
    start_steps: Mapping[str, int]
    first: int = 0
    running: Mapping[int, int] = field(default_factory=dict)


class RestartSession:
    """See the module; a :class:`~royale_lightning.rollout.plan.StartAuthority`.

    Args:
        spec: the battles.
        seed: of every named stream.
        pool: what is kept, and how it is drawn from.
        markers: which moments of a battle are kept.
        budget: game steps replayed for the harvest, as a share of those played.
        routes: what is done about routes; unset, there are none.
        gather_all: the lists of all ranks, one after the other, on every rank. By default there is one rank.
        from_rank_zero: what rank 0 makes, on every rank.

    Attributes:
        scheduler: says where each episode begins, and owns pool and store.
        routes: None without routes.
        credits: of every rank's harvest, at the end of the latest iteration; empty before the first.
    """

    def __init__(
        self, spec: BattleSpec, seed: int, pool: PoolSettings, markers: MarkerSettings, budget: float,
        routes: RouteSettings | None = None, *,
        gather_all: Callable[[list[Any]], list[Any]] = lambda mine: mine,
        from_rank_zero: Callable[[Callable[[], Any]], Any] = lambda make: make(),
    ) -> None:
        stamp = stamp_of(spec, key_digest())
        self._spec = spec
        self._markers = markers
        self._gather_all = gather_all
        self._harvester = Harvester(spec, stamp, markers, budget, seed)
        self.routes = None if routes is None else RouteWork(spec, seed, stamp, routes, self._harvester, from_rank_zero)
        store = None if self.routes is None else self.routes.store
        self.scheduler = StartScheduler(seed, RestartPool(pool, seed, stamp), store)
        self.credits: list[float] = []
        self._shares = StartShares(0.0)
        self._counted: dict[str, int] = {}

    @property
    def pool(self) -> RestartPool:
        return self.scheduler.pool

    @property
    def demonstrations(self) -> RouteDemonstrations | None:
        """Decisions of archived wins, to be imitated; None without routes."""
        return None if self.routes is None else self.routes.demonstrations

    def begin(self, battle: int, ordinal: int, players: tuple[str, str]) -> tuple[tuple[str, str], Start]:
        """Who plays this episode, and from where: see
        :meth:`~royale_lightning.restarts.scheduler.StartScheduler.begin`."""
        return self.scheduler.begin(battle, ordinal, players)

    # ---- banks -------------------------------------------------------------------------------------------------
    def import_bank(self, path: Path, iteration: int) -> tuple[int, int]:
        """Begin with a bank's points, as if they were harvested in ``iteration``; how many were read, and are kept.

        Raises:
            UserError: it is no bank, damaged, of another game, or does not load in these battles.
        """
        added = self.pool.import_points(read_any_bank(path, self._spec, self.pool.stamp, iteration))
        return added, int(self.pool.diagnostics()["points"])

    def export_bank(self, path: Path) -> int:
        """Write the pool into a bank; how many points."""
        points = self.pool.export_points()
        write_bank(path, points)
        return len(points)

    # ---- an iteration ------------------------------------------------------------------------------------------
    def freeze(self, iteration: int, shares: StartShares, met: Collection[str]) -> None:
        """Fix where the coming iteration's episodes may begin.

        Args:
            iteration: that begins, counted from 1.
            shares: of the game steps.
            met: opponents that the training meets by name. RoyaleGym's and ours can be met too; a bank from elsewhere
                may name others, and a class path in it is nobody's order to import that code.
        """
        self._shares = shares
        self.scheduler.freeze(iteration, shares, {*met, *(scripted_player(n) for n in (*LADDER, *EXTRA))})

    def close(
        self, played: PlayedIteration, ratings: Mapping[str, Mapping[str, float]]
    ) -> dict[str, float]:
        """Harvest an iteration's battles and enter what came of its starts, of all ranks alike.

        Args:
            played: by this rank.
            ratings: of opponents, by name.

        Returns:
            ``restarts/...`` of the metric row.
        """
        work, harvester = self.routes, self._harvester
        replays, failures = harvester.replays, harvester.failures
        minted = dict(harvester.harvest(
            played.episodes, sum(played.start_steps.values()), played.iteration, played.first,
            None if work is None else lambda record: work.wanted(record, ratings),
        ))
        begun = self.scheduler.drain()
        finished = finished_of(played.episodes, played.ended_in, played.value_errors, minted, self._markers)
        timeouts = {(e.battle, e.ordinal): why for e in played.episodes if (why := timeout_of(e)) is not None}
        if played.running:
            timeouts |= crashed(self.pool.in_flight, begun, finished, played.running)
        self.credits = self._gather_all([harvester.credit])
        steps: Counter[str] = Counter()
        for kinds in self._gather_all([dict(played.start_steps)]):
            steps.update(kinds)
        self.scheduler.close(
            self._gather_all(begun), self._gather_all(finished), dict(self._gather_all(list(timeouts.items()))), steps
        )
        row = {
            "restarts/wanted_share": self._shares.pool, "restarts/replays": harvester.replays - replays,
            "restarts/replays_failed": harvester.failures - failures, **pool_figures(self.scheduler, self._counted),
        }
        self._counted = pool_counts(self.scheduler)
        return row

    # ---- state -------------------------------------------------------------------------------------------------
    def state(self) -> bytes:
        """Pool, store and flights, packed; with :attr:`credits` all that goes on, beside :meth:`RouteWork.state`."""
        return msgspec.msgpack.encode(self.scheduler.state())

    def load(self, state: bytes, credits: Sequence[float], rank: int, battles: int) -> None:
        """Take over what :meth:`state` and :attr:`credits` gave, on rank ``rank``.

        A rank that has no credit there begins with none: a save from inside the first iteration, before any rank had
        told its own, holds an empty list.

        Args:
            battles: over all ranks; what a run with more of them had in flight on the others is forgotten.

        Raises:
            UserError: its save states are of another game.
        """
        self.scheduler.load(msgspec.msgpack.decode(state))
        self.scheduler.forget(battles)
        self.credits = list(credits)
        self._harvester.credit = self.credits[rank] if rank < len(self.credits) else 0.0
        self._counted = pool_counts(self.scheduler)
