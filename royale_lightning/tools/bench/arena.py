"""``bench arena``: batched battles against the engine's own ceiling, and what two cores bring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ...battle.prepare import prepare
from ...battle.steps.arena import default_threads
from ...battle.steps.make_source import default_kind, make_source
from ...battle.steps.sources import InlineSource, RolloutSource
from .bare import BareBattles, Order
from .battles import RandomPlay, Turn, random_battles, steps_of
from .pairing import Sides
from .report import Report

#: Rounds before the clock runs: compiled code is loaded, the placement grids are known, units are on the board.
WARM_ROUNDS = 64
#: Slices one side is cut into, if its time allows slices of no less than :data:`SLICE`.
SLICES = 24
SLICE = 0.1


def measure(seconds: float, battles: int, workers: int, seed: int) -> Report:
    """Run it.

    Args:
        seconds: time for each side: arena on one thread, bare engine on one thread and on several, threads, processes.
        battles: in flight.
        workers: threads or processes set against one.
        seed: of battles and actions.
    """
    spec = random_battles()

    def source(kind: str, n: int) -> RolloutSource:
        return make_source(spec, 0, battles, seed, 0.0, kind, n, n if kind == "inline" else 1)

    # Building a battle holds the interpreter for 80 ms, so the workers build theirs beside us.
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(source, "processes", min(workers, battles))
        one, threads = source("inline", 1), source("inline", workers)
        bare, bare_threads = BareBattles(spec, battles), BareBattles(spec, battles)
        processes = coming.result()
    try:
        return _measure(
            seconds, seed, workers, one, {"threads": threads, "processes": processes}, bare, bare_threads
        )
    finally:
        for s in (one, threads, processes):
            s.close()


def _measure(
    seconds: float, seed: int, workers: int, one: RolloutSource, others: dict[str, RolloutSource], bare: BareBattles,
    bare_threads: BareBattles,
) -> Report:
    assert isinstance(one, InlineSource)
    spec = random_battles()
    play = RandomPlay(one.round, prepare(spec).row_layout, seed)
    sides = Sides("arena", "engine", "engine_threads", *others)
    pool = ThreadPoolExecutor(workers)
    games = one.arena.games

    def lead(stop: Callable[[list[Turn], float], bool]) -> list[Turn]:
        """Rounds of the one-thread arena, recorded, until ``stop``."""
        turns: list[Turn] = []
        start = sides.clock()
        while not stop(turns, sides.clock() - start):
            assignments = play.prepare()
            with sides.timed("arena"):
                one.advance(assignments)
            turns.append(play.finish(assignments))
        sides.work("arena", steps_of(turns))
        return turns

    def repeat_bare(orders: Sequence[Order], steps: int) -> None:
        with sides.timed("engine"):
            bare.run(orders)
        sides.work("engine", steps)

    def repeat_bare_threads(orders: Sequence[Order], steps: int) -> None:
        with sides.timed("engine_threads"):
            bare_threads.run_threads(orders, pool, workers)
        sides.work("engine_threads", steps)

    def repeat(name: str, turns: Sequence[Turn], steps: int) -> None:
        s = others[name]
        for t in turns:
            s.round.action[:] = t.action
            with sides.timed(name):
                s.advance(t.assignments)
            if not np.array_equal(s.round.duration, t.duration):
                raise RuntimeError(f"{name} played other battles than one thread did")
        sides.work(name, steps)

    def take_turns(turns: list[Turn], order: int) -> None:
        steps = steps_of(turns)
        orders, orders_threads = bare.orders(turns), bare_threads.orders(turns)
        followers: list[Callable[[], None]] = [
            lambda: repeat_bare(orders, steps),
            lambda: repeat_bare_threads(orders_threads, steps),
            *(lambda n=n: repeat(n, turns, steps) for n in others),
        ]
        # Nobody always runs last.
        for i in range(len(followers)):
            followers[(i + order) % len(followers)]()
        if bare.hashes() != [g.state_hash() for g in games]:
            raise RuntimeError("the bare battles do not stand where the arena's do, so the comparison would be void")

    take_turns(lead(lambda turns, _: len(turns) >= WARM_ROUNDS), 0)
    sides.discard()
    length = max(SLICE, seconds / SLICES)
    rows = 0
    while sides.slices == 0 or sides.seconds("arena") < seconds:
        turns = lead(lambda turns, spent: bool(turns) and spent >= length)
        rows += sum(t.rows for t in turns)
        take_turns(turns, sides.slices)
        sides.close_slice()

    pool.shutdown()
    default = "processes" if default_kind(default_threads()) == "processes" else "threads"
    speedup = {n: sides.ratio("arena", n) for n in others}
    result = {
        **sides.ratio("engine", "arena").figures("arena_over_engine"),
        **speedup[default].figures("two_over_one"),
        **sides.ratio("engine", "engine_threads").figures("engine_two_over_one"),
        "row_bytes": prepare(spec).row_layout.row_bytes,
        **speedup["threads"].figures("threads_over_one"),
        **speedup["processes"].figures("processes_over_one"),
        **{f"{n}_steps_per_second": sides.rate(n) for n in sides.names},
        "arena_rows_per_second": rows / sides.seconds("arena"),
    }
    return Report(
        result,
        [
            ("arena over the engine's ceiling, one thread", "arena_over_engine"),
            (f"{workers} {default} over one (this machine's default)", "two_over_one"),
            (f"the bare engine, {workers} threads over one (what the cores have to give)", "engine_two_over_one"),
            ("bytes of a row, mask included", "row_bytes"),
            (f"{workers} threads over one", "threads_over_one"),
            (f"{workers} processes over one", "processes_over_one"),
            ("arena, one thread: game steps/s", "arena_steps_per_second"),
            ("engine, state_json and a lean decode: game steps/s", "engine_steps_per_second"),
            (f"arena, {workers} threads: game steps/s", "threads_steps_per_second"),
            (f"arena, {workers} processes: game steps/s", "processes_steps_per_second"),
            ("arena, one thread: rows/s", "arena_rows_per_second"),
        ],
        inputs={"default_source": default},
    )
