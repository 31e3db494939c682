"""GAE over rows and holes: hand cases, closed forms, and a reference that sums forward, not back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from royale_lightning.battle.round import RUNNING, TERMINATED, TRUNCATED
from royale_lightning.parts import Part
from royale_lightning.rollout.advantage import ESTIMATORS, GAE, Advantages, Cells, gae, normalise

NAN = math.nan
_SEEDS = st.integers(0, 2**32 - 1)
_GAMMAS = st.sampled_from([1.0, 0.998, 0.9, 0.5])
_LAMBDAS = st.sampled_from([1.0, 0.97, 0.5, 0.0])


def reference_gae(cells: Cells, value: Tensor, cut_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Slow and plain, in Python floats: per slot and row, the sum over later rows of decayed deltas."""
    advantage, target = np.zeros(len(value)), np.zeros(len(value))
    row, reward, duration = cells.row.tolist(), cells.reward.tolist(), cells.duration.tolist()
    end, final, learner = cells.end.tolist(), cells.final_value.tolist(), cells.learner.tolist()
    v = value.tolist()
    rounds = len(row)
    for s in range(len(row[0]) if rounds else 0):
        mine = [t for t in range(rounds) if learner[t][s]]
        for i, t0 in enumerate(mine):
            if row[t0][s] < 0:
                continue
            total, elapsed = 0.0, 0
            at: int | None = i
            while at is not None:  # one turn per row of the episode, from t0's own on
                gain, steps, boot = 0.0, 0, 0.0
                nxt: int | None = None
                here = v[row[mine[at]][s]]
                for j in range(at, len(mine)):
                    t = mine[j]
                    if j > at and row[t][s] >= 0:
                        nxt, boot = j, v[row[t][s]]
                        break
                    gain += gamma**steps * reward[t][s]
                    steps += duration[t][s]
                    if end[t][s] == TERMINATED:
                        break
                    if end[t][s] == TRUNCATED:
                        boot = final[t][s]
                        break
                else:
                    boot = float(cut_value[s])
                total += (gamma * lam) ** elapsed * (gain + gamma**steps * boot - here)
                elapsed += steps
                at = nxt
            advantage[row[t0][s]] = total
            target[row[t0][s]] = total + v[row[t0][s]]
    return Advantages(torch.tensor(advantage), torch.tensor(target))


def one_slot(
    row: list[int],
    reward: list[float],
    duration: list[int],
    end: list[int] | None = None,
    final: dict[int, float] | None = None,
    learner: list[bool] | None = None,
) -> Cells:
    """The rectangle of a single slot."""
    n = len(row)
    finals = [(final or {}).get(t, NAN) for t in range(n)]
    return Cells(
        row=torch.tensor(row).reshape(n, 1),
        reward=torch.tensor(reward, dtype=torch.float32).reshape(n, 1),
        duration=torch.tensor(duration, dtype=torch.int32).reshape(n, 1),
        end=torch.tensor(end or [RUNNING] * n, dtype=torch.uint8).reshape(n, 1),
        final_value=torch.tensor(finals, dtype=torch.float32).reshape(n, 1),
        learner=torch.tensor([True] * n if learner is None else learner).reshape(n, 1),
    )


def run(cells: Cells, value: list[float], cut: float, gamma: float = 0.9, lam: float = 0.5) -> list[float]:
    out = gae(cells, torch.tensor(value), torch.tensor([cut]), gamma, lam)
    torch.testing.assert_close(out.target, out.advantage + torch.tensor(value))
    return out.advantage.tolist()


def test_rows_only_is_textbook_gae() -> None:
    a = run(one_slot([0, 1], [1.0, 2.0], [1, 1]), [0.5, 0.25], 4.0)
    last = 2.0 + 0.9 * 4.0 - 0.25
    assert a == pytest.approx([1.0 + 0.9 * 0.25 - 0.5 + 0.45 * last, last])


