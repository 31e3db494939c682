"""A saved moment goes on as the battle it was taken from, on the real engine: hashes, observations, rewards, limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from royalegym.protocol import BattleState
from royalegym.reward import RewardFunction
from royalegym.state_mutator import Snapshot

from royale_lightning.battle.environment import make_env
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, POOL, RUNNING, TRUE, Assignment, EpisodeRecord, Round, Start
from royale_lightning.battle.save_state import Refused, SaveState, SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena, build_games
from royale_lightning.battle.steps.game import Game
from royale_lightning.battle.steps.replay import Replay, ReplayMismatch
from royale_lightning.parts import part

BOTH = (True, True)
ANY = Assignment(0, 0, ("a", "b"), 1)
FAST = BattleSpec(deck="random", max_ticks=1300)
ENV = replace(FAST, arena="env")


@dataclass
class Seen:
    """One game step: what both seats saw before it, what was played, what came of it."""

    rows: np.ndarray
    acts: tuple[int, int]
    hash: int
    reward: tuple[float, float]
    ended: tuple[bool, bool]


def look(game: Game, spec: BattleSpec) -> np.ndarray:
    rows = np.zeros((2, prepare(spec).row_layout.row_bytes), dtype=np.uint8)
    for seat in (0, 1):
        game.encode(seat, rows[seat])
    return rows


def play(game: Game, spec: BattleSpec, acts: Sequence[tuple[int, int]] | int) -> list[Seen]:
    """Play these actions, or random-legal ones of this seed, up to the end."""
    rng = None if not isinstance(acts, int) else np.random.default_rng(acts)
    out: list[Seen] = []
    while not (game.ended or game.truncated):
        rows = look(game, spec)
        if rng is None:
            assert not isinstance(acts, int)
            if len(out) == len(acts):
                break
            now = acts[len(out)]
        else:
            now = (0, 0)
            for seat in (0, 1):
                if game.choice[seat] and rng.random() < 0.25:
                    legal = np.flatnonzero(game.scripted_view(seat)[1])[1:]
                    now = (int(rng.choice(legal)), now[1]) if seat == 0 else (now[0], int(rng.choice(legal)))
        game.step(*now)
        out.append(Seen(rows, now, game.state_hash(), (game.reward[0], game.reward[1]), (game.ended, game.truncated)))
    return out


def save_on_the_way(
    game: Game, spec: BattleSpec, seed: int, at: Sequence[int]
) -> tuple[list[Seen], dict[int, SaveState]]:
    """One battle straight through, and again with saves on the way: saving disturbs nothing."""
    game.reset(Assignment(0, 0, ("a", "b"), seed), BOTH)
    whole = play(game, spec, seed)
    game.reset(Assignment(0, 0, ("a", "b"), seed), BOTH)
    saved = {}
    for step, seen in enumerate(whole):
        if step in at:
            saved[step] = game.save()
        game.step(*seen.acts)
        assert game.state_hash() == seen.hash
    return whole, saved


def same(straight: Sequence[Seen], resumed: Sequence[Seen]) -> None:
    assert len(straight) == len(resumed)
    for k, (a, b) in enumerate(zip(straight, resumed, strict=True)):
        assert a.hash == b.hash, f"step {k}"
        assert np.array_equal(a.rows, b.rows), f"observations at step {k}"
        assert a.reward == pytest.approx(b.reward, abs=1e-12)
        assert a.ended == b.ended


PAIRS = {
    "fast": (FAST, FAST),
    "environment": (ENV, ENV),
    "saved fast, played in the environment": (FAST, ENV),
    "saved in the environment, played fast": (ENV, FAST),
    "spatial": (replace(FAST, observation="spatial"), replace(FAST, observation="spatial", arena="env")),
    "stacked": (replace(FAST, frame_stack=3), replace(FAST, frame_stack=3, arena="env")),
    "potential": (replace(FAST, reward="potential"), replace(FAST, reward="potential")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_saved_moment_goes_on_as_the_battle_it_was_taken_from(name: str) -> None:
    """Invariants 14 and 15 of the restarts: same hashes, same bytes saved again, same observations of both seats."""
    first, second = PAIRS[name]
    (a,), (b,) = build_games(first, 1), build_games(second, 1)
    whole, saved = save_on_the_way(a, first, 11, (0, 37, 100))
    assert whole[-1].ended == (False, True), "the limit counts from the battle's start, not from the save"
    codec, other = SaveStateCodec(stamp_of(first, "")), SaveStateCodec(stamp_of(second, "another key"))
    for step, state in saved.items():
        data = codec.pack(state)
        b.load(other.unpack(data), ANY, BOTH)
        assert b.state_hash() == state.state_hash
        again = b.save()
        assert again.engine == state.engine, "the engine saves what it loaded"
        assert (again.max_ticks, again.history) == (state.max_ticks, state.history)
        same(whole[step:], play(b, second, [s.acts for s in whole[step:]]))


@pytest.mark.slow
def test_whole_battles_of_many_decks() -> None:
    """Saved late, with champions among the cards; the memory remembers whole cycles by then."""
    spec = BattleSpec(deck="random")
    (a,), (b,) = build_games(spec, 1), build_games(replace(spec, arena="env"), 1)
    for seed in range(12):
        whole, saved = save_on_the_way(a, spec, seed, (150, 250))
        for step, state in saved.items():
            b.load(state, ANY, BOTH)
            same(whole[step:], play(b, spec, [s.acts for s in whole[step:]]))


class Streak(RewardFunction):
    """Pays the number of game steps so far: all of it state."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, state: BattleState) -> None:
        self.steps = 0

    def get_reward(self, team: int, prev: BattleState, state: BattleState, results: Any) -> float:
        self.steps += team == 0
        return float(self.steps)


