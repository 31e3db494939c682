"""Alarms over the metric row: into the row, ``alarms.jsonl`` and the console; the severe ones end the run."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from ..errors import UserError
from ..metrics.alarms import ALARMS, HALT, Alarm, Event, Panel, assemble
from ..metrics.shipped import shipped_alarms
from ..parts import Part, PartLike
from ..run.atomic import write_atomic
from ..run.ranks import Ranks
from ..run.screen import say, shown
from .base import LoggedCallback, Phase, datamodule_of, game_steps, is_dry, iteration_row, iterations_done

#: What the bundle of a run that an alarm ended holds: rows to see how it came, battles to see what it plays.
_ROWS, _EPISODES = 50, 20


class Alarms(LoggedCallback):
    """Judge every row by the shipped alarms (``royale_lightning/metrics/README.md`` lists them) and a user's own.

    Not part of a run's identity. What an alarm has seen goes into checkpoints.

    Args:
        extra: alarms of your own, each a ``threshold`` or an ``Alarm``; one named like a shipped one replaces it.
        off: names of alarms to leave out.
        halt: whether severe alarms end the run, at the iteration's end, with a checkpoint and a bundle of its last rows
            and battles; false makes them warnings.

    Attributes:
        halted: names of the alarms that ended the run.
    """

    phase = Phase.ALARMS
    log_file = "alarms.jsonl"
    offset_key = "alarms_offset"

    def __init__(
        self, extra: list[PartLike] | None = None, off: list[str] | None = None, halt: bool = True
    ) -> None:
        super().__init__()
        self.extra = [_built(Part.of(e, "alarms.extra", ALARMS)) for e in extra or ()]
        self.off = list(off or ())
        self.halt = halt
        assemble(shipped_alarms(), self.extra, self.off)  # a wrong name shows now
        self.halted: list[str] = []
        self._panel: Panel | None = None
        self._state: dict[str, Any] | None = None
        self._rows: deque[dict[str, float]] = deque(maxlen=_ROWS)
        self._episodes: deque[Any] = deque(maxlen=_EPISODES)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        self.halted = []
        self._rows.clear()
        self._episodes.clear()
        tolerance = getattr(pl_module, "ratio_tolerance", None)
        shipped = shipped_alarms() if tolerance is None else shipped_alarms(tolerance)
        self._panel = Panel(assemble(shipped, self.extra, self.off))
        state, self._state = self._state, None
        if state is not None:
            self._panel.load_state_dict(state)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        row = iteration_row(trainer)
        severe: list[str] = []
        if trainer.is_global_zero:
            assert self._panel is not None
            events = self._panel.judge(row)
            row["alarms/active"] = len(self._panel.active)
            row.update({f"alarm/{name}": 1.0 for name in self._panel.active})
            self._rows.append(row)
            self._episodes.extend(getattr(datamodule_of(trainer), "episodes", ()))
            for event in events:
                self._tell(trainer, event)
            if self.halt:
                severe = [e.alarm.name for e in events if e.on and e.alarm.severity == HALT]
        # One rank alone must not stop: the others would wait for it.
        if Ranks.of(trainer).any(bool(severe)):
            self.halted = severe
            trainer.should_stop = True
            if severe and not is_dry(trainer):
                self._bundle(trainer, severe)

    def _tell(self, trainer: Trainer, event: Event) -> None:
        alarm = event.alarm
        # Opened by the first alarm: most runs have none.
        self.append({
            "iteration": iterations_done(trainer), "game_steps": game_steps(trainer), "alarm": alarm.name,
            "on": event.on, "severity": alarm.severity if self.halt else "warn", "condition": alarm.condition,
            "patience": alarm.patience, "figures": event.text, "advice": alarm.advice,
        })
        if event.on:
            held = f" for {alarm.patience} rows" if alarm.patience > 1 else ""
            advice = f"; {alarm.advice}" if alarm.advice else ""
            say(f"alarm {alarm.name}: {alarm.condition}{held} ({event.text}){advice}")
        else:
            say(f"alarm {alarm.name} is over ({event.text})")

    def _bundle(self, trainer: Trainer, severe: list[str]) -> None:
        """``bundles/<alarm>-<iteration>/``: what led to the end, beside the checkpoint and the configuration."""
        run = Path(trainer.default_root_dir)
        folder = run / "bundles" / f"{severe[0]}-{iterations_done(trainer):06d}"
        try:
            _write(folder / "rows.jsonl", [_finite(r) for r in self._rows])
            _write(folder / "episodes.jsonl", [asdict(e) for e in self._episodes])
            where = f"; what led to it lies in {shown(folder)}"
        except OSError as failure:  # the run is ending; the checkpoint matters more
            where = f"; no bundle was written ({failure.strerror or failure})"
        say(
            f"the run ends at alarm {', '.join(severe)}{where}; continue with --ckpt_path "
            f"{shown(run / 'checkpoints' / 'last.ckpt')}, if need be with --alarms.off '{json.dumps(severe)}'"
        )

    # ---- state -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        panel = self._panel.state_dict() if self._panel is not None else {}
        return {**super().state_dict(), "panel": panel}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._state = state_dict["panel"] or None


def _built(part: Part) -> Alarm:
    try:
        made: Alarm = part.build("alarms.extra", kind=Alarm)
    except TypeError as exc:
        # ``**settings`` of an alarm hides from the check of names what its base does not take.
        raise UserError(f"alarms.extra: {part.class_path} does not take these init_args ({exc})") from exc
    return made


def _finite(row: Mapping[str, float]) -> dict[str, Any]:
    """A row as JSON holds it: what is not finite as text, since here it is what one looks for."""
    return {k: v if v is None or math.isfinite(v) else str(v) for k, v in row.items()}


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    write_atomic(path, "".join(json.dumps(line, default=repr) + "\n" for line in lines).encode())
