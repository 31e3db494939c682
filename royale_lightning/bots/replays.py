"""Replays: traces that ``royalegym.verify_trace`` re-simulates, an HTML page per battle with the bots' decisions, and
what the bots played as data (:mod:`.plays`).

Battles are played by the batched evaluation, which keeps their commands; each is then played once more from seed and
commands in a RoyaleGym environment with a recorder, which must end the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from royalegym.env import AGENTS, ClashParallelEnv
from royalegym.replay import ReplayRecorder, Trace, save_trace
from royalegym.selfplay import Opponent

from ..battle.actions import ActionLayout
from ..battle.dealing import expect
from ..battle.environment import make_env
from ..battle.players import short_name
from ..battle.prepare import prepare
from ..battle.round import EpisodeRecord
from ..battle.spec import BattleSpec
from ..errors import UserError
from ..run.atomic import write_atomic
from .bot import Bot, full_battles
from .decisions import Decision, DecisionLog
from .evaluate import BATTLES, PlannedGame, Policy, play_games
from .plays import plays_of, write_plays
from .replay_page import render_replay

#: Frames of the page: one in five ticks is smooth, at a fifth of the page's size.
PAGE_STRIDE = 5
_RESULTS = ("blue won", "red won", "a draw")


@dataclass(frozen=True)
class Replay:
    """One battle on disk.

    Args:
        title: who played and how it went.
        trace: ``.msgpack``, for ``royalegym.load_trace`` and ``royaleviser``.
        page: ``.html``, self-contained.
        record: the battle.
    """

    title: str
    trace: Path
    page: Path
    record: EpisodeRecord


def record_battle(env: ClashParallelEnv, blue: Opponent, red: Opponent, seed: int) -> Trace:
    """Play one battle in ``env`` (``bot.make_env()`` for instance), one frame per tick.

    Raises:
        ValueError: the battle was cut short.
    """
    from royalegym.evaluate import play_one

    recorder = ReplayRecorder()
    before, env.recorder = env.recorder, recorder
    try:
        play_one(env, blue, red, seed)
    finally:
        env.recorder = before
    return _finished(recorder)


def replay_record(
    record: EpisodeRecord, spec: BattleSpec, env: ClashParallelEnv | None = None, *, log: DecisionLog | None = None,
    every_tick: bool = True,
) -> Trace:
    """Play a recorded episode once more, from its seed and commands.

    Args:
        record: played with ``keep_commands``, from its start (a staggered episode's first steps were not recorded).
        spec: the battles it was one of; an evaluation's are ``full_battles(spec)``.
        env: an environment of ``spec`` to use again; unset, a new one.
        log: notes what its seats see on the way.
        every_tick: one frame per tick; otherwise one per decision, at a quarter of the time and a tenth of the bytes.

    Raises:
        UserError: the record holds no commands to replay.
        RuntimeError: the battle went another way: another engine, other settings.
    """
    if record.staggered or (not record.commands and any(record.plays)):
        raise UserError(
            f"the battle of seed {record.seed} was played without keep_commands, or its first steps were random and "
            "recorded by nobody, so it cannot be replayed"
        )
    env = env if env is not None else make_env(spec)
    commands: dict[int, dict[str, int]] = defaultdict(dict)
    for step, seat, action in record.commands:
        commands[step][AGENTS[seat]] = action
    recorder = ReplayRecorder(frame_every_tick=every_tick)
    before, env.recorder = env.recorder, recorder
    try:
        # Nobody else looks at the observations.
        options: dict[str, Any] = {"mask_only": list(AGENTS) if log is None else log.unwatched}
        if spec.max_ticks is not None:
            options["max_ticks"] = spec.max_ticks
        expect(env.state_mutator, record.deal)
        obs, _ = env.reset(seed=record.seed, options=options)
        start = env.battle_state.tick
        for step in range(record.game_steps):
            if not env.agents:
                break
            actions = {a: commands[step].get(a, 0) for a in env.agents}
            if log is not None:
                log.look(env.battle_state.tick, obs, actions)
            obs, *_ = env.step(actions)
    finally:
        env.recorder = before
    state = env.battle_state
    crowns = (state.players[0].crowns, state.players[1].crowns)
    if env.agents or (state.tick - start, crowns) != (record.ticks, record.crowns):
        raise RuntimeError(
            f"the battle of seed {record.seed} ended at tick {record.ticks} with crowns {record.crowns} when it was "
            f"played, and stands at {state.tick - start} with {crowns} when replayed; was it another engine or spec?"
        )
    return _finished(recorder)


def _finished(recorder: ReplayRecorder) -> Trace:
    if recorder.trace is None or recorder.trace.result is None:
        raise ValueError("the battle was not played to an end, so there is no whole trace of it")
    return recorder.trace


def write_replay(
    trace: Trace, record: EpisodeRecord, folder: Path, *, decisions: Sequence[Decision] = (),
    actions: ActionLayout | None = None, name: str | None = None,
) -> Replay:
    """Write one trace, its page, and what the seats with decisions played.

    Args:
        decisions: shown beside the battle.
        actions: the action space they are of.
        name: of the files; unset, the players and the seed.
    """
    blue, red = (short_name(p) for p in record.players)
    crowns = f"{record.crowns[0]}-{record.crowns[1]}"
    result = _RESULTS[record.winner] if record.winner >= 0 else "cut short"
    title = f"{blue} (blue) - {red} (red): {result}, crowns {crowns}, seed {record.seed}"
    name = name or f"{_file_name(blue)}-vs-{_file_name(red)}-{record.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    path = save_trace(trace, folder / f"{name}.msgpack")
    page = folder / f"{name}.html"
    stride = PAGE_STRIDE if trace.header.frame_every_tick else 1
    text = render_replay(trace, title, stride=stride, players=(blue, red), decisions=decisions, actions=actions)
    write_atomic(page, text.encode())
    write_plays(plays_of(trace, title, {d.seat for d in decisions}), page)
    return Replay(title, path, page, record)


def write_replays(
    players: Mapping[str, Policy], games: Sequence[PlannedGame], spec: BattleSpec, folder: str | Path,
    *, battles: int = BATTLES, threads: int | None = None,
) -> list[Replay]:
    """Play games as :func:`~royale_lightning.bots.evaluate.play_games` does and write each as a replay.

    A page shows the decisions of every seat that a ``Bot`` plays.
    """
    records = play_games(players, games, spec, battles=battles, threads=threads, keep_commands=True)
    spec = full_battles(spec)
    env = make_env(spec)
    written = []
    for record in records:
        bots = {s: b for s in (0, 1) if isinstance(b := players.get(record.players[s]), Bot)}
        log = DecisionLog(prepare(spec).row_layout, list(bots)) if bots else None
        trace = replay_record(record, spec, env, log=log)
        decisions: list[Decision] = []
        if log is not None:
            for bot in {id(b): b for b in bots.values()}.values():
                own = [s for s, b in bots.items() if b is bot]
                seen = log.judge(bot.network, bot.actions, with_value=False)
                decisions += [d for d in seen if d.seat in own]
        decisions.sort(key=lambda d: (d.tick, d.seat))
        written.append(
            write_replay(trace, record, Path(folder), decisions=decisions, actions=prepare(spec).action_layout)
        )
    return written


def _file_name(player: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in player)
