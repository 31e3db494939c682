"""What a run shows while it trains, and the table at its end."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..battle.players import LEARNER, is_scripted, short_name
from ..report.dashboard import LEAST_HEIGHT, LEAST_WIDTH, View, dashboard
from ..run.screen import Screen, say, shown
from .base import (
    Phase,
    RunCallback,
    callbacks_of,
    datamodule_of,
    game_steps,
    iteration_row,
    iterations_done,
)
from .stopping import StopAfter

#: Seconds between two lines where the output is no terminal: readable in a log file, and no flood.
LINE_SECONDS = 5.0
#: Iterations that speeds and the end's table look back on.
WINDOW = 20


@dataclass
class Tally:
    """Results of the learner against one opponent."""

    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float | None:
        """Wins and half the draws, per game; ``None`` before the first game."""
        return (self.wins + 0.5 * self.draws) / self.games if self.games else None

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.wins + other.wins, self.draws + other.draws, self.losses + other.losses)


def tally(episodes: list[Any]) -> dict[str, Tally]:
    """The learner's results per opponent, without mirrors, restarted or staggered episodes and those cut short."""
    found: dict[str, Tally] = {}
    for episode in episodes:
        if episode.staggered or not episode.from_true_start or Counter(episode.players)[LEARNER] != 1:
            continue
        seat = episode.players.index(LEARNER)
        score = episode.score(seat)
        if score is None:
            continue
        one = Tally(wins=int(score == 1), draws=int(score == 0.5), losses=int(score == 0))
        opponent = episode.players[1 - seat]
        found[opponent] = found.get(opponent, Tally()) + one
    return found


def against_scripted(results: dict[str, Tally]) -> float | None:
    """The score over all scripted opponents together, or ``None`` when none was met."""
    return sum((t for name, t in results.items() if is_scripted(name)), Tally()).score


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def can_redraw(console: Console) -> bool:
    """Whether what was printed can be taken back: by a terminal that moves its cursor, or by a notebook's widget.

    ``FORCE_COLOR`` makes rich take a file for a terminal, and ``TERM=dumb`` is one that only appends.
    """
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_interactive and console.file.isatty()


@dataclass
class Status:
    """What one line of progress says."""

    iteration: int = 0
    phase: str = ""
    steps: int = 0
    seconds_per_step: float | None = None
    scripted: float | None = None
    seconds_left: float = float("inf")

    def line(self, scores: bool = True) -> str:
        """The line, with the score against the scripted opponents unless it stands beside it."""
        parts = [f"iteration {self.iteration}"]
        if self.phase:
            parts.append(f"{self.phase:<12}")
        parts.append(f"{self.steps:,} game steps")
        if self.seconds_per_step:
            parts.append(f"{1 / self.seconds_per_step:,.0f}/s")
        if scores:
            parts.append("vs scripted " + ("–" if self.scripted is None else f"{self.scripted:.2f}"))
        if self.seconds_left != float("inf"):
            parts.append(f"{clock(self.seconds_left)} left")
        return "  ".join(parts)

    @property
    def done(self) -> float | None:
        """Share of the run's game steps that are done; ``None`` where nothing says when it ends."""
        if not self.seconds_per_step or self.seconds_left == float("inf"):
            return None
        return self.steps / max(1.0, self.steps + self.seconds_left / self.seconds_per_step)


