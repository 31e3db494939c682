"""Checkpoints at an iteration's end: atomic, counted, and safe to load."""

from __future__ import annotations

import contextlib
import pickle
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from ..errors import UserError, remedy
from ..run.atomic import make_folder, partial_of
from ..run.checkpoints import check_room, numbered, point_last_at, publish_checkpoint
from ..run.folder import CHECKPOINTS
from ..run.ranks import Ranks
from ..run.screen import say, shown
from ..run.signals import StopNow
from .base import Phase, RunCallback, add_to_next_row, game_steps, is_dry, iterations_done

#: Raised whenever an older reader would misunderstand a newer checkpoint, or a newer one an older.
FORMAT_VERSION = 3
#: The checkpoint's entry that says what it is.
STAMP = "royale_lightning"

OnSaved = Callable[[Trainer, Path], None]


def keep_bot(trainer: Trainer, path: Path) -> None:
    """``RUN/bot/`` follows each checkpoint of a module whose checkpoints hold a bot."""
    if hasattr(trainer.lightning_module, "bot"):
        from ..bots.bot_files import update_bot

        folder = path.parent.parent / "bot"
        try:
            update_bot(path, folder)
        except OSError as failure:
            raise UserError(
                f"cannot write the bot {shown(folder)} ({failure.strerror or failure}); its checkpoint {shown(path)} "
                f"is whole: {remedy(failure)} and continue from it"
            ) from failure


