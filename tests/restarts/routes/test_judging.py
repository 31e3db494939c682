"""Which wins are archived, which of them were luck, and where their curriculum begins."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.restarts.records.route import Priority, Route
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.judging import (
    above_chance,
    judge,
    latest_contested,
    next_to_judge,
    probes,
    wanted_routes,
)
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from tests.support.restarts import CELLS, FROZEN, STAMP, episode, minted, route

WON = replace(
    episode(start=replace(episode().start, kind="true", digest="", state=b"", seat=None)), players=("learner", FROZEN),
    winner=0, crowns=(1, 0), tower_hp=(1.0, 0.5),
)


def store(archive_size: int = 1) -> RouteStore:
    return RouteStore(StoreSettings(archive_size=archive_size, curriculum=CurriculumSettings()), 1, STAMP)


def whole(**changed: Any) -> Route:
    return minted(route(CELLS, **changed))


@given(st.integers(1, 12), st.integers(3, 10))
def test_probes_are_spread_and_hold_the_last_start(most: int, cells: int) -> None:
    made = minted(route(CELLS[:cells]))
    found = [p.game_step for p in probes(made, most)]
    starts = [s.end_step for s in made.segments if s.eligible]
    assert len(found) == min(most, len(starts))
    assert found == sorted(set(found))
    assert set(found) <= set(starts)
    assert found[-1] == starts[-1]
    gaps = [b - a for a, b in pairwise(found)]
    assert not gaps or max(gaps) - min(gaps) <= 20, "evenly, to one segment"


def test_a_route_without_save_states_has_no_probe() -> None:
    assert probes(route(CELLS), 4) == []


@pytest.mark.parametrize(
    ("passive", "policy", "lucky", "at"),
    [
        # Waiting loses early and wins late; the policy wins where it is still open.
        ([0, 0, 2, 8], [1, 4, 7, 8], False, 120),
        # The policy wins nearly always at the last moment that waiting does not.
        ([0, 0, 0, 8], [0, 3, 8, 8], False, 80),
        # From the last open moment the policy never wins.
        ([0, 0, 0, 8], [0, 0, 0, 8], True, 120),
        # It wins there no more often than waiting does.
        ([0, 0, 4, 8], [0, 0, 5, 8], True, 120),
        # The policy wins from all that waiting loses.
        ([0, 0, 2, 8], [8, 8, 8, 8], False, 40),
        # Nothing is open: waiting wins from everywhere.
        ([8, 8, 8, 8], [8, 8, 8, 8], True, None),
    ],
)
def test_luck_is_told_where_the_front_begins(
    passive: list[int], policy: list[int], lucky: bool, at: int | None
) -> None:
    found = judge([40, 80, 120, 160], passive, policy, 8)
    assert (found.lucky, found.contested_step) == (lucky, at)
    assert found.reference_rates == {s: w / 8 for s, w in zip((40, 80, 120, 160), policy, strict=True)}


def test_a_demonstrator_that_always_wins_has_its_front_where_waiting_loses() -> None:
    steps, passive = [40, 80, 120, 160], [0, 0, 2, 8]
    assert judge(steps, passive, [8] * 4, 8, demonstrated=True)[::2] == (False, 120)
    assert judge(steps, passive, [0, 0, 2, 8], 8, demonstrated=True).lucky, "it shows no more than waiting would"
    assert judge(steps, [8] * 4, [8] * 4, 8, demonstrated=True) == (True, dict.fromkeys(steps, 1.0), None)


def test_wins_from_a_true_start_against_a_named_opponent_are_wanted() -> None:
    s = store()
    assert wanted_routes(WON, s, {FROZEN: {"rating": 250.0}}) == [(0, Priority(2, 1, 1, 0.5, -1600))]
    assert wanted_routes(WON, s, {})[0][1].opponent_band == 0
    weaker = {"scripted:noop": {"rating": -250.0}, "scripted:push": {"rating": 40.0}}
    assert wanted_routes(WON, s, weaker)[0][1].opponent_band == -3, "nobody knows more of it than that it can be beaten"
    for other in (
        replace(WON, winner=1), replace(WON, winner=2), replace(WON, players=("learner", "learner")),
        replace(WON, start=episode().start), replace(WON, players=(FROZEN, "learner")),
    ):
        assert wanted_routes(other, s, {}) == []


def test_a_full_group_wants_better_wins_alone() -> None:
    s = store()
    s.add(whole(partition="snapshot", priority=Priority(0, 1, 1, 0.5, -1600)))
    assert wanted_routes(WON, s, {}) == [], "ties keep the incumbent"
    assert wanted_routes(replace(WON, ticks=1590), s, {})
    assert wanted_routes(replace(WON, players=("learner", "scripted:push")), s, {}), "another group"
    seated = replace(WON, players=(FROZEN, "learner"), winner=1, crowns=(0, 1), tower_hp=(0.5, 1.0))
    assert wanted_routes(seated, s, {}), "another seat"


def test_the_group_with_the_fewest_fronts_is_judged_next() -> None:
    s = store(archive_size=2)
    for n, name in enumerate((FROZEN, FROZEN, "scripted:push")):
        s.add(whole(players=("learner", name), partition=name, source=(0, n)))
    first, second, push = s.archive.ids
    everybody = {FROZEN, "scripted:push"}
    assert next_to_judge(s, everybody, []) == first
    s.judge_route(first, False, {}, 80)
    assert next_to_judge(s, everybody, []) == push
    assert next_to_judge(s, everybody, [push]) == second
    assert next_to_judge(s, {FROZEN}, []) == second
    assert next_to_judge(s, set(), []) is None
    s.judge_route(second, True)
    assert s.archive.ids == [first, push], "a lucky win leaves the archive"


@pytest.mark.parametrize("games", [1, 4, 16])
def test_a_win_above_chance(games: int) -> None:
    for wins in range(games + 1):
        tail = sum(comb(games, k) for k in range(wins, games + 1)) / 2**games
        assert above_chance(wins, games) == (tail <= 0.05)
    assert above_chance(16, 16)
    assert not above_chance(0, 0)
    assert above_chance(5, 16, chance=0.1)
    with pytest.raises(ValueError, match="between"):
        above_chance(2, 1)


@pytest.mark.parametrize(
    ("passive", "policy", "found"),
    [
        ([0.1, 0.5, 0.7, 1.0], [0.3, 0.6, 0.8, 1.0], 1), ([0.1, 0.5], [0.95, 0.9], None),
        ([0.6, 0.9], [0.2, 0.2], 0), ([], [], None),
    ],
)
def test_the_latest_contested_rung(passive: list[float], policy: list[float], found: int | None) -> None:
    assert latest_contested(passive, policy) == found
