"""Real battles that tests of restarts play and mint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, RUNNING, TRUE_START, Assignment, EpisodeRecord, Round, Start
from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import stamp_of
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena, build_games
from royale_lightning.battle.steps.replay import Replay
from royale_lightning.restarts.harvest import Harvester
from royale_lightning.restarts.mint import Minted, mint
from royale_lightning.restarts.moments import MarkerSettings
from royale_lightning.restarts.records.key import key_digest

SPEC = BattleSpec()
STAMP = stamp_of(SPEC, key_digest())
MARKERS = MarkerSettings()


def played(players: tuple[str, str], start: Start = TRUE_START, seed: int = 3) -> EpisodeRecord:
    """One whole battle, the learner random-legal."""
    r = Round(1, prepare(SPEC).row_layout.row_bytes)
    arena = build_arena(SPEC, 0, 1, r, ArenaSettings(seed=7, forced_share=0.0))
    rng = np.random.default_rng(seed)
    fresh = [Assignment(0, 4, players, 500 + seed, keep_commands=True, start=start)]
    while True:
        arena.advance(fresh)
        fresh = []
        if r.end[0] != RUNNING:
            return replace(r.episodes[0], start=start)
        for slot in np.flatnonzero(r.kind == CHOICE):
            layout = prepare(SPEC).row_layout
            mask = layout.unpack_mask(layout.views(r.rows)["action_mask"][slot : slot + 1])[0]
            r.action[slot] = 0 if rng.random() < 0.7 else rng.choice(np.flatnonzero(mask)[1:])


def minted(record: EpisodeRecord, **more: Any) -> Minted:
    (game,) = build_games(SPEC, 1)
    replay = Replay(game, SaveStateCodec(STAMP), record)
    return mint(replay, MARKERS, STAMP, policy_version=5, tick_limit=None, **more)


def harvester(budget: float) -> Harvester:
    return Harvester(SPEC, stamp_of(SPEC, key_digest()), MARKERS, budget, seed=1)
