"""One run, one folder, one process that writes it; and one history, whatever was trained there before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..run import folder as run_folder
from ..run.atomic import set_aside
from ..run.checkpoints import newest, rewind
from ..run.jobs import Job
from ..run.ranks import Ranks
from ..run.screen import say, shown
from .base import Phase, RunCallback, datamodule_of, is_dry
from .checkpoint import keep_bot


class RunFolder(RunCallback):
    """Holds the run folder while the run trains, whoever made the Trainer.

    Refused is a folder that another process trains in, and one that holds a run which this one does not continue.
    When training begins, the checkpoints of a history that is given up are set aside, as the logs set aside their
    lines: what lies in the folder is always one history.

    Args:
        job: that the run is of, on a cluster which may start it again.
    """

    # Last: the others write until they are told of the end.
    phase = Phase.FOLDER

    def __init__(self, job: Job | None = None) -> None:
        self.job = job
        self._lock: run_folder.RunLock | None = None
        #: What this Trainer has trained in the folder, so that it may go on with that.
        self._mine: tuple[Any, ...] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and not is_dry(trainer):
            # What is refused on one rank alone would leave the others waiting.
            Ranks.of(trainer).from_rank_zero(lambda: self._hold(Path(trainer.default_root_dir)))

    def _hold(self, folder: Path) -> None:
        self._release()
        self._lock = run_folder.RunLock(folder)
        if self._begins_anew(folder):
            for log in folder.glob("*.jsonl"):
                set_aside(log)
        if self.job is not None and not run_folder.is_occupied(folder):
            self.job.record(folder)

    def _begins_anew(self, folder: Path) -> bool:
        """Whether an earlier start of this job was stopped here before its first checkpoint."""
        job = self.job
        without = newest(folder / run_folder.CHECKPOINTS) is None
        return job is not None and job.restarted and without and job.began(folder)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not is_dry(trainer):
            mine = (trainer.default_root_dir, pl_module, datamodule_of(trainer))
            if mine != self._mine:
                Ranks.of(trainer).from_rank_zero(lambda: self._check(trainer))
            self._mine = mine

    def _check(self, trainer: Trainer) -> None:
        """Only here the Trainer says what it continues; whatever writes has written nothing yet."""
        folder = run_folder.resolved(trainer.default_root_dir)
        if not run_folder.holds_run(folder):
            return
        ckpt_path = trainer.ckpt_path
        if ckpt_path and run_folder.resolved(str(ckpt_path)).is_relative_to(folder):
            return
        if self._begins_anew(folder):
            return
        raise UserError(run_folder.already_holds(folder, shown(folder)))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_dry(trainer) or not trainer.is_global_zero:
            return
        folder, ckpt_path = Path(trainer.default_root_dir), trainer.ckpt_path
        checkpoints = folder / run_folder.CHECKPOINTS
        if ckpt_path and run_folder.resolved(str(ckpt_path)).is_relative_to(folder):
            aside = rewind(checkpoints, Path(str(ckpt_path)), trainer.current_epoch)
            if aside:
                names = ", ".join(p.name for p in aside)
                say(f"checkpoints after iteration {trainer.current_epoch} moved to {names}")
                if (last := newest(checkpoints)) is not None:
                    keep_bot(trainer, last)
        if self.job is not None:
            # Not before: a start of this job goes on with what lies here from now on.
            self.job.record(folder)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._release()
        if trainer.is_global_zero:
            run_folder.drop_if_empty(Path(trainer.default_root_dir))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
