"""``RUN/ladder/ladder.json``: the ladder's state as tools read it, while a run goes on and after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..battle.spec import BattleSpec
from ..bots.bot_files import write_atomic
from ..errors import UserError
from .snapshots import FOLDER, SnapshotStore

STATE = "ladder/ladder.json"


def write_state(run: Path, spec: BattleSpec, state: Mapping[str, Any]) -> None:
    """Write it, atomically.

    Args:
        spec: what is played.
        state: ``members``, ``champion``, ``ratings`` and ``record``.

    Raises:
        OSError: such as a full disk.
    """
    path = run / STATE
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": 1, **state, "battle": spec.as_dict()}, indent=1, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def read_state(run: Path) -> dict[str, Any]:
    """What a run's ladder holds: ``members``, ``champion``, ``ratings``.

    Raises:
        UserError: it cannot be read.
    """
    file = run / STATE
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{str(run)!r} has no ladder: {str(file)!r} cannot be read ({problem})") from problem
    return state


def battles_of(run: Path, state: Mapping[str, Any]) -> BattleSpec:
    """The battles of a run, as :func:`read_state` has them; where it is of a version that did not write them, those of
    the run's newest snapshot of its own.

    Raises:
        UserError: nothing says what they are, or they are none of this installation's.
    """
    battle = state.get("battle")
    if battle is None:
        own = [m["snapshot"] for m in state["members"] if m["role"] != "given"]
        if not own:
            raise UserError(
                f"the ladder of {str(run)!r} does not say what is played, and holds no snapshot of the run's own; "
                "continue the run for an iteration with this version"
            )
        record, _ = SnapshotStore(run / FOLDER).read(own[-1])
        return record.spec(f"snapshot {own[-1]}")
    try:
        return BattleSpec(**battle)
    except TypeError as problem:
        raise UserError(
            f"{str(run / STATE)!r} has battle settings this version does not know ({problem}); use the version that "
            "trained the run"
        ) from problem
