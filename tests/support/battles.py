"""Battles to compare on: played random-legal on the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from royalegym.action import TileActionParser
from royalegym.protocol import BattleState, MatchSetup
from royalegym.rust_engine import RustEngine
from royalegym.state_mutator import random_deck

from royale_lightning.battle.engine.engine import shared_engine


@pytest.fixture(scope="session")
def engine() -> RustEngine:
    return shared_engine()


def play_states(
    engine: RustEngine, games: int, seed: int, noop: float = 0.5, start_tick: int = 0, limit: int = 10_000
) -> Iterator[tuple[BattleState, Any]]:
    """States of random-deck battles, before every decision, with the raw battle that stands there."""
    rng = np.random.default_rng(seed)
    cards = engine.cards()
    parser = TileActionParser()
    parser.bind(engine)
    for g in range(games):
        decks = [random_deck(rng, cards), random_deck(rng, cards)]
        hp = None
        if start_tick:
            hp = [[4824, int(rng.choice([0, 900])), 3052], [4000, 3052, int(rng.choice([0, 1500]))]]
        engine.reset(g, MatchSetup(decks=decks, shuffle=1, start_tick=start_tick, tower_hp=hp))
        for _ in range(limit):
            state = engine.state()
            yield state, engine._battle
            if state.game_over:
                break
            commands = []
            for team in (0, 1):
                legal = np.flatnonzero(parser.action_mask(state, team))
                if len(legal) > 1 and rng.random() > noop:
                    commands.append(parser.parse(int(rng.choice(legal[1:])), state, team))
            engine.step([c for c in commands if c], 10)