class RunCheckpoint(RunCallback, Checkpoint):
    """Write ``checkpoints/iteration-000123.ckpt`` and ``last.ckpt`` every N iterations and at the end.

    Only at an iteration's end, after every other callback: that is the one moment whose state resumes exactly. A file
    is complete or absent (room checked, written aside, synced, renamed), is listed with its hash in
    ``checkpoints/manifest.json``, and loads with ``torch.load(weights_only=True)``.

    What anybody else saves carries the mark of a moment inside an iteration, unless it is this one too: a
    ``ModelCheckpoint`` at the epoch's end, ``trainer.save_checkpoint`` after the fit.

    Args:
        every: iterations between checkpoints. Ten keep the cost well under 2 % of a run.
        keep: how many numbered checkpoints to keep, the newest ones; -1 keeps all.

    Attributes:
        on_saved: functions called on rank 0 with the trainer and the finished file, such as the bot writer.
    """

    phase = Phase.CHECKPOINT
    #: What ``on_saved`` starts with.
    default_on_saved: ClassVar[tuple[OnSaved, ...]] = (keep_bot,)

    def __init__(self, every: int = 10, keep: int = 5) -> None:
        if every < 1:
            raise UserError(f"checkpoint.every is {every}; it must be at least 1 iteration")
        if keep < 1 and keep != -1:
            raise UserError(f"checkpoint.keep is {keep}; keep at least 1 checkpoint, or -1 for all")
        self.every = every
        self.keep = keep
        self.on_saved: list[OnSaved] = list(self.default_on_saved)
        self.last_path: Path | None = None
        #: Set by whoever wants one at this iteration's end, on every rank.
        self.due = False
        #: Whether this is where training continues exactly: from an iteration's end, every callback done, until the
        #: next one begins.
        self._at_end = False
        self._bytes = 0
        self._random: list[dict[str, Any]] | None = None

    @property
    def best_model_path(self) -> str:
        """The newest checkpoint, for ``trainer.test(datamodule=...)`` right after a ``fit``."""
        return str(self.last_path or "")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            self._at_end = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at_end = False

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._at_end = True
        if is_dry(trainer):
            return
        iteration = iterations_done(trainer)
        ending = trainer.should_stop or iteration == trainer.max_epochs
        if iteration % self.every == 0 or ending or self.due:
            self.due = False
            started = time.monotonic()
            self._save(trainer, f"iteration-{iteration:06d}.ckpt", last=True)
            add_to_next_row(trainer, "time/checkpoint", time.monotonic() - started)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """The emergency save of a run that the user stopped now."""
        if not isinstance(exception, (StopNow, KeyboardInterrupt)) or not trainer.training or is_dry(trainer):
            return
        if trainer.world_size > 1:
            # Saving takes all ranks, and the others are busy with the iteration.
            say("no emergency checkpoint with several ranks; the numbered ones are whole")
            return
        self._at_end = False
        try:
            path = self._save(trainer, f"interrupted-{trainer.current_epoch:06d}.ckpt", last=False)
            say(f"saved {shown(path)}: its weights can be tested; training continues from an iteration's end")
        except Exception as failure:  # the run is ending; whatever went wrong must not hide why
            say(f"no emergency checkpoint: {failure}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Whoever saves: this callback, one of Lightning's, a hook of the cluster, or ``trainer.save_checkpoint``."""
        stamp = checkpoint.setdefault(STAMP, {})
        stamp.update(self._stamp(trainer), random=Ranks.of(trainer).gather(random_state()))

    def _stamp(self, trainer: Trainer) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "mid_iteration": not self._at_end,
            # Counted before the hooks of an iteration's end, and not again when the fit is over.
            "iteration": trainer.fit_loop.epoch_progress.current.processed,  # type: ignore[attr-defined]
            "game_steps": game_steps(trainer),
        }

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._random = checkpoint.get(STAMP, {}).get("random")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._random is not None:
            set_random_state(Ranks.of(trainer), self._random)
            self._random = None

    def _save(self, trainer: Trainer, name: str, *, last: bool) -> Path:
        """Called on all ranks; rank 0 writes."""
        folder = Path(trainer.default_root_dir) / CHECKPOINTS
        path = folder / name
        partial = partial_of(path)
        try:
            if trainer.is_global_zero:
                make_folder(folder)
                check_room(folder, max(_size(trainer), self._bytes))
            trainer.save_checkpoint(partial, weights_only=False)
            if trainer.is_global_zero:
                if self.last_path is None:
                    _check_loads(partial)
                publish_checkpoint(partial, path, self._stamp(trainer))
                if last:
                    point_last_at(path)
                    self._remove_old(folder)
        except OSError as failure:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise UserError(
                f"cannot write the checkpoint {shown(path)} ({failure.strerror or failure}); the checkpoints before it "
                f"are whole: {remedy(failure)} and continue from last.ckpt"
            ) from failure
        self.last_path = path
        if trainer.is_global_zero:
            self._bytes = path.stat().st_size
            for follow in self.on_saved if last else ():
                follow(trainer, path)
        Ranks.of(trainer).wait()
        return path

    def _remove_old(self, folder: Path) -> None:
        if self.keep == -1:
            return
        # All of them are of this history (``RunFolder``), so the highest numbers are the newest.
        for path in list(numbered(folder).values())[: -self.keep]:
            # A file that somebody holds open cannot be removed everywhere; the next checkpoint tries again.
            with contextlib.suppress(OSError):
                path.unlink()


def _size(trainer: Trainer) -> int:
    """About how many bytes a first checkpoint takes: the weights and Adam's two moments; later ones are like it."""
    return 3 * sum(p.numel() * p.element_size() for p in trainer.lightning_module.parameters())


def _check_loads(partial: Path) -> None:
    """Refuse at a run's first checkpoint what would only show when somebody wants to resume it."""
    try:
        torch.load(partial, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as failure:
        partial.unlink(missing_ok=True)
        named = re.search(r"GLOBAL ([\w.]+)", str(failure))
        raise UserError(
            f"the checkpoint would hold {named[1] if named else 'an object'}, which cannot be loaded without running "
            "code; keep plain values and tensors in save_hyperparameters and in every state_dict"
        ) from failure


# ---- the global random generators: ours never draw from them, a user's code may --------------------------------------
def random_state() -> dict[str, Any]:
    """States of Python's, numpy's and torch's global generators in this process."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, words, gauss_next = random.getstate()
    return {
        "python": [version, list(words), gauss_next],
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
    }


def set_random_state(ranks: Ranks, states: list[dict[str, Any]]) -> None:
    """Put this rank's generators where they stood; a run on another number of ranks or devices keeps its own."""
    if len(states) != ranks.world_size:
        return
    state = states[ranks.rank]
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
