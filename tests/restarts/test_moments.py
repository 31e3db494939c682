"""Which moments of a battle are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.restarts.moments import CELL, GRID, PHASE, TOWER, MarkerFinder, MarkerSettings
from royale_lightning.restarts.records.key import Position, bucket_key

QUIET = Position(0.0, (0, 0), (3.0, 3.0))


def found(settings: MarkerSettings, battle: list[Position], seats: tuple[int, ...] = (0,)) -> list[tuple]:
    finder = MarkerFinder(settings, len(battle), seats)
    return [(m.game_step, m.seat, m.tag) for t, p in enumerate(battle) for m in finder.see(t, p)]


def test_every_reason_to_keep_a_moment() -> None:
    battle = [Position(t * 0.5, (int(t >= 130), 0), (3.0, 2.0 if t >= 130 else 3.0)) for t in range(200)]
    kept = found(MarkerSettings(grid_steps=20, grace_steps=20, per_cell=2), battle)
    assert kept == [(0, 0, CELL), (20, 0, GRID), (120, 0, PHASE), (130, 0, TOWER), (140, 0, GRID)]
    both = found(MarkerSettings(), battle, (0, 1))
    assert [k for k in both if k[1] == 0] == kept
    assert {k[0] for k in both if k[1] == 1} == {k[0] for k in kept}


def queue(settings: MarkerSettings, battle: list[Position]) -> set[int]:
    """Grid moments by the rule as a recorder would keep it: each waits out its own grace period."""
    waiting: dict[int, int] = {}
    kept = set()
    for t in range(len(battle)):
        for at in list(waiting):
            waiting[at] -= 1
            if waiting[at] <= 0:
                kept.add(at)
                del waiting[at]
        if t % settings.grid_steps == 0:
            if settings.grace_steps == 0:
                kept.add(t)
            else:
                waiting[t] = settings.grace_steps
    return kept


@given(st.integers(1, 30), st.integers(0, 40), st.integers(1, 120))
def test_grace_starves_nobody(grid: int, grace: int, steps: int) -> None:
    """A trigger that fires more often than the grace period still has each of its moments confirmed."""
    settings = MarkerSettings(grid, grace, per_cell=1000)
    battle = [QUIET] * steps
    assert {k[0] for k in found(settings, battle)} == queue(settings, battle)


@given(st.lists(st.tuples(st.floats(0, 320), st.integers(0, 3), st.floats(0, 3)), max_size=150))
def test_no_cell_is_crowded_and_no_late_moment_kept(moments: list[tuple[float, int, float]]) -> None:
    battle = [Position(s, (c, 0), (h, 1.0)) for s, c, h in moments]
    settings = MarkerSettings(grid_steps=3, grace_steps=5, per_cell=2)
    finder = MarkerFinder(settings, len(battle), (0, 1))
    markers = [m for t, p in enumerate(battle) for m in finder.see(t, p)]
    per_cell: dict[tuple, int] = {}
    for m in markers:
        assert m.key == bucket_key(battle[m.game_step], m.seat)
        assert m.game_step + 5 < len(battle)
        per_cell[m.seat, m.key] = per_cell.get((m.seat, m.key), 0) + 1
    assert all(n <= 2 for n in per_cell.values())
    assert len({(m.game_step, m.seat) for m in markers}) == len(markers)
