"""RoyaleGym's own snapshot banks (``royalegym.save_snapshots``), read and written.

Such a file names no engine and no settings, so every moment of it is loaded and looked at before it becomes a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from royalegym.state_mutator import Snapshot, load_snapshots, save_snapshots

from ..battle.engine.engine import new_battle
from ..battle.players import LEARNER
from ..battle.round import Assignment
from ..battle.save_state import SaveState, SaveStateCodec
from ..battle.spec import BattleSpec
from ..battle.steps.arena import build_games
from ..errors import UserError
from .key import advantage_rank, bucket_key
from .mint import partition_of, position_of
from .state import RestartPoint, Stamp


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


def write_royalegym_bank(path: Path, points: Sequence[RestartPoint], stamp: Stamp) -> None:
    """Write points as a bank that ``royalegym.SnapshotStateMutator`` draws from.

    It holds what RoyaleGym knows of a moment: engine, memories, seat, tick limit and tag; not who played, stacked
    frames or the state of a reward.
    """
    codec = SaveStateCodec(stamp)
    snapshots = []
    for p in points:
        state = codec.unpack(p.payload)
        snapshots.append(Snapshot(state.engine, state.memory, p.seat, state.max_ticks, p.tag))
    save_snapshots(path, snapshots)