def test_an_end_inside_a_round_stops_reward_and_duration() -> None:
    # The battle ended 3 game steps into the round: nothing of the value at the cut, which is another
    # battle's.
    cells = one_slot([0, 1], [1.0, 2.0], [2, 3], [RUNNING, TERMINATED])
    last = 2.0 - 0.25
    assert run(cells, [0.5, 0.25], NAN) == pytest.approx([1.0 + 0.81 * 0.25 - 0.5 + 0.45**2 * last, last])


def test_truncation_in_a_forced_seats_hole_bootstraps_from_the_final_observation() -> None:
    cells = one_slot([0, -1], [1.0, 0.5], [2, 3], [RUNNING, TRUNCATED], {1: 4.0})
    want = 1.0 + 0.9**2 * (0.5 + 0.9**3 * 4.0) - 0.5
    assert run(cells, [0.5], NAN) == pytest.approx([want])


def test_a_hole_where_only_the_other_seat_chose_passes_value_and_credit_on() -> None:
    cells = one_slot([0, -1, 1], [1.0, 0.5, 2.0], [2, 3, 1])
    last = 2.0 + 0.9 * 4.0 - 0.25
    want = 1.0 + 0.9**2 * (0.5 + 0.9**3 * 0.25) - 0.5 + 0.45**5 * last
    assert run(cells, [0.5, 0.25], 4.0) == pytest.approx([want, last])


def test_the_cut_with_a_forced_seat() -> None:
    cells = one_slot([0, -1, -1], [1.0, 0.5, 0.25], [2, 3, 1])
    want = 1.0 + 0.9**2 * 0.5 + 0.9**5 * 0.25 + 0.9**6 * 4.0 - 0.5
    assert run(cells, [0.5], 4.0) == pytest.approx([want])


def test_a_forced_opening_reaches_no_row_and_crosses_no_end() -> None:
    # Round 0 ends an episode; rounds 1 and 2 are the next one's opening, with rewards that must go nowhere.
    end = [TERMINATED, RUNNING, RUNNING, RUNNING]
    cells = one_slot([0, -1, -1, 1], [1.0, 100.0, 100.0, 2.0], [1, 5, 5, 1], end)
    assert run(cells, [0.5, 0.25], 4.0) == pytest.approx([1.0 - 0.5, 2.0 + 0.9 * 4.0 - 0.25])


def test_an_episode_without_a_row_leaves_no_trace() -> None:
    cells = one_slot([0, -1, 1], [1.0, 7.0, 2.0], [1, 5, 1], [TERMINATED, TERMINATED, RUNNING])
    assert run(cells, [0.5, 0.25], 4.0) == pytest.approx([0.5, 2.0 + 0.9 * 4.0 - 0.25])


def test_anothers_episodes_in_the_slot_are_ignored() -> None:
    # Learner, then a snapshot's episode (its cells hold anything), then the learner again, cut.
    cells = one_slot(
        [0, -1, -1, 1],
        [1.0, NAN, NAN, 2.0],
        [1, 9, 9, 1],
        [TERMINATED, RUNNING, TRUNCATED, RUNNING],
        learner=[True, False, False, True],
    )
    assert run(cells, [0.5, 0.25], 4.0) == pytest.approx([0.5, 2.0 + 0.9 * 4.0 - 0.25])
    # And the other way round: the current episode is a snapshot's, so its value at the cut is nobody's.
    cells = one_slot([0, -1], [1.0, NAN], [1, 9], [TRUNCATED, RUNNING], {0: 3.0}, [True, False])
    assert run(cells, [0.5], NAN) == pytest.approx([1.0 + 0.9 * 3.0 - 0.5])


def test_rows_of_no_cell_hold_zero_and_an_empty_heap_is_fine() -> None:
    out = gae(one_slot([1], [1.0], [1]), torch.tensor([7.0, 0.5, 7.0]), torch.zeros(1), 0.9, 0.5)
    assert out.advantage.tolist() == pytest.approx([0.0, 0.5, 0.0])
    assert out.target.tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert gae(one_slot([-1], [1.0], [1]), torch.zeros(0), torch.zeros(1), 0.9, 0.5).advantage.shape == (0,)
    i, f, b = torch.int64, torch.float32, torch.bool
    empty = Cells(*(torch.zeros((0, 3), dtype=t) for t in (i, f, torch.int32, torch.uint8, f, b)))
    assert gae(empty, torch.ones(2), torch.zeros(3), 0.9, 0.5).target.tolist() == [0.0, 0.0]


