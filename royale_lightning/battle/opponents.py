"""Scripted opponents: RoyaleGym's, by name, and a user's own by class path. They act inside the arena."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from royalegym.opponents import PatientOpponent, PushOpponent, ladder
from royalegym.selfplay import RandomLegalOpponent

from ..errors import UserError, near_matches
from ..parts import Part
from .players import is_scripted, short_name

#: The yardstick, in RoyaleGym's order.
LADDER = tuple(name for name, _ in ladder())
#: Those of the yardstick that play cards.
ACTING = tuple(n for n in LADDER if n != "noop")
#: Bots outside the yardstick, to score a bot against what it never met.
EXTRA: dict[str, Callable[[], Any]] = {
    "push-mirror": lambda: PushOpponent(mirror=True),
    "patient-mirror": lambda: PatientOpponent(ready=3, mirror=True),
    "random-0.9": lambda: RandomLegalOpponent(0.9),
}


def reads_observation(player: str) -> bool:
    """Whether this seat's player looks at more than the legal actions.

    RoyaleGym's opponents read the mask alone, which is cheap to make. One of a user's own is shown what RoyaleGym's
    default environment shows its opponents, whatever the learner's observation.
    """
    return is_scripted(player) and "." in player and short_name(player) not in EXTRA


def make_opponent(name: str) -> Any:
    """A fresh scripted opponent.

    Args:
        name: a rung of ``royalegym.ladder()``, one of ``EXTRA``, or the class path of an ``Opponent``.
    """
    name = short_name(name)
    rungs = dict(ladder())
    if name in rungs:
        return rungs[name]
    if name in EXTRA:
        return EXTRA[name]()
    if "." in name:
        made = Part(name).build("opponent")
        if not callable(getattr(made, "act", None)):
            raise UserError(f"opponent {name!r} has no act(obs, mask, rng) method")
        return made
    known = (*rungs, *EXTRA)
    raise UserError(
        f"opponent {name!r} is neither a class path nor one of {', '.join(known)}{near_matches(name, known)}"
    )
