"""Rows of any ``Dict`` observation: what is kept exactly, what is counted, and that everybody reads the same."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from royalegym.env import AGENTS

from royale_lightning.battle.prepare import observation_boxes, prepare
from royale_lightning.battle.round import Assignment
from royale_lightning.battle.rows import codec
from royale_lightning.battle.rows.layout import EXACT, MASK, Loss, RowLayout
from royale_lightning.battle.rows.row_codecs import decode, pack_row
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings
from royale_lightning.battle.steps.env_arena import EnvGame
from royale_lightning.battle.steps.processes import ProcessSource
from royale_lightning.battle.steps.sources import InlineSource, RolloutSource
from royale_lightning.errors import UserError
from royale_lightning.nn.rows import unpack

CARD_PLANES: dict[str, Any] = {"class_path": "spatial", "init_args": {"card_identity": True}}
N_ACTIONS = 100


def both(row: np.ndarray, layout: RowLayout) -> dict[str, np.ndarray]:
    """A row's fields by the numpy decoder, after the torch one was found to give the same bytes."""
    ours = {k: v[0] for k, v in decode(row[None], layout).items()}
    theirs = unpack(torch.from_numpy(row[None]), layout)
    for key, value in ours.items():
        wide = value.astype(np.int32) if value.dtype == np.uint16 else value
        assert theirs[key][0].numpy().tobytes() == wide.tobytes(), key
    return ours


def layout_of(box: spaces.Box, values: Any, states: int = codec.LEAST_STATES) -> RowLayout:
    """The layout of one key ``x`` that showed ``values(i)`` in state i."""
    seen = codec.Seen(box.shape[0] if len(box.shape) > 2 else 1)
    for i in range(states):
        seen.see(values(i))
    return codec.decide({"x": box}, {"x": seen}, "test", N_ACTIONS)


def kinds(layout: RowLayout) -> list[str]:
    return json.loads(layout.table)[0]["kinds"]


def write(layout: RowLayout, x: np.ndarray) -> tuple[np.ndarray, Loss]:
    row = np.full(layout.row_bytes, 0xA5, dtype=np.uint8)
    loss = pack_row(layout, {"x": x}, np.ones(N_ACTIONS), row)
    return both(row, layout)["x"], loss


@pytest.mark.parametrize(
    ("low", "high", "dtype", "kind"),
    [
        (0, 1, "float32", "bits"),
        (0, 64, "float32", "uint8"),
        (0, 1000, "float32", "uint16"),
        (-5, 300, "float32", "int16"),
        (0, 1e9, "float32", "float32"),
        (0, 255, "uint8", "uint8"),
        (0, 65535, "uint16", "uint16"),
        (-(2**31), 2**31 - 2, "int64", "int32"),
        (-np.inf, np.inf, "float32", "uint16"),
    ],
)
def test_whole_numbers_are_kept_exactly_in_what_holds_the_bounds(low: Any, high: Any, dtype: str, kind: str) -> None:
    box = spaces.Box(low, high, (7,), dtype=np.dtype(dtype).type)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (codec.LEAST_STATES, 7)).astype(dtype)
    layout = layout_of(box, lambda i: values[i])
    assert kinds(layout) == [kind]
    for x in values[:20]:
        got, loss = write(layout, x)
        assert np.array_equal(got, x)
        assert loss == EXACT
    if kind not in ("float32", "int32") and np.isfinite(high):
        top = np.full(7, high, dtype=dtype)
        assert np.array_equal(write(layout, top)[0], top), "a declared bound that was never seen"


def test_fractions_are_float16_where_that_is_close_and_float32_elsewhere() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((codec.LEAST_STATES, 5), dtype=np.float32)
    near = layout_of(spaces.Box(0, 1, (5,), dtype=np.float32), lambda i: values[i])
    assert kinds(near) == ["float16"]
    got, loss = write(near, values[3])
    assert got.dtype == np.float32
    assert np.abs(got - values[3]).max() <= codec.TOLERANCE
    assert loss == EXACT
    far = layout_of(spaces.Box(1000, 1001, (5,), dtype=np.float32), lambda i: values[i] + 1000)
    assert kinds(far) == ["float32"]
    assert np.array_equal(write(far, values[3] + 1000)[0], values[3] + 1000)


def test_a_plane_is_static_only_if_it_was_seen_to_be_something() -> None:
    rng = np.random.default_rng(0)
    base = np.zeros((4, 3, 6), dtype=np.float32)
    base[0] = rng.random((3, 6))

    def values(i: int) -> np.ndarray:
        x = base.copy()
        x[2, i % 3] = i % 2
        x[3, 0, 0] = i % 5
        return x

    layout = layout_of(spaces.Box(0, 9, (4, 3, 6), dtype=np.float32), values)
    assert kinds(layout) == ["static", "float16", "uint8", "uint8"], "a blank plane tells nothing"
    assert layout.row_bytes <= 18 * (2 + 1 + 1) + 16
    got, loss = write(layout, values(7))
    assert np.array_equal(got, values(7))
    assert loss == EXACT
    changed = values(7)
    changed[0, 1, 1] += 0.5
    assert write(layout, changed)[1] == Loss(1, 0)