class SavedStreak(Streak):
    def state(self) -> Any:
        return {"steps": self.steps}

    def set_state(self, state: Any) -> None:
        self.steps = state["steps"]


def test_a_reward_of_a_users_own_goes_on_too() -> None:
    spec = BattleSpec(reward=part(SavedStreak), max_ticks=600)
    (game,) = build_games(spec, 1)
    whole, saved = save_on_the_way(game, spec, 5, (20,))
    game.load(saved[20], ANY, BOTH)
    same(whole[20:], play(game, spec, [s.acts for s in whole[20:]]))
    (other,) = build_games(replace(spec, reward=part(Streak)), 1)
    with pytest.raises(Refused, match=r"state of \['reward'\] and these battles' parts with set_state\(\) are none"):
        other.load(saved[20], ANY, BOTH)


def test_what_does_not_belong_here_is_refused_before_it_plays() -> None:
    """Invariant 16 of the restarts."""
    (game,) = build_games(FAST, 1)
    _, saved = save_on_the_way(game, FAST, 2, (50,))
    codec = SaveStateCodec(stamp_of(FAST, ""))
    data = codec.pack(saved[50])
    assert codec.pack(saved[50]) == data
    for change in ({"decision_ms": 1000}, {"observation": "spatial"}, {"deck": "starter"}, {"frame_stack": 2}):
        with pytest.raises(Refused, match="belongs to other battles"):
            SaveStateCodec(stamp_of(replace(FAST, **change), "")).unpack(data)
    with pytest.raises(Refused, match="belongs to other battles"):
        SaveStateCodec(replace(stamp_of(FAST, ""), cards="another table")).unpack(data)
    rng = np.random.default_rng(0)
    for at in [*range(0, 60, 7), *rng.integers(60, len(data), 40).tolist()]:
        bad = bytearray(data)
        bad[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(Refused):
            codec.unpack(bytes(bad))
    for cut in (0, 1, 30, len(data) // 2, len(data) - 1):
        with pytest.raises(Refused, match="no save state, or a torn one"):
            codec.unpack(data[:cut])
    for state, why in (
        (replace(saved[50], state_hash=saved[50].state_hash ^ 1), "loads as another battle"),
        (replace(saved[50], engine=saved[50].engine[:-1]), "does not load here"),
        (replace(saved[50], memory=b"\x80"), "does not load here"),
    ):
        with pytest.raises(Refused, match=why):
            game.load(state, ANY, BOTH)
    (stacked,) = build_games(replace(FAST, frame_stack=2), 1)
    with pytest.raises(Refused, match="0 bytes of earlier frames"):
        stacked.load(saved[50], ANY, BOTH)


def test_hidden_fields_of_the_other_seat_never_reach_an_observation() -> None:
    """Invariant 17 of the restarts: a blob holds the enemy's hand and bar; perturbed, the learner sees the same."""
    (game,) = build_games(FAST, 1)
    _, saved = save_on_the_way(game, FAST, 2, (50,))
    game.load(saved[50], ANY, BOTH)
    blue, red = look(game, FAST)
    engine = json.loads(saved[50].engine)
    enemy = engine["players"][1]
    enemy["hand"], enemy["queue"], enemy["mana"] = enemy["hand"][::-1], enemy["queue"][::-1], enemy["mana"] // 2
    with pytest.raises(Refused, match="rebuilt") as refused:
        game.load(replace(saved[50], engine=json.dumps(engine).encode()), ANY, BOTH)
    engine["state_hash"] = int(str(refused.value).rsplit("0x", 1)[1], 16)
    other = replace(saved[50], engine=json.dumps(engine).encode(), state_hash=engine["state_hash"])
    game.load(other, ANY, BOTH)
    seen = look(game, FAST)
    assert np.array_equal(seen[0], blue)
    assert not np.array_equal(seen[1], red), "the enemy itself does see its hand"


def records(spec: BattleSpec, start: Start, rounds: int = 400, seed: int = 3) -> tuple[list[EpisodeRecord], Any]:
    """One battle of learner against push, from ``start``, random-legal, with its commands."""
    r = Round(1, prepare(spec).row_layout.row_bytes)
    arena = build_arena(spec, 0, 1, r, ArenaSettings(seed=7, forced_share=0.0))
    rng = np.random.default_rng(seed)
    fresh = [Assignment(0, 0, ("learner", "scripted:push"), 500, keep_commands=True, start=start)]
    for _ in range(rounds):
        arena.advance(fresh)
        fresh = []
        if r.end[0] != RUNNING:
            return r.episodes, arena
        for slot in np.flatnonzero(r.kind == CHOICE):
            layout = prepare(spec).row_layout
            mask = layout.unpack_mask(layout.views(r.rows)["action_mask"][slot : slot + 1])[0]
            r.action[slot] = 0 if rng.random() < 0.6 else rng.choice(np.flatnonzero(mask)[1:])
    raise AssertionError("the battle did not end")


@pytest.mark.parametrize("spec", [BattleSpec(max_ticks=1600), BattleSpec(max_ticks=1600, arena="env")])
def test_a_recorded_battle_is_replayed_minted_and_begun_again(spec: BattleSpec) -> None:
    (record,), _ = records(spec, Start())
    assert record.start.kind == TRUE
    codec = SaveStateCodec(stamp_of(spec, ""))
    (game,) = build_games(spec, 1)
    replay = Replay(game, codec, record)
    minted = {}
    course = dict(record.course)
    assert list(course) == list(range(0, record.game_steps, 20))
    for m in replay.moments():
        assert course.get(m.game_step, m.situation) == m.situation
        if m.game_step in (0, 60):
            minted[m.game_step] = replay.save("test")
    assert replay.cost == record.game_steps + 32
    state = codec.unpack(minted[60][1])
    assert state.origin is not None
    assert (state.origin.game_step, state.origin.players, state.tag) == (60, record.players, "test")
    assert minted[60][0] == state.state_hash
    start = Start(POOL, "a digest", minted[60][1], 0, "point")
    (again,), _ = records(spec, start)
    assert again.start == replace(start, state=b"")
    assert again.ticks == again.game_steps * 10 == 1600 - 600
    # A battle that began from a save state is replayed and minted like any other.
    second = Replay(game, codec, replace(again, start=start))
    late = [second.save() for m in second.moments() if m.game_step == 30]
    origin = codec.unpack(late[0][1]).origin
    assert (origin.start, origin.game_step) == ("a digest", 90)
    broken = replace(record, commands=record.commands[:-1])
    with pytest.raises(ReplayMismatch, match="does not replay"):
        list(Replay(game, codec, broken).moments())


def test_a_state_that_will_not_load_gives_a_true_start_and_says_so() -> None:
    spec = BattleSpec(max_ticks=400)
    with pytest.warns(UserWarning, match="begins at its true start: this is no save state"):
        (record,), _ = records(spec, Start(POOL, "a digest", b"rubbish", 0))
    assert record.refused
    assert record.start.kind == TRUE


def test_royalegyms_own_snapshot_is_the_same_moment() -> None:
    """Bytes of both kinds of memory are RoyaleGym's: its environment goes on from ours, and we from its."""
    spec = replace(FAST, observation="spatial", max_ticks=None)
    (game,) = build_games(spec, 1)
    whole, saved = save_on_the_way(game, spec, 6, (90,))
    env = make_env(replace(spec, arena="env"))
    env.reset(seed=0, options={"snapshot": Snapshot(saved[90].engine, saved[90].memory)})
    theirs = env.snapshot()
    assert theirs.blob == saved[90].engine
    game.load(replace(saved[90], memory=theirs.memory), ANY, BOTH)
    same(whole[90:], play(game, spec, [s.acts for s in whole[90:]]))
