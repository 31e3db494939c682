"""``bench scale``: what a game step costs with many battles, and what a battle weighs in a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ...battle.prepare import prepare
from ...battle.round import Round
from ...battle.spec import BattleSpec
from ...battle.steps.arena import Arena, ArenaSettings, build_arena
from ...battle.steps.processes import ProcessSource
from ...errors import UserError
from .battles import RandomPlay, random_battles
from .pairing import Sides
from .report import Report

#: Rounds before the clock runs, so that boards are full; and per slice, the first of them untimed, because a group of
#: few battles finds its memory warm in every round but that.
WARM_ROUNDS, SLICE_ROUNDS = 48, 12
#: Battles in the two workers whose memory is compared, and rounds they have played.
LIGHT, HEAVY, PLAYED = 8, 40, 100


def measure(seconds: float, many: int, few: int, seed: int) -> Report:
    """Run it.

    Args:
        seconds: time for each side.
        many, few: battles in the large arena, and in each of the small ones it is cut into.
        seed: of battles and actions.
    """
    if many % few or many == few:
        raise UserError(f"--few is {few}, which does not divide --many ({many}) into several groups; give a divisor")
    sides = _cost(seconds, many, few, seed)
    key = f"cost_{many}_over_{few}"
    result = {
        **sides.ratio("many", "few").figures(key),
        "battle_megabytes": _battle_bytes(seed) / 1e6,
        "many_steps_per_second": sides.rate("many"),
        "few_steps_per_second": sides.rate("few"),
    }
    return Report(result, [
        (f"cost per game step at {many} battles over {few}", key),
        ("memory per battle in a worker, MB", "battle_megabytes"),
        (f"{many} battles: game steps/s, one thread", "many_steps_per_second"),
        (f"{few} battles: game steps/s, one thread", "few_steps_per_second"),
    ])


def _cost(seconds: float, many: int, few: int, seed: int) -> Sides:
    """The same battles as one arena and as groups, in turns.

    Both sides hold the very same games and go on where the other left them, so decks, boards and phases agree; only
    how many battles are touched between two steps of one differs.
    """
    spec = random_battles()
    settings = ArenaSettings(seed, 0.0)
    block = Round(many, prepare(spec).row_layout.row_bytes)
    whole = build_arena(spec, 0, many, block, settings)
    parts = [Arena(whole.games[i : i + few], i, block.part(i, few), settings, whole.codec) for i in range(0, many, few)]
    play = RandomPlay(block, prepare(spec).row_layout, seed)
    part_play = [RandomPlay(p.round, prepare(spec).row_layout, seed, p.first) for p in parts]
    sides = Sides("many", "few")

    def turn(arena: Arena, player: RandomPlay, name: str, rounds: int) -> None:
        for i in range(rounds):
            assignments = player.prepare()
            start = sides.clock()
            arena.advance(assignments)
            spent = sides.clock() - start
            player.finish(assignments)
            if i:
                sides.add(name, spent)
                sides.work(name, int(arena.round.duration.sum()))

    def as_one(rounds: int) -> None:
        turn(whole, play, "many", rounds)

    def as_groups(rounds: int) -> None:
        for i, (p, player) in enumerate(zip(parts, part_play, strict=True)):
            own = slice(i * few, (i + 1) * few)
            p._episodes[:] = whole._episodes[own]
            player.ordinals[:], player.ended[:] = play.ordinals[own], play.ended[own]
            turn(p, player, "few", rounds)
            whole._episodes[own] = p._episodes
            play.ordinals[own], play.ended[own] = player.ordinals, player.ended

    as_one(WARM_ROUNDS)
    sides.discard()
    while sides.slices == 0 or sides.seconds("few") < seconds:
        order = (as_one, as_groups) if sides.slices % 2 == 0 else (as_groups, as_one)
        for side in order:
            side(SLICE_ROUNDS)
        sides.close_slice()
    return sides


def _battle_bytes(seed: int) -> float:
    light, heavy = (_worker_bytes(random_battles(), n, seed) for n in (LIGHT, HEAVY))
    return (heavy - light) / (HEAVY - LIGHT)


def _worker_bytes(spec: BattleSpec, battles: int, seed: int) -> int:
    """Resident memory of a worker process whose battles have been played for a while."""
    source = ProcessSource(spec, 0, battles, ArenaSettings(seed, 0.0), 1)
    try:
        play = RandomPlay(source.round, prepare(spec).row_layout, seed)
        for _ in range(PLAYED):
            assignments = play.prepare()
            source.advance(assignments)
            play.finish(assignments)
        return resident_bytes(source.pids[0])
    finally:
        # The block cannot be given back while somebody looks at it.
        del play
        source.close()


def resident_bytes(pid: int) -> int:
    """Resident memory of a process.

    Raises:
        UserError: this system tells it neither in ``/proc`` nor by ``ps``.
    """
    statm = Path(f"/proc/{pid}/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    try:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as exc:
        raise UserError(
            f"bench scale reads a worker's memory from /proc or with ps, and {sys.platform} has neither"
        ) from exc
    return int(shown) * 1024
