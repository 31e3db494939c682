"""Steer a run that is going on by writing a line into its run folder."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import near_matches
from ..run import folder as run_folder
from ..run.identity import TUNED, Change
from ..run.ranks import Ranks
from ..run.screen import say
from .base import Phase, RunCallback, callbacks_of, is_dry
from .checkpoint import RunCheckpoint
from .resume_rules import identity_of, resume_rules
from .stopping import SignalStop

FILE = "control.txt"
#: Seconds between two looks at the file while a run is paused.
_POLL = 0.5
COMMANDS = ("checkpoint", "pause", "resume", "stop", "learning_rate")


def read_commands(path: Path) -> list[str]:
    """The lines of a control file, which is taken away; none where there is no file.

    Windows editors write UTF-16 or a byte-order mark; both are read.
    """
    if not path.exists():
        return []
    taken = path.with_name(f"{path.name}.taken")
    try:
        os.replace(path, taken)
        data = taken.read_bytes()
        taken.unlink()
    except OSError:
        return []
    coding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    lines = data.decode(coding, errors="replace").replace("\x00", "").splitlines()
    return [x.strip() for x in lines if x.strip()]


class LiveControl(RunCallback):
    """Reads ``control.txt`` in the run folder at the end of every iteration, and takes it away. One command a line::

        checkpoint             save one at this iteration's end
        pause                  wait before the next iteration, until resume or stop
        resume
        stop                   end the run at this iteration's end (paused: at the next one's)
        learning_rate 1e-4     from the next iteration on, a constant; recorded as drift, and in the run's config

    A line that is none of these is named on the screen, and the run goes on.
    """

    phase = Phase.CONTROL

    def __init__(self) -> None:
        self._paused = self._stop = False

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._obey(trainer, pl_module)
        if self._stop:
            trainer.should_stop = True
        if trainer.should_stop:
            self._paused = self._stop = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Here and not at the epoch's end, where this iteration's checkpoint is still to come.
        if self._paused and trainer.is_global_zero:
            say("paused: write resume or stop into control.txt")
        while self._paused:
            time.sleep(_POLL)
            self._obey(trainer, pl_module)
            if self._interrupted(trainer):
                self._paused = False

    @staticmethod
    def _interrupted(trainer: Trainer) -> bool:
        received = any(c.received is not None for c in callbacks_of(trainer) if isinstance(c, SignalStop))
        return Ranks.of(trainer).any(received)

    def _obey(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_dry(trainer):
            return
        path = Path(trainer.default_root_dir) / FILE
        for line in Ranks.of(trainer).from_rank_zero(lambda: read_commands(path)):
            said = self._one(trainer, pl_module, line)
            if trainer.is_global_zero:
                say(f"control: {said}")

    def _one(self, trainer: Trainer, pl_module: LightningModule, line: str) -> str:
        word, _, rest = line.partition(" ")
        word = word.lower()
        if word == "checkpoint":
            for c in callbacks_of(trainer):
                if isinstance(c, RunCheckpoint):
                    c.due = True
            return "a checkpoint at this iteration's end"
        if word in ("pause", "resume"):
            self._paused = word == "pause"
            return f"{word}d"
        if word == "stop":
            # Not should_stop at once: while paused that would end the next iteration before its first minibatch.
            self._stop, self._paused = True, False
            return "stopping at an iteration's end"
        if word == "learning_rate":
            return self._learning_rate(trainer, pl_module, rest)
        return f"{word!r} is none of {', '.join(COMMANDS)}{near_matches(word, COMMANDS)}"

    @staticmethod
    def _learning_rate(trainer: Trainer, pl_module: Any, text: str) -> str:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            return f"learning_rate takes a number above 0, not {text!r}"
        if not hasattr(pl_module, "ppo"):
            return f"a {type(pl_module).__name__} has no learning rate to change"
        before = pl_module.ppo.learning_rate
        pl_module.ppo = replace(pl_module.ppo, learning_rate=value)
        if isinstance(pl_module.hparams.get("ppo"), dict):
            pl_module.hparams["ppo"]["learning_rate"] = value
        if (rules := resume_rules(trainer)) is not None:
            rules.identity = identity_of(trainer)
            rules.record(trainer, Change("model.ppo.learning_rate", before, value, TUNED))
        if trainer.is_global_zero:
            run_folder.change_config(Path(trainer.default_root_dir), "model.ppo.learning_rate", value)
        return f"learning_rate {before} -> {value}"