@dataclass
class History:
    """The last iterations: when each ended, at how many game steps, its results and its metric row."""

    ends: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW + 1))
    results: deque[dict[str, Tally]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    rows: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def pace(self) -> tuple[float, float] | None:
        """Seconds per game step and per iteration; ``None`` before the first iteration's end."""
        if len(self.ends) < 2:
            return None
        (t0, s0), (t1, s1) = self.ends[0], self.ends[-1]
        return (t1 - t0) / max(s1 - s0, 1), (t1 - t0) / (len(self.ends) - 1)

    def totals(self) -> dict[str, Tally]:
        total: dict[str, Tally] = {}
        for results in list(self.results):
            for name, one in results.items():
                total[name] = total.get(name, Tally()) + one
        return dict(sorted(total.items()))


class Progress(RunCallback, ProgressBar):
    """Iteration, game steps, speed, results against the scripted opponents and time left.

    A terminal shows them in a dashboard with where the time goes, scores, learning, rating and alarms; a small one,
    and a notebook with ipywidgets, in a line that is redrawn in place; elsewhere one plain line is printed every few
    seconds. Time left follows ``StopAfter`` and ``max_epochs``, else ``ppo.horizon_game_steps``. At the end a table
    shows the results of the last iterations per opponent.
    """

    phase = Phase.SCREEN

    def __init__(self) -> None:
        super().__init__()
        self._enabled = True
        self._console = Console(file=Screen.of(sys.stdout))
        self._live: Live | None = None
        self._status = Status()
        self._history = History()
        self._run = ""
        self._started = self._line_at = 0.0
        self._minibatches = 0

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """``trainer.print`` while the live line is shown: rich moves the line below it."""
        self._console.print(*args, **kwargs) if self._live else say(*args, **kwargs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = self._line_at = time.monotonic()
        self._history = History()
        self._history.ends.append((self._started, game_steps(trainer)))
        self._status = Status(iteration=trainer.current_epoch + 1, steps=game_steps(trainer))
        self._minibatches = int(trainer.num_training_batches)
        self._run = Path(trainer.default_root_dir).name
        if not self._enabled:
            return
        # Made here: a notebook or a test may have replaced stdout since the callback was built.
        self._console = Console(file=Screen.of(sys.stdout))
        if can_redraw(self._console):
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()

    def _render(self) -> Text | Panel:
        status, history, (width, height) = self._status, self._history, self._console.size
        if self._console.is_jupyter or width < LEAST_WIDTH or height < LEAST_HEIGHT:
            return Text(status.line(), overflow="ellipsis", no_wrap=True)
        # Lists: the training thread appends while this one draws.
        totals = history.totals().items()
        scores = [(short_name(name), t.games, t.score) for name, t in totals if t.score is not None]
        view = View(self._run, status.line(scores=False), status.done, list(history.rows), scores)
        return dashboard(view, min(width, 120))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._status.iteration = trainer.current_epoch + 1
        self._status.phase = "collect"

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._status.phase = f"update {batch_idx + 1}/{self._minibatches}"

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now = time.monotonic()
        steps = game_steps(trainer)
        results = tally(getattr(datamodule_of(trainer), "episodes", []))
        self._history.ends.append((now, steps))
        self._history.results.append(results)
        # What later callbacks add to the row, such as times, is there when it is drawn.
        self._history.rows.append(iteration_row(trainer))
        status = self._status
        # One iteration alone may end few battles, or none.
        status.phase, status.steps, status.scripted = "", steps, against_scripted(self._history.totals())
        if (pace := self._history.pace()) is not None:
            status.seconds_per_step = pace[0]
            status.seconds_left = self._seconds_left(trainer, pl_module, *pace)
        if self._enabled and self._live is None and now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            say(status.line())

    def _seconds_left(
        self, trainer: Trainer, pl_module: LightningModule, per_step: float, per_iteration: float
    ) -> float:
        done, steps = iterations_done(trainer), game_steps(trainer)
        left = [
            stop.seconds_left(steps, done, per_step, per_iteration)
            for stop in callbacks_of(trainer)
            if isinstance(stop, StopAfter)
        ]
        if trainer.max_epochs not in (None, -1):
            left.append((trainer.max_epochs - done) * per_iteration)
        shortest = min(left, default=float("inf"))
        horizon = getattr(getattr(pl_module, "ppo", None), "horizon_game_steps", None)
        if shortest == float("inf") and horizon:
            return max(0.0, (horizon - steps) * per_step)
        return shortest

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._close()
        if self._enabled:
            self._print_table(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print_table(self, trainer: Trainer) -> None:
        elapsed = time.monotonic() - self._started
        steps = game_steps(trainer)
        pace = self._history.pace()
        speed = f" at {1 / pace[0]:,.0f} game steps/s" if pace else ""
        table = Table(title_justify="left", title=f"last {len(self._history.results)} iterations")
        table.add_column("opponent")
        for column in ("games", "wins", "draws", "losses", "score"):
            table.add_column(column, justify="right")
        for name, t in self._history.totals().items():
            score = "" if t.score is None else f"{t.score:.2f}"
            table.add_row(short_name(name), str(t.games), str(t.wins), str(t.draws), str(t.losses), score)
        if table.rows:
            self._console.print(table)
        line = f"{trainer.current_epoch} iterations, {steps:,} game steps, {clock(elapsed)}{speed}"
        self._console.print(f"{line}: {shown(Path(trainer.default_root_dir))}", highlight=False, soft_wrap=True)
