"""Rounds of battles as plain tuples, to hold one arena against another."""

from __future__ import annotations

from typing import Any

import numpy as np

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, DEAL, RUNNING, Assignment, Deal, Round
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena

MIRROR = ("learner", "learner")


def drive(
    spec: BattleSpec, rounds: int, *, battles: int = 3, players: Any = None, threads: int = 1, forced: float = 0.05,
    noop: float = 0.6, stagger: int = 0, seed: int = 0, deal: Deal = DEAL,
) -> list[tuple[np.ndarray, ...]]:
    """Play rounds with random-legal actions and return copies of everything a round says."""
    layout = prepare(spec).row_layout
    r = Round(battles, layout.row_bytes)
    arena = build_arena(spec, 10, battles, r, ArenaSettings(seed=7, forced_share=forced, threads=threads))
    arena.set_gamma(0.97)
    rng = np.random.default_rng(seed)
    players = players or [MIRROR] * battles
    learns = np.array([p == "learner" for pair in players for p in pair])
    ordinal = [0] * battles
    fresh = [Assignment(10 + b, 0, players[b], 500 + b, stagger, deal=deal) for b in range(battles)]
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
            r.offers[r.kind == CHOICE].copy(), r.hidden[learns & (r.kind > 0)].copy(),
            r.final_hidden[learns & (r.final > 0)].copy(), episodes, numbers,
        ))
        fresh = []
        for b in np.flatnonzero(r.end != RUNNING):
            ordinal[b] += 1
            number = 500 + int(b) + 50 * ordinal[b]
            fresh.append(Assignment(10 + int(b), ordinal[b], players[b], number, deal=deal))
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
