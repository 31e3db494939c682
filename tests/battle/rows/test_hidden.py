"""What the critic may know beside a row: what the engine says of the other seat, and never what an actor reads."""

from __future__ import annotations

import numpy as np
import pytest

from royale_lightning.battle.engine.engine import decode_state
from royale_lightning.battle.opponents import EXTRA, LADDER
from royale_lightning.battle.players import scripted_player
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import RUNNING, Assignment, Round
from royale_lightning.battle.rows.hidden import HIDDEN_BYTES, HIDDEN_FIELDS, OPPONENTS, opponent_id
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena
from tests.support.rounds import drive, same

RANDOM = BattleSpec(deck="random", max_ticks=900)


def test_fields_fill_the_bytes_without_overlap() -> None:
    at = sorted(HIDDEN_FIELDS.values())
    assert at[0][0] == 0
    assert [a + n for a, n in at] == [*(a for a, _ in at[1:]), HIDDEN_BYTES]


def test_shipped_opponents_are_told_apart_from_each_other_the_learner_and_snapshots() -> None:
    names = ["learner", "snapshot-3", *map(scripted_player, (*LADDER, *EXTRA))]
    ids = [opponent_id(n) for n in names]
    assert len(set(ids)) == len(ids)
    assert ids[:2] == [0, 1]
    assert max(ids) < OPPONENTS


def test_the_bytes_are_what_the_engine_says_of_the_other_seat() -> None:
    players = ("learner", scripted_player("push"))
    r = Round(1, prepare(RANDOM).row_layout.row_bytes)
    arena = build_arena(RANDOM, 0, 1, r, ArenaSettings(seed=1, forced_share=1.0))
    arena.advance([Assignment(0, 0, players, 77)])
    elixir = set()
    for _ in range(60):
        own, other = decode_state(arena.games[0].battle).players  # type: ignore[attr-defined]
        bytes_of = {name: r.hidden[0, at : at + n].astype(int) for name, (at, n) in HIDDEN_FIELDS.items()}
        assert (bytes_of["own_deck"] - 1).tolist() == list(own.deck)
        assert (bytes_of["enemy_deck"] - 1).tolist() == list(other.deck)
        assert (bytes_of["enemy_hand"] - 1).tolist() == list(other.hand)
        assert bytes_of["enemy_next"][0] - 1 == other.next_card
        assert bytes_of["enemy_elixir"][0] == other.elixir_milli // 50
        assert (bytes_of["seat"][0], bytes_of["opponent"][0]) == (0, opponent_id(players[1]))
        elixir.add(int(bytes_of["enemy_elixir"][0]))
        arena.advance([])
        if r.end[0] != RUNNING:
            break
    assert len(elixir) > 10
    arena.close()


@pytest.mark.parametrize("spec", [RANDOM, BattleSpec(max_ticks=900, frame_stack=2)], ids=["random", "stacked"])
def test_both_arenas_and_any_number_of_threads_write_the_same_bytes(spec: BattleSpec) -> None:
    players = [("learner", "learner"), (scripted_player("defend"), "learner"), ("learner", "a-snapshot")]
    reference = drive(spec, 40, players=players)
    hidden = np.concatenate([x[10] for x in reference])
    assert len(hidden) > 40
    assert set(hidden[:, HIDDEN_FIELDS["opponent"][0]]) == {0, 1, opponent_id(players[1][0])}
    same(reference, drive(spec, 40, players=players, threads=2))
    env = BattleSpec(**{**vars(spec), "arena": "env"})
    same(reference, drive(env, 40, players=players))
