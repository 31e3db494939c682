"""What results may be joined: the context of each line, and what a drifted or an older run makes of its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot_files import write_bot
from royale_lightning.bots.evaluate import PlannedGame
from royale_lightning.errors import UserError
from royale_lightning.ladder import context as context_module
from royale_lightning.ladder.context import context_of, of_context, recorded_context
from royale_lightning.ladder.ladder import Ladder
from royale_lightning.ladder.published import configured_rater, present, rated_results
from royale_lightning.ladder.ratings.matches import count_matches
from royale_lightning.ladder.ratings.rating import DavidsonRater
from royale_lightning.ladder.results import Result, ResultsLog, read_results
from royale_lightning.nn import actor_state_dict
from tests.support.bots import make_bot

SPEC = BattleSpec()
OTHER_DECK = BattleSpec(deck="random")
GAMES = [PlannedGame("scripted:push", "scripted:random", 5), PlannedGame("scripted:random", "scripted:push", 5)]


def result(seed: int = 1, **more: Any) -> Result:
    plain: dict[str, Any] = {
        "kind": "eval", "blue": "a", "red": "b", "winner": 0, "ticks": 3600, "crowns": (1, 0), "iteration": 3,
        "game_step": 4096,
    }
    return Result(seed=seed, **{**plain, **more})


@pytest.fixture
def ladders() -> Iterator[list[Ladder]]:
    opened: list[Ladder] = []
    yield opened
    for ladder in opened:
        ladder.close()


def test_a_context_is_what_battles_are_and_not_what_a_bot_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    own = context_of(SPEC)
    assert len(own) == 16
    same = [
        replace(SPEC, observation="spatial"), replace(SPEC, reward="potential"), replace(SPEC, max_ticks=600),
        replace(SPEC, frame_stack=3), replace(SPEC, deck=list(SPEC.decks[0]) if SPEC.decks else "starter"),
    ]
    assert {context_of(s) for s in same} == {own}
    others = [OTHER_DECK, replace(SPEC, decision_ms=250), replace(SPEC, command_delay_ticks=2)]
    assert len({own, *map(context_of, others)}) == 4
    monkeypatch.setattr(context_module, "engine_identity", lambda: {"royalesim": "another"})
    assert context_of(SPEC) != own


def test_a_log_finds_and_rates_the_battles_of_its_own_context(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    log = ResultsLog(path, context="one", unmarked="one")
    (written,) = log.append([result()])
    assert written.context == "one"
    log.close()
    other = ResultsLog(path, context="two", unmarked="one")
    assert other.find("a", "b", 1) is None
    assert other.rated() == []
    (again,) = other.append([result(winner=1)])
    assert (again.id, again.context) == (2, "two"), "the same battle under other rules"
    other.close()
    back = ResultsLog(path, context="one", unmarked="one")
    assert back.rated() == [written]
    back.close()
    assert [r.context for r in read_results(path)] == ["one", "two"]
    with pytest.raises(UserError, match="two contexts, one and two"):
        DavidsonRater().rate(read_results(path))
    assert count_matches(of_context(read_results(path), "two", "one")).games.tolist() == [[1, 0, 0]]


def test_lines_without_a_context_have_the_one_they_are_said_to_have(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    old = ResultsLog(path)
    old.append([result()])
    old.close()
    assert '"context"' not in path.read_text()
    for unmarked, found in (("now", 1), ("before", 0)):
        log = ResultsLog(path, context="now", unmarked=unmarked)
        assert len(log.rated()) == found
        assert {r.context for r in log.rated()} <= {"now"}
        log.close()


def test_a_drifted_run_plays_and_rates_anew(
    tmp_path: Path, ladders: list[Ladder], capsys: pytest.CaptureFixture[str]
) -> None:
    first = Ladder(SPEC)
    ladders.append(first)
    first.open(tmp_path)
    first.act(lambda: (first.play(GAMES, "rating", 1, 100), first.rate()))
    before = rated_results(tmp_path / "results.jsonl")
    assert (len(before.results), before.others) == (2, 0)
    state = json.loads(json.dumps(first.state_dict()))
    first.close()

    drifted = Ladder(OTHER_DECK)
    ladders.append(drifted)
    drifted.load_state_dict(state)
    assert drifted.ratings
    drifted.open(tmp_path)
    assert "their ratings begin anew" in capsys.readouterr().out
    assert drifted.ratings == {}
    assert drifted.find(GAMES[0].blue, GAMES[0].red, 5) is None
    drifted.act(lambda: drifted.play(GAMES[:1], "rating", 2, 200))
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
    assert drifted.rate().matches.n.tolist() == [1]
    found = rated_results(tmp_path / "results.jsonl")
    assert (len(found.results), found.others) == (1, 2)

    # And back: the battles that were played are there again.
    state = json.loads(json.dumps(drifted.state_dict()))
    drifted.close()
    returned = Ladder(SPEC)
    ladders.append(returned)
    returned.load_state_dict(state)
    returned.open(tmp_path)
    assert returned.find(GAMES[0].blue, GAMES[0].red, 5) is not None
    assert returned.rate().matches.n.tolist() == [2]


@pytest.mark.parametrize("recorded", ["same", "other", "nothing"])
def test_a_run_from_before_there_were_contexts(recorded: str, tmp_path: Path, ladders: list[Ladder]) -> None:
    """Its lines count as played in what the run noted of itself; without a note as played in the present one."""
    log = ResultsLog(tmp_path / "results.jsonl")
    log.append([result()])
    mark = log.mark()
    log.close()
    if recorded != "nothing":
        bot = make_bot(spec=SPEC if recorded == "same" else OTHER_DECK)
        write_bot(tmp_path / "bot", bot.record, actor_state_dict(bot.network))
    assert (recorded_context(tmp_path) == context_of(SPEC)) == (recorded == "same")
    old = Ladder(SPEC).state_dict()
    state = {**{k: v for k, v in old.items() if k not in ("context", "unmarked")}, "mark": list(mark)}
    ladder = Ladder(SPEC)
    ladders.append(ladder)
    ladder.load_state_dict(state)
    ladder.open(tmp_path)
    assert (ladder.find("a", "b", 1) is None) == (recorded == "other")
    ladder.act(lambda: ladder.play(GAMES[:1], "rating", 4, 5000))
    found = rated_results(tmp_path / "results.jsonl")
    assert len(found.results) == (1 if recorded == "other" else 2)
    # The next resume knows it without looking.
    assert {"context", "unmarked"} <= set(ladder.state_dict())


def test_a_log_on_its_own_has_the_context_of_its_last_battle(tmp_path: Path) -> None:
    rows = [result(1), result(2, context="x"), result(3, context="y"), result(4, context="x"), result(5, kind="train")]
    found = present(rows, {})
    assert ([r.seed for r in found.results], found.others) == ([2, 4], 2)
    assert [r.seed for r in present(rows, {"context": "y", "unmarked": "y"}).results] == [1, 3]
    assert present([], {}) == ([], 0)
    # As an older version left a run: nothing has a context.
    log = tmp_path / "results.jsonl"
    log.write_text("".join(json.dumps(msgspec.to_builtins(result(s))) + "\n" for s in (1, 2)))
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder" / "ladder.json").write_text('{"schema": 1, "members": [], "champion": null, "ratings": {}}')
    assert len(rated_results(log).results) == 2
    assert isinstance(configured_rater(log), DavidsonRater)
