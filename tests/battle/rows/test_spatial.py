"""The batched ``spatial`` row against RoyaleGym's own environment, state by state, byte for byte."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from royalegym.env import AGENTS
from royalegym.obs import SpatialObsBuilder
from royalegym.protocol import BattleState, CardInfo, EntityKind, MatchSetup, Placement
from royalegym.rust_engine import RustEngine
from royalegym.state_mutator import DefaultStateMutator, random_deck

from royale_lightning.battle.engine.engine import shared_engine
from royale_lightning.battle.engine.legality import GridCache, find, find_one
from royale_lightning.battle.engine.tables import Tables
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import Assignment
from royale_lightning.battle.rows.layout import MASK
from royale_lightning.battle.rows.row_codecs import decode, pack_row
from royale_lightning.battle.rows.spatial_row import HP_PLANES, MAX_CELLS, MAX_HP_CELLS, spatial_layout
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.env_arena import EnvGame
from royale_lightning.battle.steps.fast_game import FastGame
from royale_lightning.nn.rows import unpack
from royale_lightning.parts import part
from tests.support.rounds import drive, same

#: Regulation's end, the tie-break's freeze, and what a lockstep must have met to count.
REGULAR, FROZEN = 3600, 6000
PHASES = (
    "lockout", "double elixir", "triple elixir", "overtime", "drain", "tower down", "building", "champion",
    "mirror in hand", "elixir golem in hand", "slot waits", "spell", "deploying", "counts inexact", "air",
)


class EveryPhase(DefaultStateMutator):
    """Random decks with the odd cards in them, starts all over the clock, towers damaged or gone."""

    def build(self, rng: np.random.Generator, cards: Any) -> MatchSetup:
        odd = [c for c in cards if c.placement == Placement.MIRROR or c.name in ("ElixirGolem", "ElixirCollector")]
        odd += [c for c in cards if c.placement in (Placement.BUILDING, Placement.TUNNEL)]
        decks = []
        for _ in range(2):
            deck = random_deck(rng, cards)
            kept = [c for c in deck if not cards[c].champion]
            champions = [c.card_id for c in cards if c.champion]
            extra = [c.card_id for c in odd if c.card_id not in deck]
            new = [int(rng.choice(champions)), *(int(c) for c in rng.choice(extra, 2, replace=False))]
            mirror = next(c.card_id for c in cards if c.placement == Placement.MIRROR)
            if mirror not in new and mirror not in kept:
                new[1] = mirror
            decks.append((new + [c for c in kept if c not in new])[:8])
        start = int(rng.choice([0, 2300, 3560, 4760, 5900]))
        hp = None
        if start:
            # Beyond regulation the crowns must be level, or the battle is over at once.
            down = rng.random(2) < 0.5 if start < REGULAR - 100 else np.full(2, rng.random() < 0.5)
            hp = [[4824, int(rng.integers(500, 3053)) * int(not d), int(rng.integers(500, 3053))] for d in down]
        bars = [int(rng.integers(0, 10_001)), int(rng.integers(0, 10_001))] if start else None
        return MatchSetup(decks=decks, shuffle=1, start_tick=start, tower_hp=hp, elixir_milli=bars)


def met(state: BattleState, cards: list[CardInfo], exact: bool) -> list[str]:
    """The phases a state shows."""
    hands = [c for p in state.players for c in p.hand]
    found = {
        "lockout": state.tick < 90,
        "double elixir": state.elixir_rate == 2,
        "triple elixir": state.elixir_rate == 3,
        "overtime": state.overtime,
        "drain": state.tick >= FROZEN,
        "tower down": any(hp <= 0 for p in state.players for hp in p.tower_hp),
        "building": any(e.kind == EntityKind.BUILDING for e in state.entities),
        "champion": any(e.card_id >= 0 and cards[e.card_id].champion for e in state.entities),
        "mirror in hand": any(c >= 0 and cards[c].placement == Placement.MIRROR for c in hands),
        "elixir golem in hand": any(c >= 0 and cards[c].name == "ElixirGolem" for c in hands),
        "slot waits": -1 in hands,
        "spell": bool(state.spells),
        "deploying": any(e.deploy_ticks > 0 for e in state.entities),
        "counts inexact": not exact,
        "air": any(e.flying and e.kind == EntityKind.TROOP for e in state.entities),
    }
    return [k for k, v in found.items() if v]


def lockstep(seat_states: int, seed: int, noop: float = 0.5, longest: int = 400) -> Counter[str]:
    """Play both arenas side by side until this many observations were equal; returns the phases met.

    Args:
        noop: how often a seat with a choice waits.
        longest: game steps after which an episode is left.
    """
    settings: dict[str, Any] = {"observation": "spatial", "start": part(EveryPhase)}
    spec = BattleSpec(**settings)
    assert prepare(spec).batched
    fast, env = FastGame(spec, Tables()), EnvGame(BattleSpec(**settings, arena="env"))
    layout = prepare(spec).row_layout
    cards = list(shared_engine().cards())
    builder = env.env.obs_builder
    rng = np.random.default_rng(seed)
    phases: Counter[str] = Counter()
    rows = np.zeros((2, layout.row_bytes), dtype=np.uint8)
    again = np.zeros_like(rows)
    compared = episode = 0
    while compared < seat_states:
        assignment = Assignment(0, episode, ("learner", "learner"), 1000 * seed + episode)
        fast.reset(assignment, (True, True))
        env.reset(assignment, (True, True))
        episode += 1
        for _ in range(longest):
            rows[:] = 0xA5  # whatever lay there before
            for seat in (0, 1):
                fast.encode(seat, rows[seat])
                env.encode(seat, again[seat])
            assert rows.tobytes() == again.tobytes(), "the arenas' rows differ"
            ours = decode(rows, layout)
            theirs = unpack(torch.from_numpy(rows), layout)
            for seat, agent in enumerate(AGENTS):
                want = env._obs[agent]
                for key in ("spatial", "vector"):
                    assert ours[key].dtype == want[key].dtype
                    assert ours[key][seat].tobytes() == want[key].tobytes(), (key, env.env.battle_state.tick)
                    assert theirs[key][seat].numpy().tobytes() == want[key].tobytes()
                assert np.array_equal(ours[MASK][seat], want[MASK])
                assert np.array_equal(theirs[MASK][seat].numpy(), want[MASK])
                assert ours["vector"].shape[1] == len(want["vector"])
                compared += 1
            assert not layout.views(rows)["left_out"].any()
            exact = all(builder.counts_are_exact(t) for t in (0, 1))
            phases.update(met(env.env.battle_state, cards, exact))
            assert (fast.ended, fast.truncated, fast.choice) == (env.ended, env.truncated, env.choice)
            if fast.ended:
                break
            acts = []
            for seat in (0, 1):
                legal = np.flatnonzero(ours[MASK][seat])
                acts.append(int(rng.choice(legal[1:])) if len(legal) > 1 and rng.random() > noop else 0)
            fast.step(*acts)
            env.step(*acts)
    phases["states"] = compared
    return phases


def test_rows_decode_to_royalegyms_bytes() -> None:
    phases = lockstep(2000, seed=5, longest=60)
    assert phases["states"] >= 2000
    assert not [p for p in PHASES if not phases[p]], phases


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_thousand_rows_decode_to_royalegyms_bytes() -> None:
    total: Counter[str] = Counter()
    for seed, noop in ((21, 0.0), (22, 0.3), (23, 0.6), (24, 0.9)):
        total += lockstep(5200, seed, noop)
    assert total["states"] >= 20_000
    assert not [p for p in PHASES if total[p] < 30], total


def test_both_arenas_fill_the_same_rounds() -> None:
    kwargs: dict[str, Any] = {
        "players": [("learner", "learner"), ("learner", "scripted:push")], "forced": 0.2, "battles": 2
    }
    settings: dict[str, Any] = {"observation": "spatial", "deck": "random", "max_ticks": 900}
    same(drive(BattleSpec(**settings), 50, **kwargs), drive(BattleSpec(**settings, arena="env"), 50, **kwargs))
    fast = drive(BattleSpec(**settings), 50, **kwargs)
    same(fast, drive(BattleSpec(**settings), 50, threads=3, **kwargs))


def test_a_row_is_small() -> None:
    layout = prepare(BattleSpec(observation="spatial")).row_layout
    assert layout.row_bytes <= 1536
    assert [f.name for f in layout.fields] == ["spatial", "vector"]
    assert layout.digest != spatial_layout(9218).digest
    # What a network is built with before any battle: a row of zeros must decode.
    zeros = unpack(torch.zeros((3, layout.row_bytes), dtype=torch.uint8), layout)
    assert zeros["spatial"].shape == (3, 20, 32, 18)
    assert torch.isfinite(zeros["vector"]).all()


def test_cells_beyond_the_row_are_counted(engine: RustEngine) -> None:
    layout = spatial_layout(2305)
    rng = np.random.default_rng(0)
    spatial = np.zeros((20, 32, 18), dtype=np.float32)
    spatial[:4] = rng.integers(0, 3, (4, 32, 18))
    spatial[HP_PLANES[0]] = np.float32(1.234)
    row = np.zeros(layout.row_bytes, dtype=np.uint8)
    loss = pack_row(layout, {"spatial": spatial, "vector": np.zeros(1783, dtype=np.float32)}, np.ones(2305), row)
    want = int((spatial[:4] > 0).sum()) - MAX_CELLS + 576 - MAX_HP_CELLS
    assert loss == (want, 0)
    assert layout.views(row[None])["left_out"][0, 0] == min(255, want)
    got = decode(row[None], layout)["spatial"][0]
    kept = np.flatnonzero(got[:4])
    assert len(kept) == MAX_CELLS
    assert np.array_equal(got[:4].reshape(-1)[kept], spatial[:4].reshape(-1)[kept])


@pytest.mark.parametrize(
    "settings",
    [
        {"command_delay_ticks": 21},
        {"actions": {"class_path": "royalegym.TileActionParser", "init_args": {"ability_buttons": True}}},
        {"actions": "royalegym.HalfTileActionParser"},
        {"observation": {"class_path": "spatial", "init_args": {"card_identity": True}}},
        {"observation": {"class_path": "spatial", "init_args": {"evolutions": True}}},
        {"start": {"class_path": "royalegym.DefaultStateMutator", "init_args": {"forms": [[1] + [0] * 7] * 2}}},
        {"truncation": {"class_path": "royalegym.TimeoutCondition", "init_args": {"max_ticks": 500}}},
    ],
)
def test_other_settings_go_through_the_environment(settings: dict[str, Any]) -> None:
    assert not prepare(BattleSpec(**{"observation": "spatial", **settings})).batched


@pytest.mark.parametrize("name", ["royalegym.SpatialObsBuilder", "royalegym.obs.SpatialObsBuilder", "spatial"])
def test_every_name_of_the_class_is_batched(name: str) -> None:
    assert prepare(BattleSpec(observation=name)).batched
    assert prepare(BattleSpec(observation=part(SpatialObsBuilder))).batched


def test_a_delay_and_buttons_are_packed_by_the_environment() -> None:
    settings: dict[str, Any] = {
        "observation": "spatial", "deck": "random", "command_delay_ticks": 22,
        "actions": {"class_path": "royalegym.TileActionParser", "init_args": {"ability_buttons": True}},
    }
    spec = BattleSpec(**settings)
    env = EnvGame(spec)
    layout = prepare(spec).row_layout
    env.reset(Assignment(0, 0, ("learner", "learner"), 3), (True, True))
    row = np.zeros((1, layout.row_bytes), dtype=np.uint8)
    rng = np.random.default_rng(0)
    waiting = 0
    for _ in range(120):
        acts = []
        for seat, agent in enumerate(AGENTS):
            env.encode(seat, row[0])
            ours, want = decode(row, layout), env._obs[agent]
            assert all(ours[k][0].tobytes() == want[k].tobytes() for k in ("spatial", "vector"))
            assert np.array_equal(ours[MASK][0], want[MASK])
            waiting += bool(want["vector"][598])
            legal = np.flatnonzero(want[MASK])
            acts.append(int(rng.choice(legal)) if len(legal) > 1 and rng.random() > 0.5 else 0)
        env.step(*acts)
    assert waiting, "no command waited, so no delay was seen"


def test_grids_keep_their_place_when_the_table_grows(engine: RustEngine) -> None:
    cache = GridCache(engine, capacity=8)
    rng = np.random.default_rng(0)
    keys = rng.integers(1, 2**63, 100).tolist()
    grids = rng.integers(0, 256, (100, 72)).astype(np.uint8)
    for key, grid in zip(keys, grids, strict=True):
        cache._insert(key, grid)
        assert (cache.grids[: cache.used] == grids[: cache.used]).all(), "an index handed out earlier went stale"
    table_keys, table_grid, _ = cache.table
    assert [find_one(np.uint64(k), table_keys, table_grid) for k in keys] == list(range(100))


def test_an_entry_that_is_half_written_is_unknown(engine: RustEngine) -> None:
    """A thread without the interpreter's lock may see another's three writes in any order; x86 never shows it."""
    key, grid = 12345, np.full(72, 255, np.uint8)
    before, after = GridCache(engine, capacity=8), GridCache(engine, capacity=8)
    for cache in (before, after):
        cache._insert(1, np.zeros(72, np.uint8))  # a first grid, so that a missing index is not by chance the right one
    after._insert(key, grid)
    for seen in itertools.product([False, True], repeat=3):
        table = [new if there else old for old, new, there in zip(before.table, after.table, seen, strict=True)]
        found = np.zeros(4, np.int64)
        playable = find(np.array([key, 0, 0, 0], np.uint64), *table, found)
        assert (playable, found[0]) == ((1, 1) if all(seen) else (-1, -2)), seen
        assert find_one(np.uint64(key), *table[:2]) == (1 if seen[0] and seen[1] else -1)
