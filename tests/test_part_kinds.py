"""Parts are built in one place, which says of each what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.callbacks import Alarms, RatingUpdate, SnapshotPromotion
from royale_lightning.errors import UserError
from royale_lightning.nn.build import build_network
from royale_lightning.nn.protocol import Inputs
from royale_lightning.parts import Part
from royale_lightning.ppo.auxiliary import build_terms
from royale_lightning.rollout.advantage import estimator_of
from royale_lightning.rollout.settings import OpponentShares


class Other:
    """Takes whatever a part is given, and is none."""

    def __init__(self, *args: Any) -> None:
        pass


OTHER = f"{__name__}.Other"


def _inputs() -> Inputs:
    known = prepare(BattleSpec())
    return Inputs(known.row_layout, known.action_layout, 145, 4)


@pytest.mark.parametrize(
    ("where", "kind", "build"),
    [
        ("alarms.extra", ".Alarm", lambda: Alarms(extra=[OTHER])),
        ("RatingUpdate.rater", ".Rater", lambda: RatingUpdate(rater=OTHER).on_fit_start(None, None)),
        ("SnapshotPromotion.gate", ".PromotionGate", lambda: SnapshotPromotion(gate=OTHER)),
        ("SnapshotPromotion.eviction", ".EvictionPolicy", lambda: SnapshotPromotion(eviction=OTHER)),
        ("opponents.matchmaker", ".Matchmaker", lambda: OpponentShares(matchmaker=OTHER).build(1, 4)),
        ("model.network", "royale_lightning.nn.ActorCritic", lambda: build_network(OTHER, _inputs(), 1)),
        ("model.auxiliary.mine", ".AuxiliaryLoss", lambda: build_terms({"mine": Part(OTHER)}, _inputs())),
        ("ppo.advantage", ".AdvantageEstimator", lambda: estimator_of(OTHER)),
        ("battle.reward", "royalegym.reward.RewardFunction", lambda: BattleSpec(reward=OTHER).make_reward()),
    ],
)
def test_a_class_of_another_kind_is_refused_in_one_sentence(
    where: str, kind: str, build: Callable[[], Any]
) -> None:
    name = kind.rpartition(".")[2]
    with pytest.raises(UserError) as refused:
        build()
    assert str(refused.value).startswith(f"{where}: {OTHER} is no {name}; derive it from ")
    assert str(refused.value).endswith(kind)


def test_a_part_of_its_kind_is_what_the_class_makes() -> None:
    assert isinstance(Part(OTHER).build("x", 1, 2, kind=Other), Other)
    assert isinstance(Part(OTHER).build("x"), Other)
