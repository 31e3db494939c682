"""The batched arena against RoyaleGym's environment, byte for byte, and against itself on more threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from royale_lightning.battle.round import CHOICE, FORCED, RUNNING, TRUNCATED, Assignment, Round
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena

MIRROR = ("learner", "learner")


def drive(
    spec: BattleSpec, rounds: int, *, battles: int = 3, players: Any = None, threads: int = 1, forced: float = 0.05,
    noop: float = 0.6, stagger: int = 0, seed: int = 0,
) -> list[tuple[np.ndarray, ...]]:
    """Play rounds with random-legal actions and return copies of everything a round says."""
    layout = spec.row_layout
    r = Round(battles, layout.row_bytes)
    arena = build_arena(spec, 10, battles, r, ArenaSettings(seed=7, forced_share=forced, threads=threads))
    arena.set_gamma(0.97)
    rng = np.random.default_rng(seed)
    players = players or [MIRROR] * battles
    ordinal = [0] * battles
    fresh = [Assignment(10 + b, 0, players[b], 500 + b, stagger) for b in range(battles)]
    out = []
    for _ in range(rounds):
        arena.advance(fresh)
        episodes = [
            (e.battle, e.winner, e.ticks, e.game_steps, e.crowns, e.plays, e.choices, e.leak_steps, e.truncated)
            for e in r.episodes
        ]
        numbers = np.array([[e.tower_hp, e.returns, e.discounted] for e in r.episodes], dtype=float)
        out.append((
            r.kind.copy(), r.rows[r.kind > 0].copy(), r.reward.copy(), r.duration.copy(), r.end.copy(),
            r.ordinal.copy(), r.game_step.copy(), r.final.copy(), r.final_rows[r.final > 0].copy(),
            r.offers[r.kind == CHOICE].copy(), episodes, numbers,
        ))
        fresh = []
        for b in np.flatnonzero(r.end != RUNNING):
            ordinal[b] += 1
            fresh.append(Assignment(10 + int(b), ordinal[b], players[b], 500 + int(b) + 50 * ordinal[b]))
        todo = np.flatnonzero(r.kind == CHOICE)
        masks = layout.unpack_mask(layout.views(r.rows)["action_mask"][todo])
        for slot, mask in zip(todo, masks, strict=True):
            assert mask.sum() > 1, "a choice has more than one legal action"
            assert np.array_equal(r.offers[slot] >= 0, mask[1:].reshape(4, -1).any(1))
            r.action[slot] = 0 if rng.random() < noop else rng.choice(np.flatnonzero(mask)[1:])
    assert arena.refused == 0
    arena.close()
    return out


def same(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> None:
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        for i, (p, q) in enumerate(zip(x[:-2], y[:-2], strict=True)):
            assert np.array_equal(p, q), f"round {k}, part {i}"
        assert x[-2] == y[-2]
        assert np.allclose(x[-1], y[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("reward", ["tower_result", "potential"])
def test_batched_and_environment_give_the_same_bytes(reward: str) -> None:
    players = [MIRROR, ("learner", "scripted:push"), ("scripted:random", "learner")]
    kwargs: dict[str, Any] = {"players": players, "forced": 0.2}
    spec = BattleSpec(deck="random", reward=reward)
    assert spec.batched
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
