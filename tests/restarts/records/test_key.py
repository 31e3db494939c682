"""Cells and ranks: seat-relative, and blind to the clock where they must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.restarts.records import key as k

positions = st.builds(
    k.Position,
    seconds=st.floats(0, 299.99),
    crowns=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    hp=st.tuples(st.floats(0, 3), st.floats(0, 3)),
)


@given(positions)
def test_swapping_seats_mirrors_the_key(position: k.Position) -> None:
    """Invariant 12, the key's half."""
    blue, red = k.bucket_key(position, 0), k.bucket_key(position, 1)
    assert blue is not None
    assert red == k.mirrored(blue)
    assert k.mirrored(red) == blue
    assert k.advantage_rank(red) == tuple(-x for x in k.advantage_rank(blue))


@given(positions, st.floats(0, 299.99))
def test_time_alone_is_no_advance(position: k.Position, seconds: float) -> None:
    later = k.Position(seconds, position.crowns, position.hp)
    a, b = k.bucket_key(position, 0), k.bucket_key(later, 0)
    assert a is not None
    assert b is not None
    assert k.advantage_rank(a) == k.advantage_rank(b)


@pytest.mark.parametrize(
    ("seconds", "crowns", "hp", "expected"),
    [
        (0.0, (0, 0), (3.0, 3.0), (0, 0, 0)),
        (59.9, (0, 0), (3.0, 2.9), (0, 0, 0)),
        (60.0, (0, 0), (3.0, 2.8), (1, 0, 1)),
        (120.0, (1, 0), (3.0, 2.0), (2, 1, 2)),
        (180.0, (0, 3), (1.0, 1.5), (3, -2, -1)),
        (240.0, (0, 1), (1.0, 2.0), (4, -1, -2)),
    ],
)
def test_bins(seconds: float, crowns: tuple[int, int], hp: tuple[float, float], expected: tuple[int, ...]) -> None:
    assert k.bucket_key(k.Position(seconds, crowns, hp), 0) == expected


def test_the_tie_break_has_no_cell() -> None:
    assert k.bucket_key(k.Position(k.TIE_BREAK, (0, 0), (3.0, 3.0)), 0) is None


def test_the_digest_names_the_quantisation(monkeypatch: pytest.MonkeyPatch) -> None:
    before = k.key_digest()
    assert before == k.key_digest()
    monkeypatch.setattr(k, "HP_EDGES", (0.2, 0.6))
    assert k.key_digest() != before
