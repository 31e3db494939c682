"""Battle settings: what follows from them, and what a mistake says."""

from __future__ import annotations

from typing import Any

import pytest
from royalegym.reward import RewardFunction

from royale_lightning.battle.prepare import prepare, validate
from royale_lightning.battle.rows.entities_layout import ENTITIES
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.errors import UserError

STARTER = ["Knight", "Archer", "Giant", "Minions", "Fireball", "Zap", "Cannon", "Musketeer"]


class RaisesOnBind(RewardFunction):
    def bind(self, engine: Any) -> None:
        raise ValueError("no such tower")

    def get_reward(self, team: int, prev: Any, state: Any, results: Any) -> float:
        return 0.0


class NotAReward:
    pass


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"deck": STARTER[:7]}, "has 7 cards .* a deck has 8"),
        ({"deck": [*STARTER[:7], "Knight"]}, "holds 'Knight' twice"),
        ({"deck": "startre"}, "did you mean 'starter'"),
        ({"decision_ms": 70}, "decision_ms is 70"),
        ({"max_ticks": 0}, "max_ticks is 0"),
        ({"command_delay_ticks": -1}, "command_delay_ticks is -1"),
        ({"arena": "fast"}, "arena is 'fast'"),
    ],
)
def test_a_mistake_is_named_at_once(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        BattleSpec(**settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"deck": [*STARTER[:7], "Musketer"]}, "'Musketer'.*did you mean 'Musketeer'"),
        ({"reward": "tower_resul"}, "battle.reward is 'tower_resul'.*did you mean 'tower_result'"),
        ({"reward": "no.such.Reward"}, "battle.reward: cannot import 'no.such.Reward'"),
        ({"reward": "royale_lightning.battle.rewards.TowerReslt"}, "has no class 'TowerReslt'"),
        ({"reward": {"class_path": "tower_result", "init_args": {"towr": 1}}}, "did you mean 'tower'"),
        ({"reward": f"{__name__}.RaisesOnBind"}, "no such tower.*battle.reward"),
        ({"reward": f"{__name__}.NotAReward"}, "is no RewardFunction; derive it from royalegym.reward.RewardFunction"),
        ({"reward": {"class_path": "tower_result", "args": {}}}, "unknown key 'args'"),
        ({"observation": 3}, "battle.observation is 3"),
    ],
)
def test_a_mistake_in_a_part_is_named_before_training(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        validate(BattleSpec(**settings))


def test_what_follows_from_the_settings() -> None:
    spec = BattleSpec()
    validate(spec)
    assert prepare(spec).batched
    assert prepare(spec).row_layout is ENTITIES
    assert ENTITIES.row_bytes <= 1536
    assert prepare(spec).action_layout.n_actions == 2305
    assert not prepare(BattleSpec(reward="royalegym")).batched, "elixir trades need RoyaleGym's own objects"
    assert not prepare(BattleSpec(command_delay_ticks=21)).batched
    other = BattleSpec(observation="spatial")
    validate(other)
    assert prepare(other).batched
    assert not prepare(BattleSpec(observation="spatial", arena="env")).batched
    assert [f.name for f in prepare(other).row_layout.fields] == ["spatial", "vector"]


def test_the_digest_goes_by_value() -> None:
    assert prepare(BattleSpec()).digest == prepare(BattleSpec(reward={"class_path": "tower_result"})).digest
    assert prepare(BattleSpec()).digest != prepare(BattleSpec(decision_ms=1000)).digest
    assert prepare(BattleSpec()).digest != prepare(BattleSpec(deck="random")).digest
