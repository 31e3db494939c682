"""What a run folder holds, read leniently: a live run's last line may be torn, and every file but the log missing."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..bots.plays import BattlePlays, read_plays
from ..errors import UserError
from .behaviour import Behaviour, count_plays

Row = dict[str, Any]


@dataclass
class Replay:
    """One battle's page.

    Args:
        label: its set and what it was chosen for.
        title: who played and how it went; empty where no data lies beside the page.
        html: the page itself.
    """

    label: str
    title: str
    html: str


@dataclass
class Run:
    """Everything a report shows; an absent part is None or empty.

    Args:
        name: of the folder.
        rows: of ``metrics.jsonl``, one per iteration.
        results: of ``results.jsonl``, one per battle.
        scores: ``scores.json``, else ``validation.json``.
        ladder: ``ladder/ladder.json``.
        verdicts: ``ladder/verdict-*.json`` in their order.
        alarms: of ``alarms.jsonl``.
        drift: of ``drift.jsonl``.
        config: the configuration it was last started with, as text, and the settings in it.
        bot: ``bot/bot.json``.
        replays: newest first.
        behaviour: counted over the plays beside all replays; None where there are none.
        age: seconds since the last row was written.
    """

    name: str
    rows: list[Row]
    results: list[Row] = field(default_factory=list)
    scores: Row | None = None
    ladder: Row | None = None
    verdicts: list[Row] = field(default_factory=list)
    alarms: list[Row] = field(default_factory=list)
    drift: list[Row] = field(default_factory=list)
    config: str = ""
    settings: Row = field(default_factory=dict)
    bot: Row | None = None
    replays: list[Replay] = field(default_factory=list)
    behaviour: Behaviour | None = None
    age: float = 0.0

    def column(self, key: str) -> tuple[list[float], list[float]]:
        """Game steps and values of a metric, where it was measured."""
        found = [(float(r["game_steps"]), float(r[key])) for r in self.rows if key in r and "game_steps" in r]
        return [x for x, _ in found], [y for _, y in found]

    def keys(self, prefix: str) -> list[str]:
        """Metrics of one group, in the order of their first appearance."""
        return list(dict.fromkeys(k for r in self.rows for k in r if k.startswith(prefix)))


def read_run(folder: Path, replays: int) -> Run:
    """Read a run folder.

    Args:
        replays: pages to keep, the newest ones.

    Raises:
        UserError: there is no ``metrics.jsonl`` with a row.
    """
    log = folder / "metrics.jsonl"
    rows = _lines(log)
    if not rows:
        raise UserError(f"{str(folder)!r} holds no run to report: {str(log)!r} has no rows; give a run folder")
    pages = sorted(folder.glob("replays/**/*.html"), key=lambda p: (p.stat().st_mtime, str(p)), reverse=True)
    plays = {p: read_plays(p) for p in pages}
    config = _newest_config(folder)
    return Run(
        name=folder.resolve().name,
        rows=rows,
        results=_lines(folder / "results.jsonl"),
        scores=_json(folder / "scores.json") or _json(folder / "validation.json"),
        ladder=_json(folder / "ladder" / "ladder.json"),
        verdicts=[v for p in sorted(folder.glob("ladder/verdict-*.json")) if (v := _json(p)) is not None],
        alarms=_lines(folder / "alarms.jsonl"),
        drift=_lines(folder / "drift.jsonl"),
        config=config,
        settings=_settings(config),
        bot=_json(folder / "bot" / "bot.json"),
        replays=[_replay(p, plays[p], folder / "replays") for p in pages[:replays]],
        behaviour=count_plays(p for p in plays.values() if p is not None),
        age=max(0.0, time.time() - log.stat().st_mtime),
    )


def _replay(path: Path, plays: BattlePlays | None, root: Path) -> Replay:
    html = path.read_text(encoding="utf-8", errors="replace")
    return Replay(str(path.relative_to(root).with_suffix("")), plays.title if plays is not None else "", html)


def _lines(path: Path) -> list[Row]:
    """The objects of a JSONL file; lines that are none are left out."""
    out = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                out.append(value)
    return out


def _json(path: Path) -> Row | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _settings(config: str) -> Row:
    try:
        value = yaml.safe_load(config)
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def _newest_config(folder: Path) -> str:
    found: Sequence[Path] = sorted(folder.glob("config*.yaml"), key=lambda p: p.stat().st_mtime)
    return found[-1].read_text(encoding="utf-8", errors="replace") if found else ""