def test_gamma_one_lambda_one_is_return_minus_value() -> None:
    reward, value = [1.0, -2.0, 0.5, 3.0], [0.3, 0.1, -0.2, 0.7]
    cells = one_slot([0, 1, 2, 3], reward, [4, 1, 9, 2], [RUNNING, RUNNING, RUNNING, TERMINATED])
    want = [sum(reward[i:]) - value[i] for i in range(4)]
    assert run(cells, value, NAN, 1.0, 1.0) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("lam", [0.0, 0.97, 1.0])
def test_constant_reward_has_its_closed_form(d: int, lam: float) -> None:
    # Reward 1 per game step, m rounds of d steps to the end, V = 0: a geometric sum in (gamma lam)^d.
    m, gamma = 12, 0.99
    inside = (1 - gamma**d) / (1 - gamma)
    cells = one_slot(list(range(m)), [inside] * m, [d] * m, [RUNNING] * (m - 1) + [TERMINATED])
    q = (gamma * lam) ** d
    want = [inside * (1 - q ** (m - i)) / (1 - q) for i in range(m)]
    assert run(cells, [0.0] * m, NAN, gamma, lam) == pytest.approx(want, rel=1e-5)
    exact = [(1 - gamma ** (d * (m - i))) / (1 - gamma) for i in range(m)]
    assert run(cells, exact, NAN, gamma, lam) == pytest.approx([0.0] * m, abs=1e-5)


def random_rectangle(
    rng: np.random.Generator, rounds: int, slots: int, longest: int = 20
) -> tuple[Cells, Tensor, Tensor]:
    """Any rectangle the collector could hand over, with NaN wherever nothing may be read."""
    shape = (rounds, slots)
    end = rng.choice([RUNNING, TERMINATED, TRUNCATED], size=shape, p=[0.8, 0.1, 0.1])
    learner = np.empty(shape, bool)
    for s in range(slots):
        who = rng.random() < 0.7
        for t in range(rounds):
            learner[t, s] = who
            if end[t, s] != RUNNING:
                who = rng.random() < 0.7
    has_row = learner & (rng.random(shape) < rng.random())
    row = np.full(shape, -1)
    n = int(has_row.sum()) + int(rng.integers(0, 3))
    row[has_row] = rng.permutation(n)[: int(has_row.sum())]
    reward = np.where(learner, rng.normal(size=shape) * 0.3, NAN)
    final = np.where(learner & (end == TRUNCATED), rng.normal(size=shape), NAN)
    last = np.ones(slots, bool) if rounds == 0 else learner[-1] & (end[-1] == RUNNING)
    cut = np.where(last, rng.normal(size=slots), NAN)
    cells = Cells(
        row=torch.tensor(row),
        reward=torch.tensor(reward, dtype=torch.float32),
        duration=torch.tensor(rng.integers(1, longest + 1, size=shape), dtype=torch.int32),
        end=torch.tensor(end, dtype=torch.uint8),
        final_value=torch.tensor(final, dtype=torch.float32),
        learner=torch.tensor(learner),
    )
    value = torch.tensor(rng.normal(size=n), dtype=torch.float32)
    return cells, value, torch.tensor(cut, dtype=torch.float32)


