"""The engine of this process: one RoyaleGym engine for cards and rules, any number of raw battles.

Building a ``RustEngine`` takes a second, a raw battle 90 ms, a reset 0.7 ms; so the first is shared, the second
are made once and reused through reset.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import royalesim
from royalegym.protocol import BattleState, MatchSetup
from royalegym.rust_engine import RustEngine

from .state_json import check_engine_columns

#: The compiled module, untyped.
_core: Any = royalesim
#: The shared engine acts on one battle at a time: cache misses, resets and decodes swap its battle in.
_LOCK = threading.RLock()


@lru_cache(maxsize=1)
def shared_engine() -> RustEngine:
    """The process's ``RustEngine``: catalogue, rules, arena, oracle."""
    check_engine_columns(royalesim)
    return RustEngine()


def new_battle() -> Any:
    """A raw ``royalesim.Battle`` that plays exactly the shared engine's battles (its card table and arms)."""
    e = shared_engine()
    run = {**e.gym_arms, **e.calibration_overrides}
    overrides = {"calibration_overrides": {k: json.dumps(v) for k, v in run.items()}} if run else {}
    return _core.Battle(
        None, e.slot_of_k, e.path_search, e.ground_y_clamp, e.ground_deploy_point, **overrides
    )


def new_engine() -> RustEngine:
    """A ``RustEngine`` of its own battle, for one RoyaleGym environment; a tenth of the price of a fresh one."""
    engine = copy.copy(shared_engine())
    engine._battle = new_battle()
    engine._setup_cards = None
    engine.command_delay_ticks = (0, 0)
    return engine


@contextmanager
def engine_on(battle: Any) -> Iterator[RustEngine]:
    """The shared engine, acting on ``battle`` while the block runs."""
    e = shared_engine()
    with _LOCK:
        kept = e._battle
        e._battle = battle
        try:
            yield e
        finally:
            e._battle = kept


def reset_battle(battle: Any, seed: int, setup: MatchSetup) -> None:
    """Start ``setup`` on a raw battle, through RoyaleGym's own checks."""
    with engine_on(battle) as e:
        e.reset(seed, setup)


def decode_state(battle: Any) -> BattleState:
    """RoyaleGym's view of a raw battle."""
    with engine_on(battle) as e:
        return e.state()


def engine_identity() -> dict[str, str]:
    """What must be the same for the same battle to follow from the same commands."""
    e = shared_engine()
    config = e.config()
    return {
        "royalesim": str(getattr(royalesim, "__version__", "unknown")),
        "snapshot_format": str(_core.SNAPSHOT_FORMAT),
        **{k: str(config[k]) for k in ("build_digest", "engine_binary_sha256", "cards_json_fnv1a64",
                                      "calibration_digest")},
    }
