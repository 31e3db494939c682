"""RoyaleGym's replay page with a panel beside it: the policy's value and likeliest actions at each decision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

from royalegym.render import render_html
from royalegym.replay import Trace

from ..battle.actions import ActionLayout
from .decisions import Decision


@cache
def _script() -> str:
    return Path(__file__).with_name("replay_page.js").read_text(encoding="utf-8")


def render_replay(
    trace: Trace, title: str, *, stride: int = 1, players: tuple[str, str] = ("blue", "red"),
    decisions: Sequence[Decision] = (), actions: ActionLayout | None = None,
) -> str:
    """One self-contained page.

    Args:
        trace: what is shown.
        stride: of its frames.
        players: names of blue and red.
        decisions: of either seat or both; without any, the page is RoyaleGym's own.
        actions: the action space they are of.
    """
    page = render_html(trace, title=title, stride=stride)
    if not decisions:
        return page
    data = {
        "players": players,
        "actions": asdict(actions or ActionLayout()),
        "decisions": [_rounded(d) for d in decisions],
    }
    # "<" occurs in JSON strings alone, where its escape is the same character, and would end the script element.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    panel = f'<script type="application/json" id="decisions-data">{text}</script>\n<script>\n{_script()}</script>\n'
    head, _, tail = page.rpartition("</body>")
    return f"{head}{panel}</body>{tail}"


def _rounded(d: Decision) -> dict[str, object]:
    """Four digits: what a page shows, at a third of the bytes."""
    return {
        **d.as_dict(),
        "value": None if d.value is None else round(d.value, 4),
        "p_wait": round(d.p_wait, 4),
        "top": [(a, round(p, 4)) for a, p in d.top],
    }
