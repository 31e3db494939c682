"""A run's restarts without a run: what the callbacks call, called by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.round import POOL, TRUE, EpisodeRecord
from royale_lightning.restarts.harvest import replenished
from royale_lightning.restarts.pool.pool import PoolSettings
from royale_lightning.restarts.route_work import Game, RouteSettings
from royale_lightning.restarts.routes.curriculum import CurriculumSettings
from royale_lightning.restarts.routes.store import StoreSettings
from royale_lightning.restarts.session import PlayedIteration, RestartSession
from royale_lightning.restarts.shares import StartShares
from tests.support.restart_battles import MARKERS, SPEC, played

ROUTES = RouteSettings(StoreSettings(curriculum=CurriculumSettings()), budget=0.1, probes=2, games=4, demonstrations=2)
NOOP = "scripted:noop"


def session(routes: RouteSettings | None = None, **ranks: Any) -> RestartSession:
    return RestartSession(SPEC, 1, PoolSettings(), MARKERS, 1.0, routes, **ranks)


@pytest.fixture(scope="module")
def won() -> EpisodeRecord:
    """A battle that the learner, blue, won against one who never plays."""
    record = played(("learner", NOOP))
    assert record.winner == 0
    return record


def iteration(number: int, *episodes: EpisodeRecord) -> PlayedIteration:
    n = len(episodes)
    return PlayedIteration(
        number, episodes, list(range(n)), [(None, None)] * n, {TRUE: sum(e.game_steps for e in episodes)}
    )


def test_it_knows_no_torch_and_no_trainer() -> None:
    code = (
        "import sys; from royale_lightning.restarts import session; "
        "sys.exit(bool({'torch', 'lightning', 'royale_lightning.ladder'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_iteration_is_harvested_and_the_next_begins_in_it(won: EpisodeRecord, tmp_path: Path) -> None:
    made = session()
    made.freeze(1, StartShares(pool=0.5), [])
    assert made.begin(0, 0, ("learner", NOOP))[1].kind == TRUE, "nothing is kept yet"
    row = made.close(iteration(1, replace(won, battle=0, ordinal=0)), {})
    assert (row["restarts/replays"], row["restarts/replays_failed"]) == (1, 0)
    assert row["restarts/points"] == len(made.pool.export_points()) > 3
    assert row["restarts/wanted_share"] == 0.5
    made.freeze(2, StartShares(pool=0.5), [])
    begun = [made.begin(b, 1, ("learner", NOOP)) for b in range(40)]
    assert {start.kind for _, start in begun} == {TRUE, POOL}
    copy = session()
    copy.load(made.state(), made.credits, 0, 64)
    copy.freeze(2, StartShares(pool=0.5), [])
    assert [copy.begin(b, 1, ("learner", NOOP)) for b in range(40)] == begun
    assert copy.close(iteration(2), {})["restarts/stored"] == 0, "a row tells of its own iteration"
    assert made.export_bank(tmp_path / "a.bank") == row["restarts/points"]
    other = session()
    assert other.import_bank(tmp_path / "a.bank", 1) == (row["restarts/points"],) * 2
    assert [p.state_hash for p in other.pool.export_points()] == [p.state_hash for p in made.pool.export_points()]


def test_credits_are_told_by_every_rank_and_none_begin_a_rank(won: EpisodeRecord) -> None:
    made = session(gather_all=lambda mine: [*mine, -7.0] if mine and isinstance(mine[0], float) else mine)
    made.freeze(1, StartShares(0.0), [])
    made.close(iteration(1, won), {})
    assert made.credits[1:] == [-7.0]
    for credits, rank, found in (([], 0, 0.0), (made.credits, 1, -7.0), (made.credits, 2, 0.0)):
        copy = session()
        copy.load(made.state(), credits, rank, 64)
        copy.freeze(1, StartShares(0.0), [])
        copy.close(iteration(2), {})
        assert copy.credits == [found]


@given(st.floats(-1e4, 1e4), st.floats(0, 1e3))
def test_a_debt_is_paid_and_one_allowance_is_kept(credit: float, allowance: float) -> None:
    found = replenished(credit, allowance)
    assert found <= max(credit, allowance)
    assert found >= credit
    assert found == pytest.approx(credit + allowance) or found == max(credit, allowance)


class Playing:
    """Plays by rote: what each player makes of a start; remembers what it was asked for.

    Args:
        record: what every battle is like, apart from its winner.
        wins: of ``learner``, and of a learner that waits, from any start.
    """

    def __init__(self, record: EpisodeRecord, learner: bool, passive: bool) -> None:
        self.record, self.learner, self.passive = record, learner, passive
        self.asked: list[tuple[Any, list[Game], int, bool]] = []

    def __call__(self, policy: Any, games: Sequence[Game], battles: int, keep_commands: bool) -> list[EpisodeRecord]:
        self.asked.append((policy, list(games), battles, keep_commands))
        out = []
        for game in games:
            wins = self.learner if "learner" in game.players else self.passive
            if keep_commands and game.players != self.record.players:
                wins = False  # the one battle there is to be replayed has its learner in blue
            seat = game.players.index("learner") if "learner" in game.players else 0
            out.append(replace(self.record, players=game.players, winner=seat if wins else 1 - seat, game_steps=100)
                       if not (keep_commands and wins) else self.record)
        return out


def test_a_demonstrators_win_is_judged_and_walked(won: EpisodeRecord) -> None:
    made = session(ROUTES)
    play = Playing(won, learner=True, passive=False)
    assert made.routes is not None
    assert made.routes.demonstrate("teacher", [NOOP], play) == 1
    shown, judged = play.asked
    assert (shown[0], shown[2], shown[3]) == ("teacher", 2, True)
    assert [g.players for g in shown[1]] == [("learner", NOOP), (NOOP, "learner")], "in either seat"
    assert (len(judged[1]), judged[2]) == (2 * 2 * ROUTES.games, 2 * ROUTES.games)
    assert {g.players for g in judged[1]} == {("learner", NOOP), (NOOP, NOOP)}
    store = made.routes.store
    front = store.curriculum.front(store.archive.ids[0]) if store.curriculum is not None else None
    assert front is not None
    made.freeze(1, StartShares(0.0, curriculum=0.7), [NOOP])
    kinds = {made.begin(b, 0, ("learner", NOOP))[1].kind for b in range(40)}
    assert kinds == {TRUE, "curriculum"}
    lucky = session(ROUTES)
    assert lucky.routes is not None
    assert lucky.routes.demonstrate("teacher", [NOOP], Playing(won, learner=True, passive=True)) == 0


def test_wins_are_judged_within_a_budget_that_a_resume_keeps(won: EpisodeRecord) -> None:
    made = session(ROUTES)
    work, play = made.routes, Playing(won, learner=True, passive=False)
    assert work is not None
    made.freeze(1, StartShares(0.0), [])
    made.close(iteration(1, won), {})
    assert len(work.store.archive) == 1
    row = work.act(10, lambda: "learner now", [], play)
    assert (row["curriculum/archived"], row["curriculum/judged"], play.asked) == (1, 0, []), "nobody can be met"
    row = work.act(10, lambda: "learner now", [NOOP], play)
    assert (row["curriculum/judged"], row["curriculum/lucky"], row["curriculum/walking"]) == (1, 0, 1)
    assert [asked[0] for asked in play.asked] == ["learner now"]
    copy = session(ROUTES)
    copy.load(made.state(), made.credits, 0, 64)
    assert copy.routes is not None
    copy.routes.load(work.state())
    assert copy.routes.state() == work.state()
    assert work.state()["credit"] == pytest.approx(1.0 - 100 * 2 * 2 * ROUTES.games), "an allowance, and a debt"
    assert copy.routes.act(0, lambda: None, [NOOP], play) == work.act(0, lambda: None, [NOOP], play)
