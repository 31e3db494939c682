"""Saves chosen battles of the training itself, with what the policy thinks of them."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from lightning.pytorch import LightningModule, Trainer
from royalegym.env import ClashParallelEnv

from ..battle.players import LEARNER
from ..battle.prepare import prepare
from ..bots.chosen_battles import ChosenBattles
from ..errors import UserError
from ..rollout.data import data_of
from ..run.atomic import set_aside
from ..run.screen import say
from .base import Phase, RunCallback, add_seconds, is_dry, iteration_row, iterations_done
from .loggers import log_replays

OnWritten = Callable[[Trainer, Path], None]
#: Folder of the sets inside a run, ``replays/iteration-000050/best.html``.
REPLAYS = "replays"


class BattleReplays(RunCallback):
    """Every so many iterations, write a few of the battles that were just trained on as replays.

    The best, the worst, the least expected and the latest against each opponent: traces that verify, and pages that
    show, beside the battle, the policy's value and likeliest actions at each decision, as it judges them when they are
    written. Only whole battles from their true start are taken, and on several ranks those of rank 0. They cost no
    battle of their own, but each is played once more to be recorded: 0.4 s on one core, so some 3 s a set.

    A battle that replays otherwise, or that the disk has no room for, is left out of its set and counted in
    ``health/replays_failed``; nothing that is only looked at ends a run.

    Args:
        every: iterations between two sets. 50 are some four minutes of the first bot's run, of which a set is 1 %.
        keep: sets that are kept, the newest ones; -1 keeps all. A set is some 7 MB.

    Attributes:
        on_written: functions called with the trainer and the folder of a finished set, such as the loggers' view.
    """

    phase = Phase.REPLAYS
    #: What ``on_written`` starts with.
    default_on_written: ClassVar[tuple[OnWritten, ...]] = (log_replays,)

    def __init__(self, every: int = 50, keep: int = 5) -> None:
        if every < 1:
            raise UserError(f"BattleReplays.every is {every}; it must be at least 1 iteration")
        if keep < 1 and keep != -1:
            raise UserError(f"BattleReplays.keep is {keep}; keep at least 1 set, or -1 for all")
        self.every = every
        self.keep = keep
        self.on_written: list[OnWritten] = list(self.default_on_written)
        self._battles = ChosenBattles()
        self._env: ClashParallelEnv | None = None

    def state_dict(self) -> dict[str, Any]:
        return self._battles.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._battles = ChosenBattles.from_state(state_dict)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            # Before the battles exist: from their first episode on they keep what a replay needs.
            data_of(trainer).register(keep_commands=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not is_dry(trainer):
            # Of a history that is given up: kept for ever, or the reason to drop each new one.
            for iteration, folder in _sets(Path(trainer.default_root_dir) / REPLAYS).items():
                if iteration > trainer.current_epoch:
                    set_aside(folder)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or is_dry(trainer):
            return
        for record in data_of(trainer).episodes:
            self._battles.offer(record)
        iteration = iterations_done(trainer)
        if iteration % self.every:
            return
        started = time.monotonic()
        folder = Path(trainer.default_root_dir) / REPLAYS / f"iteration-{iteration:06d}"
        row = iteration_row(trainer)
        row["health/replays_failed"] = self._write(trainer, pl_module, folder)
        if folder.is_dir():
            for follow in self.on_written:
                follow(trainer, folder)
        add_seconds(row, "time/replays", time.monotonic() - started)

    def _write(self, trainer: Trainer, pl_module: Any, folder: Path) -> int:
        """Write a set and drop old ones; how many battles could not be written."""
        # Here: a run without replays never imports a page.
        from ..battle.environment import make_env
        from ..bots.decisions import DecisionLog
        from ..bots.replays import replay_record, write_replay

        spec = data_of(trainer).battle
        failed = 0
        for what, record in self._battles.take().items():
            name = _file_name(what)
            try:
                self._env = self._env or make_env(spec)
                log = DecisionLog(prepare(spec).row_layout, [s for s in (0, 1) if record.players[s] == LEARNER])
                trace = replay_record(record, spec, self._env, log=log, every_tick=False)
                decisions = log.judge(pl_module.network, pl_module.actions, with_value=True)
                write_replay(trace, record, folder, decisions=decisions, actions=pl_module.actions, name=name)
            except (OSError, RuntimeError, ValueError) as problem:
                failed += 1
                say(f"no replay of the battle {what} ({problem}); the run goes on")
                for torn in folder.glob(f"{name}.*"):
                    with contextlib.suppress(OSError):
                        torn.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()  # where nothing was written
        if self.keep != -1:
            for old in list(_sets(folder.parent).values())[: -self.keep]:
                # Whoever holds one of its files open keeps it; the next set tries again.
                shutil.rmtree(old, ignore_errors=True)
        return failed

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._env = None


def _sets(folder: Path) -> dict[int, Path]:
    """The sets of a run's history by iteration, ascending."""
    found = {int(m[1]): p for p in folder.glob("iteration-*") if (m := re.fullmatch(r"iteration-(\d+)", p.name))}
    return dict(sorted(found.items()))


def _file_name(what: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.+" else "_" for c in what)
