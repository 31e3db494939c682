"""What a battle's result may be compared with: a digest of the battles' rules and of the engine that plays them.

A player's name says who it is only there: ``scripted:push`` with another deck, or under another engine, is another
opponent. So each line of the results log carries the context of its battle, an earlier battle is taken instead of a new
one only in its own, and no fit joins two.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ..battle.engine.engine import engine_identity
from ..battle.spec import BattleSpec
from ..errors import UserError
from .results import Result


def context_of(spec: BattleSpec) -> str:
    """16 hex digits over what whole battles of ``spec`` are: decks, decision length, delay, actions, the engine, and
    RoyaleGym, whose scripted opponents are players.

    Observation, reward, start states and limits are left out: they belong to a player or to its training.
    """
    return _digest(spec, engine_identity())


def recorded_context(run: Path) -> str | None:
    """The context that a run's bot was trained in, for runs from before there were contexts: decks, rules and engine
    as ``bot/bot.json`` holds them, with the RoyaleGym of today, whose version they did not note.

    None where nothing readable is recorded.
    """
    try:
        record = json.loads((run / "bot" / "bot.json").read_text(encoding="utf-8"))
        return _digest(BattleSpec(**record["battle"]), record["engine"])
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None


def of_context(results: Iterable[Result], context: str, unmarked: str) -> list[Result]:
    """Those played in ``context``, each marked with it.

    Args:
        unmarked: the context of results without one.
    """
    return [msgspec.structs.replace(r, context=context) for r in results if (r.context or unmarked) == context]


def _digest(spec: BattleSpec, engine: Mapping[str, str]) -> str:
    actions = spec.part("actions")
    rules = [
        spec.decks or spec.deck, spec.decision_ms, spec.command_delay_ticks, actions and actions.as_dict(),
        dict(engine), importlib.metadata.version("royalegym"),
    ]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]
