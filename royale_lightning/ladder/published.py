"""What a run folder says of its ladder, for tools that read one: the state, the rater, and the results that count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..battle.spec import BattleSpec
from ..bots.snapshots import FOLDER, SnapshotStore
from ..errors import UserError
from ..parts import Part, renamed
from ..run.atomic import write_atomic
from .context import of_context
from .ratings.rating import RATERS, Rater
from .results import Result, read_results

RESULTS = "results.jsonl"
STATE = "ladder/ladder.json"


def write_state(run: Path, spec: BattleSpec, state: Mapping[str, Any]) -> None:
    """Write it, atomically.

    Args:
        spec: what is played.
        state: ``members``, ``champion``, ``ratings``, ``record``, ``rater`` and ``context``.

    Raises:
        OSError: such as a full disk.
    """
    path = run / STATE
    text = json.dumps({"schema": 1, **state, "battle": spec.as_dict()}, indent=1, allow_nan=False)
    write_atomic(path, text.encode() + b"\n")


def read_state(run: Path) -> dict[str, Any]:
    """What a run's ``ladder.json`` holds: ``members``, ``champion``, ``ratings``, ``rater``, ``context``.

    Raises:
        UserError: it cannot be read.
    """
    file = run / STATE
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{str(run)!r} has no ladder: {str(file)!r} cannot be read ({problem})") from problem
    return state


def _state_beside(log: Path) -> dict[str, Any]:
    """The state of the run that a log lies in; empty for a log on its own."""
    return read_state(log.parent) if (log.parent / STATE).is_file() else {}


class Rated(NamedTuple):
    """The evaluated battles that may be rated together, and how many others there are."""

    results: list[Result]
    others: int


def present(results: Iterable[Result], state: Mapping[str, Any]) -> Rated:
    """The evaluated battles in the present context of their run.

    Args:
        results: in the order of their log.
        state: of the run. Without one, the context is the last battle's, and results without one are a context of
            their own.
    """
    rated = [r for r in results if r.kind == "eval"]
    last = rated[-1].context if rated else ""
    found = of_context(rated, str(state.get("context", last)), str(state.get("unmarked", "")))
    return Rated(found, len(rated) - len(found))


def rated_results(log: Path) -> Rated:
    """:func:`present` of a ``results.jsonl``, in a run folder or on its own."""
    return present(read_results(log, "eval"), _state_beside(log))


def rater_of(state: Mapping[str, Any]) -> Rater:
    """The rater a run is configured with, by its state; the default one where it says nothing.

    Raises:
        UserError: its class is not to be found here, or is no rater.
    """
    where = f"the run's rater in {STATE}"
    part = Part.of(state.get("rater", "davidson"), where, RATERS)
    made = part.build(where)
    if not isinstance(made, Rater):
        raise UserError(f"{where}: {part.class_path} is no Rater")
    return made


def configured_rater(log: Path) -> Rater:
    """:func:`rater_of` the run that a ``results.jsonl`` lies in."""
    return rater_of(_state_beside(log))


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
        return BattleSpec(**renamed(battle))
    except TypeError as problem:
        raise UserError(
            f"{str(run / STATE)!r} has battle settings this version does not know ({problem}); use the version that "
            "trained the run"
        ) from problem
