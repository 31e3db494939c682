"""The compiled match memory against RoyaleGym's ``MatchMemory``, wrong counts included."""

from __future__ import annotations

import numpy as np
from royalegym.obs import MatchMemory
from royalegym.protocol import ElixirLaw
from royalegym.rust_engine import RustEngine

from royale_lightning.battle.engine import memory as m
from royale_lightning.battle.engine import state_json as w
from tests.support.battles import play_states


def check(ours: np.ndarray, theirs: MatchMemory, n_cards: int) -> None:
    assert ours[m.M_TICK] == theirs.tick
    assert bool(ours[m.M_EXACT]) == theirs.exact
    assert (ours[m.M_OWN], ours[m.M_FOE], ours[m.M_LEAK]) == (theirs.own_fine, theirs.foe_fine, theirs.leak_fine)
    assert ours[m.M_HAND : m.M_HAND + 4].tolist() == theirs.own_hand
    assert ours[m.M_QUEUE : m.M_QUEUE + ours[m.M_QUEUED]].tolist() == theirs.own_cycle
    assert (ours[m.M_LAST_CARD], ours[m.M_LAST_TICK]) == (theirs.own_last_card, theirs.own_last_play_tick)
    assert ours[m.M_PLAYS] == theirs.foe_plays
    assert ours[m.M_RECENT : m.M_RECENT + ours[m.M_RECENTS]].tolist() == theirs.foe_recent
    assert [m.has_card(ours, m.M_SEEN, c) for c in range(n_cards)] == theirs.foe_seen.tolist()
    assert [m.has_card(ours, m.M_OWN_DECK, c) for c in range(n_cards)] == theirs.own_deck.tolist()


def test_the_recurrence_is_royalegyms(engine: RustEngine) -> None:
    cards = list(engine.cards())
    law = ElixirLaw.load(engine.calibration)
    vector, price = m.law_vector(law), m.price_table(cards)
    row = np.zeros(w.STATE, dtype=np.int32)
    ours = np.zeros((2, m.MEMORY), dtype=np.int64)
    theirs = []
    last = 1 << 30
    states = inexact = 0
    for start, seed in ((0, 3), (3000, 4), (4700, 5)):
        for state, battle in play_states(engine, 2, seed=seed, start_tick=start):
            w.read_state(np.frombuffer(battle.state_json(), np.uint8), row)
            if state.tick < last:
                theirs = [MatchMemory(len(cards), law) for _ in (0, 1)]
            for team in (0, 1):
                if state.tick < last:
                    theirs[team].bind(cards)
                    theirs[team].seed(state, team)
                    m.seed_memory(ours[team], team, w.g_of(row), w.p_of(row), vector)
                else:
                    # RoyaleGym's environment hands its memories the presses it accepted: none.
                    theirs[team].observe(state, team, presses=[])
                    m.observe(ours[team], team, w.g_of(row), w.p_of(row), vector, price)
                check(ours[team], theirs[team], len(cards))
                inexact += not theirs[team].exact
            last = state.tick
            states += 1
    assert states > 600
    assert inexact > 0, "no battle went inexact, so the wrong counts were not compared"
