"""What a terminal shows of a run that goes on: a pure function of the latest rows, after PufferLib's dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..metrics.intervals import Z95
from ..metrics.row import PARTS

#: A terminal smaller than this gets the line instead: the panel would be cut, or redrawn over what scrolled away.
LEAST_WIDTH, LEAST_HEIGHT = 72, 22
#: Parts of the time that are shown, the largest ones.
_PARTS = 7
#: Opponents that are shown: those met most.
_OPPONENTS = 7
#: Figures of the learning, and what they are called here.
_LEARNING = (
    ("ppo/approx_kl", "KL", ".4f"), ("ppo/clip_fraction", "clipped", ".3f"), ("ppo/entropy_play", "entropy", ".2f"),
    ("ppo/explained_variance", "critic explains", ".2f"), ("ppo/learning_rate", "learning rate", ".2g"),
)


@dataclass
class View:
    """What the dashboard shows.

    Attributes:
        run: name of the run folder.
        line: iteration, phase, speed and time left, as where there is no dashboard.
        done: share of the run that is done, 0 to 1; None where nothing says when it ends.
        rows: metric rows of the last iterations, oldest first.
        scores: opponent, games, score; over those iterations.
    """

    run: str = ""
    line: str = ""
    done: float | None = None
    rows: Sequence[Mapping[str, float]] = ()
    scores: Sequence[tuple[str, int, float]] = field(default_factory=tuple)


def time_shares(rows: Sequence[Mapping[str, float]]) -> list[tuple[str, float]]:
    """Each part's share of the iterations' time, largest first; empty before a row was timed."""
    timed = [r for r in rows if "time/iteration" in r]
    whole = sum(r["time/iteration"] for r in timed)
    parts = {p: sum(r.get(f"time/{p}", 0.0) for r in timed) for p in (*PARTS, "rest")}
    shares = [(p, seconds / whole) for p, seconds in parts.items() if whole > 0]
    return sorted(shares, key=lambda s: -s[1])


def latest(rows: Sequence[Mapping[str, float]], key: str) -> float | None:
    """The newest value of a figure that not every row has."""
    return next((r[key] for r in reversed(rows) if r.get(key) is not None), None)


def alarms_on(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Names of the alarms that the latest row has."""
    return sorted(k.removeprefix("alarm/") for k in list(rows[-1] if rows else ()) if k.startswith("alarm/"))


def dashboard(view: View, width: int) -> Panel:
    """The panel, ``width`` columns wide."""
    inner = width - 4
    out: list[Text | Table] = [Text(view.line, overflow="ellipsis", no_wrap=True)]
    if view.done is not None:
        # In a table, for a bar by itself ends no line.
        bar = Table.grid()
        bar.add_row(ProgressBar(total=1.0, completed=min(1.0, view.done), width=inner))
        out.append(bar)
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=2)
    columns.add_column(ratio=3)
    columns.add_row(_times(view.rows), _scores(view.scores, inner * 3 // 5))
    out.append(columns)
    out.append(_learning(view.rows))
    rating = _rating(view.rows)
    if rating:
        out.append(Text(rating, no_wrap=True, overflow="ellipsis"))
    names = alarms_on(view.rows)
    out.append(
        Text(f"alarms: {', '.join(names)}", style="bold red", overflow="ellipsis", no_wrap=True) if names
        else Text("no alarms", style="dim")
    )
    return Panel(Group(*out), title=view.run, title_align="left", width=width)


def _times(rows: Sequence[Mapping[str, float]]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("time", no_wrap=True)
    table.add_column("%", justify="right")
    for part, share in time_shares(rows)[:_PARTS]:
        if share >= 0.005:
            table.add_row(part.replace("_", " "), f"{100 * share:.0f}")
    rate, learned = latest(rows, "speed/game_steps_per_s"), latest(rows, "speed/rows_per_s")
    if rate is not None:
        table.add_row("game steps/s", f"{rate:,.0f}", style="bold")
    if learned is not None:
        table.add_row("rows/s", f"{learned:,.0f}", style="bold")
    return table


def _scores(scores: Sequence[tuple[str, int, float]], width: int) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("against", no_wrap=True, overflow="ellipsis", max_width=18)
    table.add_column("score", justify="right")
    table.add_column("")
    table.add_column("games", justify="right")
    bar = max(4, width - 18 - 5 - 6 - 8)
    for name, games, score in sorted(scores, key=lambda s: -s[1])[:_OPPONENTS]:
        table.add_row(name, f"{score:.2f}", ProgressBar(total=1.0, completed=score, width=bar), str(games))
    return table


def _learning(rows: Sequence[Mapping[str, float]]) -> Text:
    found = [(name, latest(rows, key), how) for key, name, how in _LEARNING]
    text = "   ".join(f"{name} {value:{how}}" for name, value, how in found if value is not None)
    return Text(text, overflow="ellipsis", no_wrap=True)


def _rating(rows: Sequence[Mapping[str, float]]) -> str:
    rating, error = latest(rows, "ladder/rating"), latest(rows, "ladder/rating_se")
    if rating is None:
        return ""
    if latest(rows, "ladder/rating_separable"):
        return f"rating about {rating:.0f} Elo (swept: the number is the prior's)"
    over, over_error = latest(rows, "ladder/over_champion"), latest(rows, "ladder/over_champion_se")
    # A rating's own error is mostly everybody's distance to the anchor.
    if over is not None and over_error is not None:
        return f"rating {rating:.0f} Elo, {over:+.0f} ± {Z95 * over_error:.0f} over the champion (95 %)"
    return f"rating {rating:.0f}" + (f" ± {Z95 * error:.0f}" if error is not None else "") + " Elo (95 %)"