def test_what_a_row_cannot_hold_is_counted() -> None:
    bits = layout_of(spaces.Box(0, 1, (8,), dtype=np.float32), lambda i: np.arange(8) % 2)
    got, loss = write(bits, np.array([0, 1, 0.4, 0.6, 0, 0, 1, 1], dtype=np.float32))
    assert loss == Loss(0, 2)
    assert got.tolist() == [0, 1, 0, 1, 0, 0, 1, 1]
    counts = layout_of(spaces.Box(0, 64, (3,), dtype=np.float32), lambda i: np.array([i % 9, 1, 0]))
    got, loss = write(counts, np.array([300, -1, 7], dtype=np.float32))
    assert loss == Loss(2, 0)
    assert got.tolist() == [255, 0, 7]
    assert write(counts, np.array([np.nan, 0, 0], dtype=np.float32))[1].clipped == 1


def test_too_few_states_are_refused() -> None:
    with pytest.raises(UserError, match=r"cannot be decided from 999 states.*at least 1,000"):
        layout_of(spaces.Box(0, 1, (3,), dtype=np.float32), lambda i: np.zeros(3), states=999)
    with pytest.raises(UserError, match="codec_states is 500; give at least 1,000"):
        BattleSpec(codec_states=500)


def test_the_table_is_part_of_the_digest() -> None:
    a = layout_of(spaces.Box(0, 1, (2, 3, 6), dtype=np.float32), lambda i: np.full((2, 3, 6), i % 2))
    b = layout_of(spaces.Box(0, 1, (2, 3, 6), dtype=np.float32), lambda i: np.arange(36).reshape(2, 3, 6) % 2)
    assert a.digest != b.digest


@pytest.fixture(scope="module")
def spec() -> BattleSpec:
    return BattleSpec(observation=CARD_PLANES, deck="random", codec_states=codec.LEAST_STATES)


def test_played_states_survive(spec: BattleSpec) -> None:
    layout = prepare(spec).row_layout
    declared = prepare(BattleSpec(observation=CARD_PLANES, codec_states=0)).row_layout
    assert layout.row_bytes < declared.row_bytes / 3
    assert [(f.name, f.dtype, f.shape) for f in layout.fields] == [
        ("card_ids", "uint8", (2, 32, 18)), ("spatial", "float32", (20, 32, 18)), ("vector", "float32", (1929,))
    ]
    stored = dict(zip(range(20), json.loads(layout.table)[1]["kinds"], strict=True))
    assert stored[12] == stored[13] == "static"
    game = EnvGame(spec)
    game.reset(Assignment(0, 0, ("learner", "learner"), 77), (True, True))
    row = np.zeros(layout.row_bytes, dtype=np.uint8)
    rng = np.random.default_rng(1)
    exact = [p for p in range(20) if stored[p] not in ("float16", "float32")]
    while not game.ended:
        acts = []
        for seat, agent in enumerate(AGENTS):
            game.encode(seat, row)
            got, want = both(row, layout), game._obs[agent]
            assert np.array_equal(got["card_ids"], want["card_ids"])
            assert np.array_equal(got["spatial"][exact], want["spatial"][exact])
            assert np.abs(got["spatial"] - want["spatial"]).max() <= 64 * codec.TOLERANCE
            assert np.abs(got["vector"] - want["vector"]).max() <= codec.TOLERANCE
            assert np.array_equal(got[MASK], want[MASK])
            legal = np.flatnonzero(want[MASK])
            acts.append(int(rng.choice(legal)) if len(legal) > 1 and rng.random() > 0.7 else 0)
        game.step(*acts)
    assert game.loss == EXACT


def test_the_layout_follows_from_the_observation_alone(spec: BattleSpec) -> None:
    other = BattleSpec(
        observation=CARD_PLANES, deck="starter", reward="royalegym", max_ticks=300, codec_states=codec.LEAST_STATES
    )
    assert prepare(other).row_layout.digest == prepare(spec).row_layout.digest


def rows_of(source: RolloutSource) -> tuple[list[bytes], Loss]:
    out = []
    fresh = [Assignment(b, 0, ("learner", "learner"), 9 + b) for b in range(2)]
    for _ in range(15):
        source.advance(fresh)
        fresh = []
        out.append(source.round.rows[source.round.kind > 0].tobytes())
        source.round.action[:] = 0
    loss = source.loss()
    source.close()
    return out, loss


def test_workers_write_what_this_process_writes(spec: BattleSpec) -> None:
    settings = ArenaSettings(1, 1.0, 1)
    inline = rows_of(InlineSource(spec, 0, 2, settings))
    assert inline == rows_of(ProcessSource(spec, 0, 2, settings, 2))



def test_a_key_that_is_no_box_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from royalegym.obs import SpatialObsBuilder

    monkeypatch.setattr(SpatialObsBuilder, "observation_space", lambda self: spaces.Dict({"n": spaces.Discrete(3)}))
    with pytest.raises(UserError, match="key 'n' is a Discrete"):
        observation_boxes(BattleSpec(observation=CARD_PLANES, codec_states=0))
