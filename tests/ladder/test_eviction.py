"""Who leaves a full pool, and who never does."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.ladder.eviction import EVICTIONS, SpreadEviction
from royale_lightning.ladder.pool import Member
from royale_lightning.parts import Part


def pool(n: int, **roles: str) -> list[Member]:
    """Members s0, s1, ...; ``s3="cycle"`` or ``s3="champion"`` marks one."""
    role = {k: r for k, r in roles.items() if r != "champion"}
    return [
        Member(f"s{k}", role.get(f"s{k}", "gated"), k, 1000 * k, champion=roles.get(f"s{k}") == "champion")
        for k in range(n)
    ]


def rated(*elo: float) -> dict[str, float]:
    return {f"s{k}": e for k, e in enumerate(elo)}


def test_the_crowded_stratum_gives_way() -> None:
    # s2 and s3 are nearly one player; s3 leaves the smaller hole, and then the oldest of equals goes.
    assert SpreadEviction(5).evict(pool(6), "s5", rated(0, 100, 200, 205, 300, 400)) == ["s3"]
    assert SpreadEviction(4).evict(pool(6), "s5", rated(0, 100, 200, 205, 300, 400)) == ["s3", "s1"]


def test_no_one_leaves_a_pool_with_room() -> None:
    assert SpreadEviction(6).evict(pool(6), "s5", {}) == []


def test_the_extremes_stay() -> None:
    # The weakest and the strongest are neither first nor newest nor champion here.
    gone = SpreadEviction(6).evict(pool(12), "s11", rated(50, 90, 0, 40, 60, 70, 80, 400, 75, 65, 55, 85))
    assert len(gone) == 6
    assert not {"s0", "s2", "s7", "s11"} & set(gone)


def test_who_is_kept_whatever_the_ratings() -> None:
    members = pool(12, s2="champion", s4="cycle", s6="cycle", s8="given", s9="champion")
    ratings = rated(*[100.0 + k / 100 for k in range(12)])
    gone = SpreadEviction(8, cycle_share=0.25).evict(members, "s9", ratings)
    assert not {"s0", "s2", "s4", "s6", "s8", "s9", "s11"} & set(gone)
    # Only one cycle member of four is safe, and it is the newest.
    gone = SpreadEviction(7, cycle_share=0.15).evict(pool(12, s1="cycle", s2="cycle", s3="cycle"), "s11", ratings)
    assert "s3" not in gone
    # A pool of champions still has to fit; the first, the present one and the newest stay.
    many = [Member(m.snapshot, m.role, m.iteration, m.game_steps, champion=True) for m in pool(10)]
    gone = SpreadEviction(3).evict(many, "s4", rated(*range(10)))
    assert set(gone) == {f"s{k}" for k in range(10)} - {"s0", "s4", "s9"}


def test_members_that_were_not_rated_yet() -> None:
    ratings = rated(0, 100, 200, 300)
    assert SpreadEviction(6).evict(pool(7), "s3", ratings) == ["s1"], "s4 and s5 wait for their rating"
    assert SpreadEviction(3).evict(pool(7), "s3", ratings) == ["s1", "s2", "s4", "s5"]


def test_without_ratings_the_history_is_thinned() -> None:
    gone = SpreadEviction(4).evict(pool(9), None, {})
    assert not {"s0", "s8"} & set(gone)
    assert len(gone) == 5


def test_a_long_run_stays_spread() -> None:
    """Admission by admission, strength growing: the pool reaches from the first to the newest without a hole."""
    policy, members, ratings = SpreadEviction(12), [], {}
    for k in range(200):
        members.append(Member(f"s{k}", "gated", k, k))
        ratings[f"s{k}"] = 5.0 * k
        gone = policy.evict(members, f"s{k}", ratings)
        members = [m for m in members if m.snapshot not in gone]
    places = [ratings[m.snapshot] for m in members]
    assert (len(places), places[0], places[-1]) == (12, 0.0, 995.0)
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) <= 200


_RATINGS = st.dictionaries(st.integers(0, 19).map("s{}".format), st.floats(-2000, 2000))


@given(st.integers(1, 20), st.integers(3, 20), _RATINGS, st.data())
def test_the_pool_always_fits_and_its_pillars_stay(
    n: int, capacity: int, ratings: Mapping[str, float], data: st.DataObject
) -> None:
    marks = data.draw(st.dictionaries(st.integers(0, n - 1).map("s{}".format), st.sampled_from(["champion", "cycle"])))
    champion = data.draw(st.integers(0, n - 1).map("s{}".format))
    gone = SpreadEviction(capacity).evict(pool(n, **marks), champion, ratings)
    assert len(gone) == len(set(gone)) == max(0, n - capacity)
    assert not {"s0", f"s{n - 1}", champion} & set(gone)


def test_it_is_named_in_a_configuration() -> None:
    assert Part.of("spread", "ladder.eviction", EVICTIONS).build("ladder.eviction").capacity == 48


@pytest.mark.parametrize("bad", [{"capacity": 2}, {"cycle_share": 1.5}])
def test_refusals(bad: dict) -> None:
    with pytest.raises(UserError, match=f"eviction {next(iter(bad))} is"):
        SpreadEviction(**bad)