@settings(max_examples=200, deadline=None)
@given(_SEEDS, st.integers(1, 14), st.integers(1, 5), _GAMMAS, _LAMBDAS)
def test_equals_the_reference(seed: int, rounds: int, slots: int, gamma: float, lam: float) -> None:
    cells, value, cut = random_rectangle(np.random.default_rng(seed), rounds, slots)
    got, want = gae(cells, value, cut, gamma, lam), reference_gae(cells, value, cut, gamma, lam)
    assert got.advantage.dtype == torch.float32
    assert got.advantage.shape == got.target.shape == value.shape
    np.testing.assert_allclose(got.advantage, want.advantage, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(got.target, want.target, atol=1e-5, rtol=1e-5)


def test_single_precision_is_enough() -> None:
    # The longest rollout we expect, with forced stretches of up to a minute: the docstring's claim.
    cells, value, cut = random_rectangle(np.random.default_rng(0), 400, 4, longest=120)
    got, want = gae(cells, value, cut, 0.998, 0.97), reference_gae(cells, value, cut, 0.998, 0.97)
    assert float((got.advantage - want.advantage).abs().max()) < 2e-6


@dataclass
class Steps:
    """One slot's life game step by game step: what a rectangle is an abridgement of."""

    reward: np.ndarray
    end: np.ndarray
    final: np.ndarray
    forced: np.ndarray
    value: np.ndarray
    cut: float


def life(rng: np.random.Generator, n: int, gamma: float) -> Steps:
    """A random life whose values satisfy the Bellman equation on the forced steps, exactly."""
    end = rng.choice([RUNNING, TERMINATED, TRUNCATED], size=n, p=[0.85, 0.08, 0.07])
    s = Steps(
        reward=rng.normal(size=n) * 0.3,
        end=end,
        final=np.where(end == TRUNCATED, rng.normal(size=n), NAN),
        forced=rng.random(n) < rng.random(),
        value=rng.normal(size=n),
        cut=float(rng.normal()),
    )
    for g in range(n - 1, -1, -1):
        if s.forced[g]:
            after = s.cut if g == n - 1 else s.value[g + 1]
            if end[g] != RUNNING:
                after = 0.0 if end[g] == TERMINATED else s.final[g]
            s.value[g] = s.reward[g] + gamma * after
    return s


def abridge(s: Steps, starts: np.ndarray, keep: np.ndarray, gamma: float) -> tuple[Cells, Tensor, np.ndarray]:
    """Rounds that begin where ``starts`` says; rows for the kept. Also each heap row's game step."""
    begins = np.flatnonzero(starts)
    ends = np.append(begins[1:], len(s.reward))
    row: list[int] = []
    reward: list[float] = []
    duration: list[int] = []
    end: list[int] = []
    final: dict[int, float] = {}
    at: list[int] = []
    for t, (a, b) in enumerate(zip(begins, ends, strict=True)):
        row.append(len(at) if keep[a] else -1)
        if keep[a]:
            at.append(int(a))
        reward.append(float(sum(gamma**k * s.reward[a + k] for k in range(b - a))))
        duration.append(int(b - a))
        end.append(int(s.end[b - 1]))
        if end[-1] == TRUNCATED:
            final[t] = float(s.final[b - 1])
    value = torch.tensor(s.value[at], dtype=torch.float32)
    return one_slot(row, reward, duration, end, final), value, np.array(at, dtype=int)


@settings(max_examples=200, deadline=None)
@given(_SEEDS, st.integers(1, 60), _GAMMAS, _LAMBDAS)
def test_skipping_forced_rows_changes_no_advantage(seed: int, n: int, gamma: float, lam: float) -> None:
    rng = np.random.default_rng(seed)
    s = life(rng, n, gamma)
    cut = torch.tensor([s.cut], dtype=torch.float32)
    all_cells, all_value, _ = abridge(s, np.ones(n, bool), np.ones(n, bool), gamma)
    kept = gae(all_cells, all_value, cut, gamma, lam)

    # A round begins at each choice, after each end, and at some forced steps where the other seat chose; of
    # the forced ones some are drawn as value-only rows.
    starts = ~s.forced | (rng.random(n) < 0.2)
    starts[0] = True
    starts[1:] |= s.end[:-1] != RUNNING
    some, some_value, at = abridge(s, starts, starts & (~s.forced | (rng.random(n) < 0.3)), gamma)
    skipped = gae(some, some_value, cut, gamma, lam)
    np.testing.assert_allclose(skipped.advantage, kept.advantage[at], atol=2e-5)
    np.testing.assert_allclose(skipped.target, kept.target[at], atol=2e-5)


def test_forced_rows_that_break_bellman_would_differ() -> None:
    # The property above is not vacuous: it needs V to be right on the forced steps.
    s = life(np.random.default_rng(3), 30, 0.9)
    s.end[:], s.forced[:], s.value[:] = RUNNING, False, 0.0
    s.value[1] = 1.0 + s.reward[1]
    every, starts = np.ones(30, bool), np.arange(30) != 1
    cut = torch.tensor([s.cut], dtype=torch.float32)
    kept, skipped = (gae(*abridge(s, w, w, 0.9)[:2], cut, 0.9, 0.5).advantage[0] for w in (every, starts))
    # One forced delta of -1, weighed by gamma lambda when kept and by gamma when folded into the row before.
    assert float(kept - skipped) == pytest.approx(0.9 * 0.5, abs=1e-5)


def test_nothing_waits_for_the_device() -> None:
    # Tensors without data raise on whatever needs it: .item(), a boolean index, Python's own if.
    cells, value, cut = random_rectangle(np.random.default_rng(0), 6, 3)
    meta = Cells(**{name: tensor.to("meta") for name, tensor in vars(cells).items()})
    out = gae(meta, value.to("meta"), cut.to("meta"), 0.99, 0.95)
    assert normalise(out.advantage, out.advantage > 0).shape == value.shape


def test_the_shipped_estimator_is_found_by_name() -> None:
    estimator = Part.of("gae", "ppo.advantage", ESTIMATORS).build("ppo.advantage")
    assert isinstance(estimator, GAE)
    cells, value, cut = random_rectangle(np.random.default_rng(1), 5, 2)
    want = gae(cells, value, cut, 0.99, 0.95)
    assert torch.equal(estimator(cells, value, cut, 0.99, 0.95).target, want.target)


@settings(deadline=None)
@given(_SEEDS, st.integers(2, 200))
def test_normalise_standardises_the_selected_rows(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a = torch.tensor(rng.normal(size=n) * 3 + 2, dtype=torch.float32)
    where = torch.tensor(rng.random(n) < 0.6)
    where[:2] = True
    out = normalise(a, where)
    chosen = out[where]
    # Of values that lie close together, float32 leaves few digits of the difference.
    left = float(a[where].abs().max() / a[where].std(correction=0)) * torch.finfo(torch.float32).eps
    assert float(chosen.mean()) == pytest.approx(0.0, abs=1e-6 + 2 * left)
    assert float(chosen.std(correction=0)) == pytest.approx(1.0, abs=1e-4)
    assert (out[~where] == 0).all()
    assert torch.equal(torch.argsort(chosen), torch.argsort(a[where]))


@pytest.mark.parametrize("where", [[False, False, False], [True, False, False], [True, True, True]])
def test_normalise_with_nothing_to_scale_gives_zeros(where: list[bool]) -> None:
    a = torch.tensor([0.1, 0.1, 0.1])
    assert normalise(a, torch.tensor(where)).tolist() == pytest.approx([0.0, 0.0, 0.0], abs=0.02)


def test_normalise_ignores_what_unselected_rows_hold() -> None:
    out = normalise(torch.tensor([1.0, -1.0, NAN]), torch.tensor([True, True, False]))
    assert out.tolist() == pytest.approx([1.0, -1.0, 0.0])


def test_ranks_share_one_mean_and_deviation() -> None:
    a, where = torch.randn(101, generator=torch.Generator().manual_seed(0)), torch.arange(101) % 3 > 0
    whole, halves = normalise(a, where), ((a[:40], where[:40]), (a[40:], where[40:]))

    # Each rank's call sees the sums of both: what all_reduce would return to it.
    n = sum(float(w.sum()) for _, w in halves)
    mean = sum(float(x[w].sum()) for x, w in halves) / n
    squares = sum(float((x[w] - mean).square().sum()) for x, w in halves)
    for part, (x, w) in zip((whole[:40], whole[40:]), halves, strict=True):
        answers = iter([torch.tensor([n, mean * n]), torch.tensor([squares])])
        got = normalise(x, w, lambda _, a=answers: next(a))  # type: ignore[misc]
        torch.testing.assert_close(got, part, atol=1e-5, rtol=1e-5)
