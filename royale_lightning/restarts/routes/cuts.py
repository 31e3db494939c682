"""Pure functions of routes: joining a tail to its prefix, and cutting slices to imitate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ..records.route import Reference, Route, Rung, Segment, pack_commands, unpack_commands

WHOLE, SHORT_ROUTE, OVERSIZED, CEILING = "whole", "short_route", "oversized", "ceiling"


def stitch(prefix: Route, stop: int, tail: Route) -> Route | None:
    """The complete route of an episode that began at the end of a stored route's segment ``stop - 1``.

    It is joined only if the two are one battle, with the same seam (game step, state hash, cell), seat, players and
    match-up, with a prefix that reaches the beginning. The prefix's segments are shared, not copied.

    Returns:
        The route from the true start, or None where the two do not fit.
    """
    if not 0 < stop <= len(prefix.segments):
        return None
    seam = prefix.segments[stop - 1]
    fits = (
        prefix.complete
        and not seam.terminal
        and seam.end_step == tail.first_step
        and seam.end_hash == tail.first_hash
        and seam.end_key == tail.segments[0].first_key
        and (prefix.seat, prefix.partition, prefix.players) == (tail.seat, tail.partition, tail.players)
    )
    if not fits:
        return None
    before = [c for c in unpack_commands(prefix.commands) if c[0] < seam.end_step]
    return replace(
        tail,
        seed=prefix.seed,
        deal=prefix.deal,
        first_hash=prefix.first_hash,
        commands=pack_commands(before + unpack_commands(tail.commands)),
        segments=prefix.segments[:stop] + tail.segments,
        complete=True,
    )


class Slice(NamedTuple):
    """Consecutive segments to imitate, and why they are as many as they are.

    Attributes:
        reference: the segments.
        reason: ``whole`` within both bounds; ``short_route`` all there is, below the minimum; ``oversized`` one segment
            above the maximum; ``ceiling`` below the minimum, because another segment would go above the maximum.
    """

    reference: Reference
    reason: str


def cut_slice(route_id: int, route: Route, start_segment: int, least: int = 16, most: int = 48) -> Slice | None:
    """Whole segments from near ``start_segment``, of ``least`` to ``most`` game steps where segments allow it.

    A slice begins where the battle can be put: at the beginning of a complete route or at a minted save state. It grows
    forwards first and backwards then. 16 game steps are the least that hold a manoeuvre; beyond 48 imitation is
    reported to destabilise results.

    Returns:
        The slice, or None where no segment can be started from.

    Raises:
        ValueError: the bounds are not ``0 < least <= most``.
    """
    if not 0 < least <= most:
        raise ValueError(f"a slice needs bounds 0 < least <= most, were {least} and {most}")
    segments = route.segments
    n = len(segments)

    def steps(i: int, j: int) -> int:
        return segments[j - 1].end_step - segments[i].first_step

    begins = [i for i in range(n) if (route.complete if i == 0 else segments[i - 1].end is not None)]
    wanted = max(0, min(start_segment, n - 1))
    if not begins or begins[0] > wanted:
        return None
    first = max(i for i in begins if i <= wanted)
    stop = first + 1
    while steps(first, stop) < least and stop < n and steps(first, stop + 1) <= most:
        stop += 1
    for earlier in reversed([i for i in begins if i < first]):
        if steps(first, stop) >= least or steps(earlier, stop) > most:
            break
        first = earlier
    length = steps(first, stop)
    if length > most:
        reason = OVERSIZED
    elif length >= least:
        reason = WHOLE
    else:
        reason = SHORT_ROUTE if first == begins[0] and stop == n else CEILING
    return Slice(Reference(route_id, first, stop), reason)


def rungs_of(route: Route, decision_granular: bool) -> tuple[Rung, ...]:
    """Where the curriculum can start on a route, by time; the last one is the end, where nothing is left to play.

    Coarse rungs are the eligible ends of segments, fine ones are every game step after the first.
    """
    last = route.last_step
    if decision_granular:
        steps = list(range(route.first_step + 1, last + 1))
    else:
        steps = [s.end_step for s in route.segments if s.eligible] + [last]
    return tuple(Rung(step, last - step) for step in steps)


def coverage(segments: Iterable[Segment]) -> tuple[int, int]:
    """Minted and wanted: how many of the segments that an episode may begin at the end of have a save state there."""
    wanted = [s for s in segments if s.eligible]
    return sum(s.end is not None for s in wanted), len(wanted)
