"""The pool: who is in it, who is champion, and the cadences that fill it."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.ladder.pool import Member, Pool
from royale_lightning.ladder.schedule import affordable, snapshot_due


def filled(*names: str) -> Pool:
    pool = Pool()
    for i, name in enumerate(names):
        assert pool.admit(Member(name, "cadence", i, 100 * i))
    return pool


def test_the_first_is_champion_until_one_is_proven() -> None:
    pool = filled("a", "b", "c")
    assert pool.champion == "a"
    pool.promote("c")
    assert pool.champion == "c"
    assert [m.snapshot for m in pool.members if m.champion] == ["a", "c"]
    assert not pool.admit(Member("b", "gated", 9, 900)), "one snapshot is one member"
    assert pool.members[1].role == "cadence"


def test_a_lost_champion_is_followed_by_the_newest_former_one() -> None:
    pool = filled("a", "b", "c", "d")
    pool.promote("b")
    pool.promote("d")
    pool.drop(["d"])
    assert pool.champion == "b"
    pool.drop(["a", "b"])
    assert pool.champion == "c", "nobody else is left"
    pool.drop(["c", "unknown"])
    assert pool.champion is None
    assert len(pool) == 0


def test_state_is_json_and_comes_back() -> None:
    pool = filled("a", "b")
    pool.promote("b")
    again = Pool()
    again.load_state_dict(json.loads(json.dumps(pool.state_dict())))
    assert again.members == pool.members
    assert again.champion == "b"


def test_snapshots_follow_the_growth_of_the_run() -> None:
    taken: list[int] = []
    for steps in range(0, 20_000_000, 2000):
        if snapshot_due(steps, taken[-1] if taken else None, 30_000, 0.25):
            taken.append(steps)
    assert taken[0] == 30_000
    assert sum(t <= 1_000_000 for t in taken) in range(15, 18), "a ten-minute run"
    assert len(taken) in range(28, 33), "and a long one"
    assert all(1.24 < b / a < 1.4 for a, b in itertools.pairwise(taken))


@given(st.floats(0.01, 1), st.integers(0, 10**8), st.integers(0, 10**6), st.floats(10, 700))
def test_battles_are_afforded_within_the_share(share: float, steps: int, spent: int, each: float) -> None:
    n = affordable(share, steps, spent, each)
    if n > 0:
        assert spent + n * each <= share * steps * (1 + 1e-9)
