"""Restarts in a run: battles just trained on are played again for their moments, and training begins from these."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer

from ..bots.given import Given, file_digest
from ..errors import UserError
from ..ppo.schedule import Scheduled
from ..restarts.moments import MarkerSettings
from ..restarts.pool.pool import PoolSettings
from ..restarts.session import PlayedIteration, RestartSession
from ..restarts.shares import StartShares
from ..rollout.data import data_of
from ..run.screen import say
from .base import Phase, RunCallback, add_seconds, callbacks_of, is_dry, iteration_row, iterations_done
from .route_curriculum import RouteCurriculum, met_by_name, progress_of, share_schedule


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
        session: the run's restarts; a run that begins makes them anew.
    """

    phase = Phase.HARVEST
    session: RestartSession | None = None

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
        self._curriculum: RouteCurriculum | None = None
        self._known: Given | None = None
        self._restored: dict[str, Any] | None = None

    def identity_fields(self) -> dict[str, Any]:
        """What of it decides a run (:mod:`royale_lightning.run.identity`)."""
        bank = None if self.import_bank is None else str(self.import_bank)
        if bank is not None and self._known is not None:
            bank = self._known.id_of("RestartHarvest.import_bank", bank, file_digest)
        return {
            "share": self.share, "budget": self.budget, "pool": asdict(self.settings), "markers": asdict(self.markers),
            "import_bank": bank,
        }

    # ---- a run -------------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        data = data_of(trainer)
        self._known = data.given
        # The one place where either callback looks for the other; from here on they share the session.
        curriculum = self._curriculum = next((c for c in callbacks_of(trainer) if isinstance(c, RouteCurriculum)), None)
        for i in range(101) if curriculum is not None else ():
            self._shares_at(i / 100)  # refuses what would leave true starts too little
        session = self.session = RestartSession(
            data.battle, data.seed, self.settings, self.markers, self.budget,
            None if curriculum is None else curriculum.settings,
            gather_all=data.ranks.joined, from_rank_zero=data.ranks.from_rank_zero,
        )
        if curriculum is not None:
            curriculum.join(session, data.given)
        # Before the battles exist: from their first episode on they keep what a replay needs.
        data.register(starts=session, demonstrations=session.demonstrations)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.session is not None
        state, self._restored = self._restored, None
        said = None
        if state is not None:
            data = data_of(trainer)
            battles = data.ranks.world_size * data.rollout.battles
            self.session.load(state["starts"].numpy().tobytes(), state["credits"], trainer.global_rank, battles)
            if self.import_bank is not None:
                said = f"{str(self.import_bank)!r} is not read again: the run goes on with the restart pool it had"
        elif self.import_bank is not None:
            added, kept = self.session.import_bank(self.import_bank, iterations_done(trainer))
            said = f"{str(self.import_bank)!r}: {added:,} restart points read, {kept:,} kept, each bucket's newest"
        if said is not None and trainer.is_global_zero:
            say(said)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.session is not None
        shares = self._shares_at(progress_of(trainer, pl_module))
        self.session.freeze(iterations_done(trainer), shares, met_by_name(trainer))

    def _shares_at(self, progress: float) -> StartShares:
        routes = self._curriculum
        if routes is None:
            return StartShares(pool=self.schedule(progress))
        return StartShares(self.schedule(progress), routes.schedule(progress), routes.bucket_schedule(progress))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.session is not None
        data = data_of(trainer)
        row = iteration_row(trainer)
        started = time.monotonic()
        first, ordinals = data.collector.first, data.collector.ordinals
        running = {first + b: int(n) for b, n in enumerate(ordinals)} if row.get("health/battles_voided") else {}
        played = PlayedIteration(
            iterations_done(trainer), data.episodes, data.ended_in, data.value_errors, data.start_steps, first, running
        )
        row |= self.session.close(played, data.ladder.ratings)
        add_seconds(row, "time/restarts", time.monotonic() - started)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.export_bank and trainer.is_global_zero and not is_dry(trainer):
            assert self.session is not None
            path = Path(trainer.default_root_dir) / "restarts.bank"
            say(f"{path}: {self.session.export_bank(path):,} restart points")

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        if self.session is None:
            return {}
        # As a tensor: torch loads no bytes safely, and as text they would be a third larger.
        packed = np.frombuffer(self.session.state(), np.uint8)
        return {"starts": torch.from_numpy(packed.copy()), "credits": self.session.credits}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict or None
