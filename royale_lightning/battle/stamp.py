"""Which game this is: everything that decides whether a saved moment goes on as the same battle here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields

from .engine.engine import engine_identity, shared_engine
from .prepare import digested, prepare
from .spec import BattleSpec


@dataclass(frozen=True)
class Stamp:
    """All digests that decide whether a save state continues as the same battle here.

    RoyaleGym's engine matches cards by name, so that bytes of another build or balance table can load and quietly
    play a different battle. Two stamps that differ anywhere are two different games.

    Args:
        engine: version and build digest of the engine.
        binary: sha256 of the engine's compiled module.
        snapshot_format: version of the engine's own save format.
        cards: digest of the card table.
        calibration: digest of the calibration with its overrides.
        decision_ms: length of a game step.
        command_delay_ticks: between a tap and its play.
        observation: digest of the observation's row layout.
        actions: digest of the action space.
        battle: digest of the remaining battle settings (reward, done conditions, decks).
        key_function: digest of the quantisation behind every key.
    """

    engine: str
    binary: str
    snapshot_format: str
    cards: str
    calibration: str
    decision_ms: int
    command_delay_ticks: int
    observation: str
    actions: str
    battle: str
    key_function: str

    def difference(self, here: Stamp) -> str:
        """``"cards is A there and B here, ..."``, empty when equal."""
        return ", ".join(
            f"{f.name} is {getattr(self, f.name)} there and {getattr(here, f.name)} here"
            for f in fields(self)
            if getattr(self, f.name) != getattr(here, f.name)
        )

    @property
    def digest(self) -> str:
        """16 hex digits."""
        return _digest(asdict(self))


def stamp_of(spec: BattleSpec, key_function: str) -> Stamp:
    """The stamp of these battles on this process's engine.

    Args:
        key_function: digest of the quantisation that keys their moments.
    """
    battle = prepare(spec)
    engine, identity, settings = shared_engine(), engine_identity(), digested(spec.as_dict())
    overrides = {"calibration": dict(engine.calibration_overrides), "arms": dict(engine.gym_arms)}
    rest = ("deck", "reward", "start", "termination", "truncation", "max_ticks")
    return Stamp(
        engine=f"{identity['royalesim']}/{identity['build_digest']}",
        binary=identity["engine_binary_sha256"],
        snapshot_format=identity["snapshot_format"],
        cards=identity["cards_json_fnv1a64"],
        calibration=_digest([identity["calibration_digest"], overrides]),
        decision_ms=spec.decision_ms,
        command_delay_ticks=spec.command_delay_ticks,
        observation=battle.row_layout.digest,
        actions=_digest([settings["actions"], asdict(battle.action_layout)]),
        battle=_digest({k: settings[k] for k in rest}),
        key_function=key_function,
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
