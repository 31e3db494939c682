"""What a measure found: a table for people, a file for tools."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ...errors import UserError
from ...run.atomic import write_atomic

SCHEMA, TOOL = 1, "bench"
#: Columns of a table that goes to a file.
WIDTH = 120


@dataclass
class Report:
    """What a measure found.

    Args:
        result: flat figures by name.
        lines: rows of the table: what was measured, and the figures' names in the order they are shown.
        inputs: further inputs to record, beside the arguments.
        notes: sentences below the table.
    """

    result: dict[str, float]
    lines: Sequence[tuple[str, str]]
    inputs: dict[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()


def machine() -> dict[str, Any]:
    """What the figures depend on beside the arguments."""
    from ...battle.engine.engine import engine_identity
    from ...battle.steps.arena import default_threads

    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count() or 1,
        "usable_cores": default_threads(),
        "royalesim": engine_identity()["royalesim"],
    }


def check_target(path: str | None) -> Path | None:
    """Where ``--json`` shall write, checked before minutes of measuring.

    Raises:
        UserError: it cannot be written to.
    """
    if path is None:
        return None
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        why = "that is a folder" if target.is_dir() else "its folder does not exist"
        raise UserError(f"--json is {path!r}, but {why}; give a file in a folder that exists")
    return target


def number(x: float) -> str:
    """A figure for people: three significant digits, whole numbers whole."""
    if x == int(x) and abs(x) < 1e6:
        return f"{int(x):,}"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}" if abs(x) < 1e-3 else f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"


def table(name: str, report: Report) -> Table:
    """One row per line of the report, ratios with their range."""
    out = Table(title=f"bench {name}", title_justify="left")
    out.add_column("measured")
    out.add_column("figure", justify="right")
    out.add_column("range", justify="right")
    out.add_column("key", style="dim")
    for label, key in report.lines:
        if key not in report.result:
            continue
        low, high = report.result.get(f"{key}_low"), report.result.get(f"{key}_high")
        spread = "" if low is None or high is None else f"{number(low)} to {number(high)}"
        out.add_row(label, number(report.result[key]), spread, key)
    return out


def show(name: str, report: Report, console: Console | None = None) -> None:
    """Print the table and the notes below it."""
    if console is None:
        console = Console()
        if not console.is_terminal:
            # A log file has no edge to fold at.
            console = Console(width=WIDTH)
    console.print(table(name, report))
    for note in report.notes:
        console.print(note)


def write(path: Path, inputs: dict[str, Any], report: Report) -> None:
    """Write the report's figures as JSON."""
    document = {"schema": SCHEMA, "tool": TOOL, "inputs": {**inputs, **machine()}, "result": report.result}
    write_atomic(path, json.dumps(document, indent=2).encode() + b"\n")
