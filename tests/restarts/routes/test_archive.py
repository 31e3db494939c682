"""The archive: best routes stay, ties keep the incumbent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.restarts.records.route import Priority
from royale_lightning.restarts.routes.archive import Archive


def priority(n: int) -> Priority:
    return Priority(0, 1, n, 0.0, -3000)


@given(st.integers(0, 3), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4)), max_size=30))
def test_the_archive_is_the_best_of_each_group_the_oldest_of_equals(capacity: int, offers: list) -> None:
    archive = Archive(capacity)
    for i, (group, n) in enumerate(offers):
        before = archive.priorities
        admitted, displaced = archive.offer(i, group, priority(n))
        if displaced is not None:
            assert admitted
            assert before[displaced] < priority(n), "displacement strictly improves"
    best = []
    for group in "ab":
        mine = sorted((-n, i) for i, (g, n) in enumerate(offers) if g == group)
        best += [i for _, i in mine[:capacity]]
    assert archive.ids == sorted(best)
    assert len(archive) == len(best)
    top = min(((-n, i) for i, (_, n) in enumerate(offers) if i in best), default=None)
    assert archive.best == (None if top is None else top[1])


def test_priorities_are_compared_field_by_field() -> None:
    """The order that a float32 near 1e9 could not hold: one tick less is a better route."""
    quick, slow = Priority(1, 1, 2, 0.5, -3000), Priority(1, 1, 2, 0.5, -3001)
    archive = Archive(1)
    archive.offer(0, "a", slow)
    assert archive.offer(0, "a", quick) == (False, None), "it is in already"
    assert archive.offer(1, "a", quick) == (True, 0)
    assert archive.offer(2, "a", Priority(2, 1, 1, 0.0, -6000)) == (True, 1), "a stronger opponent comes first"
    assert archive.remove(2)
    assert not archive.remove(2)
