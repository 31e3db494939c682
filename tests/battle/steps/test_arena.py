"""The batched arena against RoyaleGym's environment, byte for byte, and against itself on more threads."""

from __future__ import annotations

from typing import Any

import pytest

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import FORCED, TRUNCATED
from royale_lightning.battle.spec import BattleSpec
from tests.support.rounds import drive, same

MIRROR = ("learner", "learner")


@pytest.mark.parametrize("reward", ["tower_result", "potential"])
def test_batched_and_environment_give_the_same_bytes(reward: str) -> None:
    players = [MIRROR, ("learner", "scripted:push"), ("scripted:random", "learner")]
    kwargs: dict[str, Any] = {"players": players, "forced": 0.2}
    spec = BattleSpec(deck="random", reward=reward)
    assert prepare(spec).batched
    fast = drive(spec, 170, **kwargs)
    assert sum(len(x[-2]) for x in fast) >= 1, "no battle ended, so no end was compared"
    assert any((x[0] == FORCED).any() for x in fast)
    same(fast, drive(BattleSpec(deck="random", reward=reward, arena="env"), 170, **kwargs))


def test_a_truncation_keeps_the_final_observation() -> None:
    settings: dict[str, Any] = {"max_ticks": 700}
    fast = drive(BattleSpec(**settings), 60, battles=2)
    env = drive(BattleSpec(**settings, arena="env"), 60, battles=2)
    cut = [x for x in fast if (x[4] == TRUNCATED).any()]
    assert cut
    assert all(x[7].sum() == 2 * (x[4] == TRUNCATED).sum() for x in cut)
    same(fast, env)


def test_threads_do_not_change_a_byte() -> None:
    spec = BattleSpec(deck="random")
    one = drive(spec, 60, battles=5, stagger=40)
    same(one, drive(spec, 60, battles=5, stagger=40, threads=3))
    assert one[0][6].min() >= 40, "the staggered steps come before the first row"


def test_the_mask_is_never_refused_by_the_engine() -> None:
    # drive() asserts that nothing was refused; eager play meets buildings, fallen towers and the tiebreak.
    rounds = drive(BattleSpec(deck="random"), 300, battles=5, noop=0.0, forced=0.0)
    assert sum(len(x[-2]) for x in rounds) >= 3


def test_rewards_are_discounted_inside_a_round() -> None:
    spec = BattleSpec(reward="tower_result")
    kept = drive(spec, 150, forced=1.0)
    skipped = drive(spec, 150, forced=0.0)
    assert {int(d) for x in kept for d in x[3]} <= {0, 1}, "with every forced decision kept, a round is a game step"
    assert max(int(d) for x in skipped for d in x[3]) > 3
