"""Joining and cutting routes; a toy engine whose state is a hash of all that was played stands for the real one."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.restarts.records.route import Route, unpack_commands
from royale_lightning.restarts.routes import cuts as r
from tests.support.restarts import point, route, segment

Plays = dict[int, list[tuple[int, int, int]]]


def play(state: int, commands: Plays, steps: range) -> dict[int, int]:
    """State hash at each game step's end."""
    found = {}
    for t in steps:
        state = int.from_bytes(hashlib.blake2b(repr((state, commands.get(t, []))).encode(), digest_size=6).digest())
        found[t + 1] = state
    return found


def by_step(commands: list[tuple[int, int, int]]) -> Plays:
    out: Plays = {}
    for c in commands:
        out.setdefault(c[0], []).append(c)
    return out


def played(start: int, first: int, bounds: list[int], commands: list[tuple[int, int, int]], **changed: object) -> Route:
    """A toy battle's route with segments up to each bound."""
    hashes = play(start, by_step(commands), range(first, bounds[-1]))
    ends = [first, *bounds]
    base = route([(0, 0, t % 5) for t in ends], first=0, source=(1, first))
    segments = tuple(
        replace(s, first_step=a, end_step=b, end_hash=hashes[b])
        for s, a, b in zip(base.segments, ends[:-1], ends[1:], strict=True)
    )
    made = replace(base, complete=False, segments=segments, first_hash=start, **changed)
    return replace(made, commands=r.pack_commands(commands), complete=first == 0)


plays = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 1), st.integers(1, 99)), max_size=25).map(sorted)


@given(plays, plays, st.integers(1, 3))
def test_a_stitched_route_replays_to_the_same_end(prefix_plays: list, tail_plays: list, stop: int) -> None:
    """Invariant 22, as far as it is not the engine's."""
    prefix = played(7, 0, [10, 20, 30, 40], prefix_plays)
    seam = prefix.segments[stop - 1]
    tail_plays = [(seam.end_step + t, seat, a) for t, seat, a in tail_plays]
    tail = played(seam.end_hash, seam.end_step, [seam.end_step + 15, seam.end_step + 40], tail_plays)
    whole = r.stitch(prefix, stop, tail)
    assert whole is not None
    assert whole.complete
    replayed = play(7, by_step(unpack_commands(whole.commands)), range(whole.last_step))
    assert [replayed[s.end_step] for s in whole.segments] == [s.end_hash for s in whole.segments]
    assert all(a is b for a, b in zip(whole.segments, prefix.segments[:stop], strict=False)), "shared, not copied"


@pytest.mark.parametrize(
    "changed",
    [
        {"first_hash": 5}, {"players": ("learner", "snapshot-2")}, {"seat": 1}, {"partition": "hog"},
    ],
)
def test_what_is_not_one_battle_is_not_joined(changed: dict) -> None:
    prefix = played(7, 0, [10, 20], [])
    tail = played(prefix.segments[0].end_hash, 10, [30], [])
    assert r.stitch(prefix, 1, tail) is not None
    assert r.stitch(prefix, 1, replace(tail, **changed)) is None
    assert r.stitch(prefix, 2, tail) is None
    assert r.stitch(prefix, 0, tail) is None
    assert r.stitch(replace(prefix, complete=False), 1, tail) is None


@st.composite
def routes(draw: st.DrawFn) -> Route:
    lengths = draw(st.lists(st.integers(1, 70), min_size=1, max_size=8))
    minted = draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    at, segments = 0, []
    for i, (n, has) in enumerate(zip(lengths, minted, strict=True)):
        last = i == len(lengths) - 1
        end = point(i) if has and not last else None
        segments.append(segment(at, at + n, (0, 0, 0), (0, 0, 0), terminal=last, won=last, end=end))
        at += n
    return replace(route([(0, 0, 0)] * 2), segments=tuple(segments), complete=draw(st.booleans()))


@given(routes(), st.integers(-2, 9), st.integers(1, 40), st.integers(0, 40))
def test_a_slice_keeps_its_bounds_or_says_why(whole: Route, wanted: int, least: int, more: int) -> None:
    """Invariant 23."""
    most = least + more
    cut = r.cut_slice(3, whole, wanted, least, most)
    s = whole.segments
    begins = [i for i in range(len(s)) if (whole.complete if i == 0 else s[i - 1].end is not None)]
    at = max(0, min(wanted, len(s) - 1))
    if cut is None:
        assert not any(i <= at for i in begins)
        return
    _, first, stop = cut.reference
    assert first in begins
    assert first < stop <= len(s)
    length = s[stop - 1].end_step - s[first].first_step
    if cut.reason == r.WHOLE:
        assert least <= length <= most
    elif cut.reason == r.OVERSIZED:
        assert length > most
        assert stop == first + 1
    else:
        assert length < least
        assert stop == len(s) or s[stop].end_step - s[first].first_step > most
        nearest = max((i for i in begins if i < first), default=None)
        if cut.reason == r.SHORT_ROUTE:
            assert stop == len(s)
            assert nearest is None
        else:
            assert stop < len(s) or (nearest is not None and s[stop - 1].end_step - s[nearest].first_step > most)


def test_bad_bounds_are_refused() -> None:
    for least, most in ((0, 5), (6, 5)):
        with pytest.raises(ValueError, match="bounds"):
            r.cut_slice(0, route([(0, 0, 0)] * 3), 0, least, most)


def test_rungs_by_segment_and_by_game_step() -> None:
    walked = route([(0, 0, 0)] * 4, steps=10)
    assert [(x.game_step, x.steps_left) for x in r.rungs_of(walked, False)] == [(10, 20), (20, 10), (30, 0)]
    fine = r.rungs_of(walked, True)
    assert [x.game_step for x in fine] == list(range(1, 31))
    assert fine[-1].steps_left == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"segments": ()}, "needs a segment"),
        ({"complete": True, "segments": (segment(5, 9, (0, 0, 0), (0, 0, 0)),)}, "begins with the battle"),
        ({"segments": (segment(0, 5, (0, 0, 0), (0, 0, 0)), segment(6, 9, (0, 0, 0), (0, 0, 0)))}, "follow"),
    ],
)
def test_impossible_routes_are_refused(change: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(route([(0, 0, 0)] * 3), **change)
    with pytest.raises(ValueError, match="game step"):
        segment(5, 5, (0, 0, 0), (0, 0, 0))
