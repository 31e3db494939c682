"""Restarts in a run: battles just trained on are played again for their moments, and training begins from these."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer

from ..battle.opponents import EXTRA, LADDER, PREFIX
from ..battle.round import Assignment
from ..battle.save_state import Refused, SaveStateCodec
from ..battle.spec import BattleSpec
from ..battle.stamp import Stamp, stamp_of
from ..battle.steps.arena import LEARNER, build_games
from ..errors import UserError
from ..ppo.schedule import Scheduled
from ..restarts.bank import MAGIC, read_bank, write_bank
from ..restarts.figures import pool_counts, pool_figures
from ..restarts.harvest import Harvester
from ..restarts.key import key_digest
from ..restarts.markers import MarkerSettings
from ..restarts.outcomes import crashed, finished_of, timeout_of
from ..restarts.pool import PoolSettings, RestartPool
from ..restarts.royalegym_bank import read_royalegym_bank
from ..restarts.scheduler import StartScheduler
from ..restarts.shares import StartShares
from ..restarts.state import RestartPoint
from ..screen import say
from .base import RunCallback, callbacks_of, is_dry
from .route_curriculum import RouteCurriculum
from .row import add_seconds, iteration_row, iterations_done
from .start_shares import progress_of, share_schedule

#: Points of an imported bank that are loaded and looked at before any is believed; each is checked again when it is
#: played. One takes 6 ms.
_PROBED = 32


class RestartHarvest(RunCallback):
    """Keep moments of the battles that were trained on, and have a share of the training begin from them.

    Each iteration some of its finished battles are played again, their marked moments saved, and kept by what was going
    on: phase, crowns and tower hp as the learner's seat saw it, within its match-up. Episodes that begin there are told
    apart everywhere (``start/pool/...`` in the rows) and never count as strength. On several ranks each replays battles
    of its own, and all hold the same pool.

    Adds ``restarts/...`` and ``time/restarts`` to every row.

    Args:
        share: of the training's game steps that restarted episodes shall have; may be scheduled. A fifth: systems that
            learn by self-play use few odd starts. Until the pool holds something, nothing comes of it.
        budget: game steps replayed for the harvest, saves counted in, as a share of those played. A replayed game step
            costs a few times less than a trained one, and the whole shall stay within a twentieth of the time.
        pool: what is kept, and how it is drawn from.
        markers: which moments of a battle are kept.
        import_bank: a bank that the pool begins with, one of ours or one that ``royalegym.save_snapshots`` wrote.
        export_bank: write the pool into ``RUN/restarts.bank`` when the run ends.

    Attributes:
        scheduler: the run's start authority.
    """

    scheduler: StartScheduler

    def __init__(
        self,
        share: Scheduled = 0.2,
        budget: float = 0.06,
        pool: PoolSettings = PoolSettings(),  # noqa: B008 - frozen
        markers: MarkerSettings = MarkerSettings(),  # noqa: B008 - frozen
        import_bank: Path | None = None,
        export_bank: bool = False,
    ) -> None:
        self.share = share
        self.schedule = share_schedule(share, "RestartHarvest.share")
        if not 0.0 < budget <= 1.0:
            raise UserError(
                f"RestartHarvest.budget is {budget}; give a share of the game steps above 0 and up to 1, or leave the "
                "callback out"
            )
        self.budget = budget
        self.settings = pool
        self.markers = markers
        self.import_bank = import_bank
        self.export_bank = export_bank
        self._harvester: Harvester | None = None
        self._restored: dict[str, Any] | None = None
        self._counted: dict[str, int] = {}
        self._shares = StartShares(0.0)
        self._curriculum: RouteCurriculum | None = None
        self._credits: list[float] = []

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        bank = None if self.import_bank is None else str(self.import_bank)
        return {
            "share": self.share, "budget": self.budget, "pool": asdict(self.settings), "markers": asdict(self.markers),
            "import_bank": bank,
        }

    # ---- a run -------------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        stamp = stamp_of(data.battle, key_digest())
        self._curriculum = next((c for c in callbacks_of(trainer) if isinstance(c, RouteCurriculum)), None)
        for i in range(101) if self._curriculum is not None else ():
            self._shares_at(i / 100)  # refuses what would leave true starts too little
        self._harvester = Harvester(data.battle, stamp, self.markers, self.budget, data.seed)
        store = None if self._curriculum is None else self._curriculum.open(data, stamp, self._harvester)
        pool = RestartPool(self.settings, data.seed, stamp)
        # Before the battles exist: from their first episode on they keep what a replay needs.
        self.scheduler = data.starts = StartScheduler(data.seed, pool, store)
        self._counted = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._harvester is not None
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        pool = self.scheduler.pool
        state, self._restored = self._restored, None
        if state is not None:
            self.scheduler.load(msgspec.msgpack.decode(state["starts"].numpy().tobytes()))
            self._credits = list(state["credits"])
            self._harvester.credit = self._credits[trainer.global_rank]
            self._counted = pool_counts(self.scheduler)
            if self.import_bank is not None and trainer.is_global_zero:
                say(f"{str(self.import_bank)!r} is not read again: the run goes on with the restart pool it had")
        elif self.import_bank is not None:
            points = read_any_bank(self.import_bank, data.battle, pool.stamp, iterations_done(trainer))
            added = pool.import_points(points)
            if trainer.is_global_zero:
                kept = int(pool.diagnostics()["points"])
                say(f"{str(self.import_bank)!r}: {added:,} restart points read, {kept:,} kept, each bucket's newest")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self._shares = self._shares_at(progress_of(trainer, pl_module))
        own = [PREFIX + n.removeprefix(PREFIX) for n in data.opponents.scripted_opponents]
        shipped = [PREFIX + n for n in (*LADDER, *EXTRA)]
        # A bank from elsewhere may name other opponents; a class path in it is nobody's order to import that code.
        playable = {*own, *shipped, *data.ladder.table().snapshots}
        self.scheduler.freeze(iterations_done(trainer), self._shares, playable)

    def _shares_at(self, progress: float) -> StartShares:
        routes = self._curriculum
        if routes is None:
            return StartShares(pool=self.schedule(progress))
        return StartShares(self.schedule(progress), routes.schedule(progress), routes.bucket_schedule(progress))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._harvester is not None
        row = iteration_row(trainer)
        started = time.monotonic()
        replays, failures = self._harvester.replays, self._harvester.failures
        self._close(trainer, row)
        row["restarts/wanted_share"] = self._shares.pool
        row["restarts/replays"] = self._harvester.replays - replays
        row["restarts/replays_failed"] = self._harvester.failures - failures
        row |= pool_figures(self.scheduler, self._counted)
        self._counted = pool_counts(self.scheduler)
        add_seconds(row, "time/restarts", time.monotonic() - started)

    def _close(self, trainer: Trainer, row: dict[str, float]) -> None:
        """Enter the iteration, of all ranks alike."""
        assert self._harvester is not None
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        first = data.collector.first
        steps = sum(data.start_steps.values())
        curriculum = self._curriculum
        routes = None if curriculum is None else lambda record: curriculum.wanted(data, record)
        minted = dict(self._harvester.harvest(data.episodes, steps, iterations_done(trainer), first, routes))
        begun = self.scheduler.drain()
        finished = finished_of(data.episodes, data.ended_in, data.value_errors, minted, self.markers)
        timeouts = {(e.battle, e.ordinal): why for e in data.episodes if (why := timeout_of(e)) is not None}
        if row.get("health/battles_voided"):
            running = {first + b: int(n) for b, n in enumerate(data.collector.ordinals)}
            timeouts |= crashed(self.scheduler.pool.in_flight, begun, finished, running)
        self._credits = data.gather_all([self._harvester.credit])
        played: Counter[str] = Counter()
        for kinds in data.gather_all([dict(data.start_steps)]):
            played.update(kinds)
        self.scheduler.close(
            data.gather_all(begun), data.gather_all(finished), dict(data.gather_all(list(timeouts.items()))), played
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.export_bank and trainer.is_global_zero and not is_dry(trainer):
            path = Path(trainer.default_root_dir) / "restarts.bank"
            points = self.scheduler.pool.export_points()
            write_bank(path, points)
            say(f"{path}: {len(points):,} restart points")

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        if self._harvester is None:
            return {}
        # As a tensor: torch loads no bytes safely, and as text they would be a third larger.
        packed = np.frombuffer(msgspec.msgpack.encode(self.scheduler.state()), np.uint8)
        return {"starts": torch.from_numpy(packed.copy()), "credits": self._credits}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict or None


def read_any_bank(path: Path, spec: BattleSpec, stamp: Stamp, iteration: int) -> list[RestartPoint]:
    """The points of a bank, as if they were harvested in ``iteration``; a sample of them was loaded.

    Raises:
        UserError: it is no bank, damaged, of another game, or does not load in these battles.
    """
    try:
        with path.open("rb") as file:
            ours = file.read(len(MAGIC)) == MAGIC
    except OSError as exc:
        raise UserError(
            f"RestartHarvest.import_bank: {str(path)!r} cannot be read ({exc.strerror}); check the path"
        ) from exc
    if not ours:
        return read_royalegym_bank(path, spec, stamp, policy_version=iteration)
    points = read_bank(path, stamp)
    (game,), codec = build_games(spec, 1), SaveStateCodec(stamp)
    for i in np.linspace(0, len(points) - 1, min(_PROBED, len(points))).astype(int).tolist():
        try:
            game.load(codec.unpack(points[i].payload), Assignment(0, 0, (LEARNER, LEARNER), 0), (True, True))
        except Refused as exc:
            raise UserError(f"{str(path)!r}: restart point {i} is refused, and with it the bank: {exc}") from exc
    return [replace(p, policy_version=iteration) for p in points]
