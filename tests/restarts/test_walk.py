"""The whole of it on a made-up task: ten steps in a row that must all succeed, of which true starts learn nothing."""

from __future__ import annotations

import itertools

import numpy as np

from royale_lightning.battle.round import TRUE
from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.records.points import EpisodeResult
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import RouteStore, StoreSettings
from royale_lightning.restarts.scheduler import Finished, StartScheduler
from royale_lightning.restarts.shares import StartShares
from tests.support.restarts import FROZEN, STAMP, minted, route

SECTIONS, STEPS = 10, 10
CELLS = [(i % 5, i // 5, 0) for i in range(SECTIONS + 1)]
PLAYERS = ("learner", FROZEN)


def train(curriculum: float, iterations: int = 50, battles: int = 48) -> tuple[np.ndarray, list[int], dict[str, int]]:
    """Skill a section after training, the front's game steps left by iteration, and game steps by kind of start.

    An episode is won if every section from its start on succeeds, and only a win teaches: the sections it went through
    fail a tenth less often from then on.
    """
    rng = np.random.default_rng(1)
    skill = np.full(SECTIONS, 0.3)
    settings = CurriculumSettings(window=20, grace=20, patience=60, first_steps=10)
    store = RouteStore(StoreSettings(curriculum=settings), 1, STAMP)
    store.add(minted(route(CELLS, steps=STEPS)))
    store.judge_route(0, lucky=False)
    scheduler = StartScheduler(1, RestartPool(PoolSettings(), 1, STAMP), store)
    path, played = [], {"true": 0, "curriculum": 0}
    for iteration in range(iterations):
        scheduler.freeze(iteration, StartShares(0.0, curriculum))
        finished, steps = [], {"true": 0, "curriculum": 0}
        for battle in range(battles):
            _, start = scheduler.begin(battle, iteration, PLAYERS)
            first = 0 if start.kind == TRUE else int(start.ref.split("/")[-1])
            failed = np.flatnonzero(rng.random(SECTIONS - first) >= skill[first:])
            won = len(failed) == 0
            length = STEPS * (SECTIONS - first if won else int(failed[0]) + 1)
            if won:
                skill[first:] += 0.1 * (1.0 - skill[first:])
            steps[start.kind] += length
            finished.append(Finished(EpisodeResult(0, battle, iteration, PLAYERS, 0, float(won), length)))
        scheduler.close(scheduler.drain(), finished, steps=steps)
        played = {k: n + steps[k] for k, n in played.items()}
        front = store.curriculum.front(0)
        if front is not None:
            path.append(front.rungs[front.index].steps_left if front.index >= 0 else SECTIONS * STEPS)
    return skill, path, played


def test_the_curriculum_learns_what_true_starts_never_show() -> None:
    skill, path, played = train(0.5)
    assert path[-1] == SECTIONS * STEPS, "the front has come to the beginning"
    assert path[0] <= 2 * STEPS, "from its end"
    assert all(abs(a - b) <= 2 * STEPS for a, b in itertools.pairwise(path))
    assert skill.prod() > 0.5
    assert played["true"] / sum(played.values()) > 0.3
    plain, _, _ = train(0.0)
    assert plain.prod() < 1e-4, "0.3 to the tenth: nothing was ever won"
