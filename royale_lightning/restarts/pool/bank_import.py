"""The banks that a pool can begin with: ours, and the snapshot banks that ``royalegym.save_snapshots`` writes.

Ours names the game it belongs to, so a sample of its points is loaded before all are believed. RoyaleGym's names no
engine and no settings, so every moment of it is loaded and looked at before it becomes a point.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from royalegym.state_mutator import load_snapshots

from ...battle.engine.engine import new_battle
from ...battle.players import LEARNER
from ...battle.round import Assignment
from ...battle.save_state import Refused, SaveState, SaveStateCodec
from ...battle.spec import BattleSpec
from ...battle.stamp import Stamp
from ...battle.steps.arena import build_games
from ...errors import UserError
from ..records.bank import MAGIC, read_bank
from ..records.episodes import partition_of, position_of
from ..records.key import advantage_rank, bucket_key
from ..records.points import RestartPoint

#: Points of an imported bank that are loaded and looked at before any is believed; each is checked again when it is
#: played. One takes 6 ms.
_PROBED = 32


def read_any_bank(path: Path, spec: BattleSpec, stamp: Stamp, iteration: int) -> list[RestartPoint]:
    """The points of a bank, as if they were harvested in ``iteration``; a sample of them was loaded.

    Raises:
        UserError: it is no bank, damaged, of another game, or does not load in these battles.
    """
    try:
        with path.open("rb") as file:
            ours = file.read(len(MAGIC)) == MAGIC
    except OSError as exc:
        raise UserError(
            f"RestartHarvest.import_bank: {str(path)!r} cannot be read ({exc.strerror}); check the path"
        ) from exc
    if not ours:
        return read_royalegym_bank(path, spec, stamp, policy_version=iteration)
    points = read_bank(path, stamp)
    (game,), codec = build_games(spec, 1), SaveStateCodec(stamp)
    for i in np.linspace(0, len(points) - 1, min(_PROBED, len(points))).astype(int).tolist():
        try:
            game.load(codec.unpack(points[i].payload), Assignment(0, 0, (LEARNER, LEARNER), 0), (True, True))
        except Refused as exc:
            raise UserError(f"{str(path)!r}: restart point {i} is refused, and with it the bank: {exc}") from exc
    return [replace(p, policy_version=iteration) for p in points]


def read_royalegym_bank(
    path: Path, spec: BattleSpec, stamp: Stamp, opponent: str = LEARNER, policy_version: int = 0
) -> list[RestartPoint]:
    """The moments of a bank as restart points; one made for either seat gives a point for each.

    Args:
        path: written by ``royalegym.save_snapshots``.
        spec: the battles that are played.
        stamp: of them.
        opponent: who plays the other seat; the file does not say.
        policy_version: iteration the points count as taken in.

    Raises:
        UserError: the file is no bank, a moment has no memory (its learner would be blind to what was played), or it
            does not load in these battles. Then none is taken.
    """
    try:
        snapshots = load_snapshots(path)
    except (ValueError, OSError) as exc:
        raise UserError(f"{str(path)!r} is no snapshot bank that royalegym.save_snapshots wrote ({exc})") from exc
    (game,), codec = build_games(spec, 1), SaveStateCodec(stamp)
    battle = new_battle()
    points = []
    for i, snapshot in enumerate(snapshots):
        where = f"snapshot {i} of {str(path)!r}"
        if snapshot.memory is None:
            raise UserError(
                f"{where} has no memory, so nobody would know what was played before; save it with ClashParallelEnv's "
                "own snapshot()"
            )
        try:
            battle.load(snapshot.blob)
            state = SaveState(
                engine=snapshot.blob, memory=snapshot.memory, history=(b"", b""), parts={}, tick=0,
                state_hash=int(battle.state_hash()), max_ticks=snapshot.max_ticks, seat=snapshot.seat, tag=snapshot.tag,
            )
            game.load(state, Assignment(0, 0, (LEARNER, LEARNER), 0), (True, True))
        except ValueError as exc:
            raise UserError(f"{where} does not load in these battles: {exc}") from exc
        situation = game.situation()
        payload = codec.pack(replace(state, tick=situation.tick))
        for seat in (0, 1) if snapshot.seat is None else (snapshot.seat,):
            key = bucket_key(position_of(situation), seat)
            if key is None:
                continue  # in the tie-break nothing is decided by play any more
            players = (LEARNER, opponent) if seat == 0 else (opponent, LEARNER)
            points.append(RestartPoint(
                payload=payload, stamp=stamp, state_hash=state.state_hash, seat=seat, players=players, key=key,
                rank=advantage_rank(key), partition=partition_of(players, seat),
                game_step=situation.tick * 50 // spec.decision_ms, tick=situation.tick, tick_limit=spec.max_ticks,
                tag=snapshot.tag, source=(-1, i), policy_version=policy_version, remembered=(True, True),
            ))
    return points
