"""Named streams: pinned values, uniformity, independence of how the work is split."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from royale_lightning.battle.streams import _GAMMA, _mix, generator, stream_seed, uniforms

PINNED_SEED_0 = 476681647012830559
PINNED_SEED_ACT = 10083000017433701075
PINNED_UNIFORMS = [0.8155219343155811, 0.17486509255961724]
PINNED_GENERATOR = [6692323127569099531, 5114155490848735583]

_INTS = st.integers(-(2**63), 2**63 - 1)


def _splitmix64(state: int) -> tuple[int, int]:
    """The reference implementation (Vigna, splitmix64.c) on Python integers: (new state, output)."""
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return state, z ^ (z >> 31)


def test_finaliser_gives_the_published_splitmix64_outputs() -> None:
    # First outputs for seed 1234567, as printed by Vigna's splitmix64.c (Rosetta Code, "Splitmix64").
    state = np.array([1234567], dtype=np.uint64)
    got = []
    for _ in range(5):
        state = state + _GAMMA
        got.append(int(_mix(state)[0]))
    assert got == [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
                   16408922859458223821]


def test_one_counter_is_the_plain_generator() -> None:
    state, want = stream_seed(5, "s"), []
    for _ in range(20):
        state, z = _splitmix64(state)
        want.append((z >> 11) * 2.0**-53)
    assert uniforms(5, "s", np.arange(20)).tolist() == want


def test_pinned_values() -> None:
    """A change here changes every run's draws: never edit the numbers, version the stream instead."""
    assert stream_seed(0) == PINNED_SEED_0
    assert stream_seed(7, "act", 3) == PINNED_SEED_ACT
    seats = np.array([0, 1])
    assert uniforms(7, "act", seats, 2, np.array([3, 3]), seats).tolist() == PINNED_UNIFORMS
    assert generator(7, "stagger", 0).integers(0, 2**63, 2).tolist() == PINNED_GENERATOR


def test_stream_seed_is_the_same_in_another_process() -> None:
    code = "from royale_lightning.battle.streams import stream_seed; print(stream_seed(3, 'a', 4))"
    env = {**os.environ, "PYTHONHASHSEED": "123"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert int(out.stdout) == stream_seed(3, "a", 4)


def test_paths_do_not_run_together() -> None:
    paths: list[tuple[str | int, ...]] = [(), ("",), ("a",), ("a", 2), ("a2",), ("a", "2"), (2, "a")]
    paths += [("a", "b"), ("ab",), ("a,b",)]
    assert len({stream_seed(1, *p) for p in paths}) == len(paths)
    assert stream_seed(1, "a") != stream_seed(2, "a")
    assert stream_seed(1, "a", np.int32(2)) == stream_seed(1, "a", 2)


@pytest.mark.parametrize("bad", [1.0, None, True, b"a"])
def test_a_path_takes_strings_and_integers_only(bad: object) -> None:
    with pytest.raises(TypeError, match="strings and integers"):
        stream_seed(1, bad)  # type: ignore[arg-type]


def test_float_counters_are_refused() -> None:
    with pytest.raises(TypeError, match="integer type"):
        uniforms(1, "s", np.array([1.0]))


@given(hnp.arrays(np.int64, (12, 3), elements=_INTS), st.integers(0, 12), st.permutations(range(12)))
def test_any_split_or_order_gives_the_same_numbers(c: np.ndarray, cut: int, order: list[int]) -> None:
    whole = uniforms(1, "s", *c.T)
    assert whole.shape == (12,)
    assert whole.dtype == np.float64
    assert ((whole >= 0) & (whole < 1)).all()
    parts = np.concatenate([uniforms(1, "s", *c[:cut].T), uniforms(1, "s", *c[cut:].T)])
    assert (parts == whole).all()
    assert (uniforms(1, "s", *c[order].T) == whole[order]).all()


@settings(max_examples=30)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5))
def test_the_value_counts_not_the_width(values: list[int]) -> None:
    wide, narrow = np.array(values, np.int64), np.array(values, np.int32)
    assert (uniforms(1, "s", wide, 3) == uniforms(1, "s", narrow, np.uint8(3))).all()


def test_shapes_broadcast_and_scalars_stay_scalars() -> None:
    a, b = np.arange(3)[:, None], np.arange(4)
    out = uniforms(1, "s", a, b)
    assert out.shape == (3, 4)
    assert out[2, 1] == uniforms(1, "s", 2, 1)
    assert out.flags.writeable  # torch.from_numpy warns on a read-only array
    assert uniforms(1, "s", 2, 1).shape == ()
    assert uniforms(1, "s").shape == ()
    assert uniforms(1, "s", np.zeros(0, np.int64), 1).shape == (0,)
    with pytest.raises(ValueError, match="broadcast"):
        uniforms(1, "s", np.arange(2), np.arange(3))


def test_order_of_counters_stream_and_seed_matter() -> None:
    counters = ((0, 1), (1, 0), (1,), (0, 0, 1))
    draws = {float(uniforms(s, n, *c)) for s in (1, 2) for n in ("a", "b") for c in counters}
    assert len(draws) == 16


def _grid(n: int = 40_000) -> np.ndarray:
    """Draws laid out as a rollout lays them out: battle, ordinal, game step, seat; the seat moves fastest."""
    k = np.arange(n)
    return uniforms(11, "act", k // 2000, k // 400 % 5, k // 2 % 200, k % 2)


def test_draws_are_uniform() -> None:
    # Chi-square on 100 cells; 99 degrees of freedom have mean 99, sd 14.1; 5 sd either way.
    counts = np.bincount((_grid() * 100).astype(int), minlength=100)
    chi2 = float(((counts - 400) ** 2 / 400).sum())
    assert 30 < chi2 < 170


@pytest.mark.parametrize("lag", [1, 2, 400, 2000])
def test_neighbouring_counters_are_uncorrelated(lag: int) -> None:
    u = _grid()
    r = np.corrcoef(u[:-lag], u[lag:])[0, 1]
    assert abs(r) < 5 / np.sqrt(len(u))
    # Pairs fill the square evenly too (no lattice): 15 x 15 cells, 224 degrees of freedom, sd 21.
    pairs = (u[:-lag] * 15).astype(int) * 15 + (u[lag:] * 15).astype(int)
    want = len(pairs) / 225
    chi2 = float(((np.bincount(pairs, minlength=225) - want) ** 2 / want).sum())
    assert 120 < chi2 < 330


def test_no_two_addresses_share_a_draw() -> None:
    assert len(np.unique(_grid())) == 40_000


def test_streams_are_uncorrelated() -> None:
    k = np.arange(20_000)
    r = np.corrcoef(uniforms(1, "act", k), uniforms(1, "stagger", k))[0, 1]
    assert abs(r) < 5 / np.sqrt(len(k))


def test_generators_of_one_path_agree_and_of_two_differ() -> None:
    assert (generator(1, "x", 2).random(5) == generator(1, "x", 2).random(5)).all()
    assert (generator(1, "x", 2).random(5) != generator(1, "x", 3).random(5)).all()
