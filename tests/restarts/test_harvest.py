"""Which battles are replayed, within a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from royale_lightning.battle.round import EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.errors import UserError
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.restarts.records.episodes import replayable
from tests.support.restart_battles import harvester, played

SPEC = BattleSpec()
MARKERS = MarkerSettings()


@pytest.fixture(scope="module")
def battles() -> list[EpisodeRecord]:
    """Four battles of some 300 game steps."""
    return [replace(played(("learner", "scripted:push"), seed=n), battle=n) for n in range(4)]


def test_a_budget_is_kept_over_iterations_and_a_debt_is_paid(battles: list[EpisodeRecord]) -> None:
    steps = sum(b.game_steps for b in battles)
    h = harvester(0.2)
    costs, replays = [], []
    for iteration in range(1, 9):
        found = dict(h.harvest(battles, steps, iteration))
        replays.append(len(found))
        costs += [m.cost for m in found.values()]
        assert all(m.points for m in found.values())
    allowed = 8 * 0.2 * steps
    assert allowed - 0.2 * steps <= sum(costs) <= allowed + max(costs)
    assert 0 in replays, "what a battle took beyond the allowance is owed"
    assert sum(replays) == h.replays
    h.credit = 0.0
    list(h.harvest([], steps, 9))
    list(h.harvest([], steps, 10))
    assert h.credit == pytest.approx(0.2 * steps), "what is not used is not stored up"


def test_the_order_is_drawn_alike_and_apart(battles: list[EpisodeRecord]) -> None:
    h = harvester(0.01)

    def first_of(iteration: int, first: int = 0) -> int:
        h.credit = 0.0
        ((i, _),) = h.harvest(battles, 100, iteration, first)
        return i

    drawn = [first_of(i) for i in range(1, 4)]
    assert drawn == [first_of(i) for i in range(1, 4)]
    assert len(set(drawn)) > 1
    assert drawn != [first_of(i, 64) for i in range(1, 4)], "another rank's battles"


def test_what_cannot_be_replayed_is_left_alone(battles: list[EpisodeRecord]) -> None:
    whole = battles[0]
    assert replayable(whole)
    assert not replayable(replace(whole, staggered=True))
    assert not replayable(replace(whole, commands=[]))
    assert not replayable(replace(whole, players=("000012", "scripted:push")))


def test_a_battle_that_comes_out_otherwise_gives_nothing(battles: list[EpisodeRecord]) -> None:
    h = harvester(1.0)
    other = replace(battles[0], state_hash=battles[0].state_hash ^ 1)
    assert list(h.harvest([other], 10_000, 1)) == []
    assert (h.replays, h.failures) == (1, 1)
    assert h.credit < 10_000, "it cost as much"


@pytest.mark.parametrize("budget", [0.0, -0.1, 1.5])
def test_an_impossible_budget_is_refused(budget: float) -> None:
    with pytest.raises(UserError, match=f"budget is {budget}; give a share"):
        harvester(budget)
