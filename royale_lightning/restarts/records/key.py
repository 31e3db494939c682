"""Which cell a position falls into, and how good it is: one quantisation, done once, from the engine's own state.

The key says what is being practised; the rank says what counts as better. They are kept apart, because in a battle the
clock runs by itself: a key that grows with time must never make an episode look as if it had got somewhere.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass

from .points import Key, Rank

#: Bump when a position may fall into another cell than before; stamped on every point.
VERSION = 1
#: What the numbers of a key mean, coarse first.
LABELS = ("phase", "crowns", "hp")
#: Seconds at which a phase begins after the first: the second minute, double elixir, overtime, triple elixir.
PHASE_STARTS = (60.0, 120.0, 180.0, 240.0)
#: Seconds at which overtime is over and the tie-break drains the towers; nothing is decided by play any more.
TIE_BREAK = 300.0
#: Crown differences beyond this are one cell: three against none ends the battle.
MOST_CROWNS = 2
#: Edges of the tower-hp difference, of 3 for each side's three towers: ahead, and far ahead.
HP_EDGES = (0.15, 0.6)


@dataclass(frozen=True)
class Position:
    """What the engine says about a moment; pairs are blue, red.

    Args:
        seconds: since the battle began.
        crowns: won so far.
        hp: sum of the three towers' hp fractions, 0 to 3.
    """

    seconds: float
    crowns: tuple[int, int]
    hp: tuple[float, float]


def bucket_key(position: Position, seat: int) -> Key | None:
    """``(phase, crowns, hp)`` as ``seat`` sees it; None once the tie-break drains the towers.

    phase is 0 to 4 (:data:`PHASE_STARTS`), crowns the difference clipped to ±2, hp the difference in 5 bins from -2 to
    2: at most 125 cells, far fewer of them reachable.
    """
    if position.seconds >= TIE_BREAK:
        return None
    own, enemy = position.crowns[seat], position.crowns[1 - seat]
    crowns = max(-MOST_CROWNS, min(MOST_CROWNS, own - enemy))
    lead = position.hp[seat] - position.hp[1 - seat]
    size = bisect_right(HP_EDGES, abs(lead))
    return (bisect_right(PHASE_STARTS, position.seconds), crowns, size if lead > 0 else -size)


def mirrored(key: Key) -> Key:
    """The same moment as the other seat sees it."""
    phase, crowns, hp = key
    return (phase, -crowns, -hp)


def advantage_rank(key: Key) -> Rank:
    """The one order behind "advanced" and "deepest": crowns, then hp; the clock is not in it."""
    _, crowns, hp = key
    return (crowns, hp)


def key_digest() -> str:
    """Names this quantisation: two points with the same digest agree on what their keys mean."""
    text = repr((VERSION, LABELS, PHASE_STARTS, TIE_BREAK, MOST_CROWNS, HP_EDGES))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
