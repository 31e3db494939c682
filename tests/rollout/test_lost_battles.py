"""Battles lost in the middle of a rollout: what their rows are worth, against a rollout that never held them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.battle.round import RUNNING, TERMINATED, TRUNCATED
from royale_lightning.rollout.advantage import Cells, gae
from royale_lightning.rollout.lost_battles import Voids

GAMMA, LAMBDA = 0.9, 0.8


def rectangle(rng: np.random.Generator, rounds: int, slots: int, battles_end: float) -> list[list[np.ndarray]]:
    cells, n = [], 0
    for _ in range(rounds):
        row = np.full(slots, -1)
        has = rng.random(slots) < 0.6
        row[has] = np.arange(n, n + has.sum())
        n += int(has.sum())
        end = np.repeat(np.where(rng.random(slots // 2) < battles_end, TERMINATED, RUNNING), 2).astype(np.uint8)
        duration = np.repeat(rng.integers(1, 5, slots // 2), 2).astype(np.int32)
        cells.append([row, rng.normal(size=slots).astype(np.float32), duration, end, np.ones(slots, bool)])
    return cells


def advantages(cells: list[list[np.ndarray]], value: torch.Tensor, cut: torch.Tensor, final: torch.Tensor) -> dict:
    """``{(round, slot): (advantage, target)}`` of every row."""
    stack = [torch.from_numpy(np.stack([c[i] for c in cells])) for i in range(5)]
    a, target = gae(Cells(stack[0], stack[1], stack[2], stack[3], final, stack[4]), value, cut, GAMMA, LAMBDA)
    return {
        (t, s): (float(a[r]), float(target[r]))
        for t, c in enumerate(cells) for s, r in enumerate(c[0]) if r >= 0
    }


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 4))
def test_a_void_is_a_truncation_at_the_last_observation(seed: int, rounds: int, after: int) -> None:
    """The lost slot's rows get what a rollout cut at its last row gives them; everybody else's stay as they were."""
    rng = np.random.default_rng(seed)
    slots, lost = 6, 1
    cells = rectangle(rng, rounds + after, slots, 0.15)
    n = 1 + max(int(c[0].max()) for c in cells)
    value = torch.from_numpy(rng.normal(size=max(1, n)).astype(np.float32))
    cut = torch.from_numpy(rng.normal(size=slots).astype(np.float32))
    final = torch.zeros((rounds + after, slots))
    before = advantages(cells, value, cut, final)
    mine = (2 * lost, 2 * lost + 1)
    want = {}
    for s in mine:
        begin = max((t + 1 for t in range(rounds - 1) if cells[t][3][s] != RUNNING), default=0)
        rows = [t for t in range(begin, rounds) if cells[t][0][s] >= 0]
        last = rows[-1] if rows else begin
        # The reference: the same slot's cells up to its last row, whose value is the cut's.
        short = [[x.copy() for x in c] for c in cells[:last]]
        boot = cut.clone()
        if rows:
            boot[s] = value[cells[last][0][s]]
        if short:
            found = advantages(short, value, boot, final[:last])
            want |= {k: v for k, v in found.items() if k[1] == s and (rows or k[0] < begin)}

    # Rounds up to the loss, then what the slots do once their worker is back.
    for c in cells[rounds - 1 : rounds]:
        for s in mine:
            c[3][s] = RUNNING
    voids = Voids()
    voids.cut(cells[:rounds], [lost])
    voids.put_final_values(final, value)
    got = advantages(cells, value, cut, final)
    for key, pair in got.items():
        if key[1] in mine and key[0] < rounds:
            np.testing.assert_allclose(pair, want[key], atol=1e-5)
        else:
            np.testing.assert_allclose(pair, before[key], atol=1e-5)
    assert {k for k in want if k[0] < rounds} == {k for k in got if k[1] in mine and k[0] < rounds}
    assert all((cells[rounds - 1][3][s] == TRUNCATED) for s in mine)
    assert len(set(voids.rows)) == len(voids.rows) <= 2


def test_rows_close_up_over_what_was_taken_out() -> None:
    voids = Voids(rows=[1, 4])
    kept, new = voids.kept(6)
    assert kept.tolist() == [0, 2, 3, 5]
    assert new[-1] == -1, "a hole stays one"
    assert [int(new[k]) for k in kept] == [0, 1, 2, 3]
