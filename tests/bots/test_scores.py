"""The scored table, replays, and what the command line calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from royalegym import RustEngine
from royalegym.replay import load_trace, verify_trace

from royale_lightning.battle.round import EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.evaluate import PlannedGame, play_games
from royale_lightning.bots.replays import record_battle, replay_record, write_replays
from royale_lightning.bots.scores import pair_scores, run_predict, run_test, run_validate, score_table, summarise
from royale_lightning.errors import UserError
from royale_lightning.tools import evaluate as evaluate_tool
from royale_lightning.tools import play as play_tool
from tests.support.bots import save_checkpoint

FIGURES = {"games", "wins", "draws", "losses", "score", "low", "high", "mean_ticks", "seconds_per_battle"}


def quiet() -> Console:
    return Console(quiet=True)


def ended(winner: int, ticks: int = 1000) -> EpisodeRecord:
    none: Any = (0, 0)
    head = (0, 0, ("a", "b"), 1, winner, False, ticks, ticks // 10)
    return EpisodeRecord(*head, *[none] * 7)


def test_scores_count_pairs() -> None:
    # The player is blue in the even games: it wins, loses; draws, wins; wins, wins.
    records = [ended(0), ended(0), ended(2), ended(1), ended(0), ended(1, 4000)]
    assert pair_scores(records).tolist() == [0.5, 0.75, 1.0]
    s = summarise(records, 0.001)
    assert (s.games, s.wins, s.draws, s.losses, s.score) == (6, 4, 1, 1, 0.75)
    assert s.low < 0.75 < s.high
    assert (s.mean_ticks, s.seconds_per_battle) == (1500, 1.5)
    swept = summarise([ended(0), ended(1)] * 10, 0.0)
    assert swept.score == 1.0
    assert 0.7 < swept.low < 0.75, "Wilson on 10 seeds, not a width of 0"


def test_the_table_of_a_bot(bot: Bot, other: Bot, tmp_path: Path) -> None:
    scores = score_table(bot, ("push", bot, other), games=2, seed=7, modes=("sampled", "sharp"), battles=6)
    assert list(scores.modes) == ["sampled", "sharp"]
    for mode in scores.modes.values():
        assert list(mode.opponents) == ["push", "tiny", "other"]
        assert mode.mean_score == np.mean([s.score for s in mode.opponents.values()])
        assert 0.0 <= mode.mean_low <= mode.mean_score <= mode.mean_high <= 1.0
        assert mode.mean_low < mode.mean_high
    mirror = scores.modes["sampled"].opponents["tiny"]
    assert (mirror.score, mirror.wins) == (0.5, mirror.losses), "a bot against itself on one seed swaps its result"
    text = json.loads(scores.save(tmp_path / "deep" / "s.json").read_text())
    assert set(text) == {"schema", "checkpoint", "game_steps", "deck", "seed", "modes"}
    assert (text["schema"], text["game_steps"], text["deck"], text["seed"]) == (1, 1234, "starter", 7)
    assert set(text["modes"]["sharp"]["opponents"]["push"]) == FIGURES
    sharp = text["modes"]["sharp"]
    assert set(sharp) == {"opponents", "mean_score", "mean_low", "mean_high"}
    console = Console(record=True, width=120, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(scores.table())
    shown = console.export_text()
    console.file.close()
    assert "tiny" in shown
    assert "1,234 game steps" in shown
    (line, _) = (x for x in shown.splitlines() if " mean " in x)
    assert f"{scores.modes['sampled'].mean_low:.3f}–{scores.modes['sampled'].mean_high:.3f}" in line
    with pytest.raises(UserError, match="no opponents"):
        score_table(bot, ())


def test_validate_writes_into_the_run_folder(bot: Bot, tmp_path: Path) -> None:
    ckpt = tmp_path / "runs" / "r" / "checkpoints" / "last.ckpt"
    save_checkpoint(bot, ckpt)
    file = run_validate(ckpt, games=1, console=quiet(), battles=10)
    assert file == tmp_path / "runs" / "r" / "validation.json"
    text = json.loads(file.read_text())
    assert text["checkpoint"] == str(ckpt)
    assert text["seed"] == 20_000_000
    assert list(text["modes"]) == ["sampled"]
    assert list(text["modes"]["sampled"]["opponents"]) == ["random", "first-affordable", "defend", "push", "patient"]
    with pytest.raises(UserError, match="--out FOLDER"):
        run_test(bot)


def test_the_replays_of_predict_verify(bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("royale_lightning.bots.scores.ACTING", ("push", "random"))
    folder = run_predict(bot, 1, 30, tmp_path, console=quiet(), battles=3)
    traces = sorted(folder.glob("*.msgpack"))
    assert len(traces) == 3
    assert {p.stem for p in folder.glob("*.html")} == {p.stem for p in traces}
    assert (folder / "tiny-vs-push-30.msgpack") in traces
    assert (folder / "tiny-vs-tiny-30.msgpack") in traces
    engine = RustEngine()
    for path in traces[:2]:
        assert verify_trace(load_trace(path), engine) == []
    page = (folder / "tiny-vs-push-30.html").read_text()
    assert page.startswith("<!")
    assert "tiny (blue) - push (red)" in page


def test_a_replay_is_the_battle_that_was_played(bot: Bot, tmp_path: Path) -> None:
    (replay,) = write_replays({"bot": bot}, [PlannedGame("scripted:push", "bot", 3)], bot.spec, tmp_path)
    trace = load_trace(replay.trace)
    assert trace.result is not None
    assert (trace.result.winner, tuple(trace.result.crowns)) == (replay.record.winner, replay.record.crowns)
    # The same battle through RoyaleGym, the bot deciding live.
    from royale_lightning.battle.opponents import make_opponent

    live = record_battle(bot.make_env(), make_opponent("push"), bot, 3)
    assert live.result == trace.result
    assert [f.state_hash for f in live.frames] == [f.state_hash for f in trace.frames]


def test_what_cannot_be_replayed_says_so(bot: Bot) -> None:
    (record,) = play_games({"bot": bot}, [PlannedGame("bot", "scripted:noop", 8)], bot.spec)
    with pytest.raises(UserError, match="without keep_commands"):
        replay_record(record, bot.spec)
    (record,) = play_games({"bot": bot}, [PlannedGame("bot", "scripted:noop", 8)], bot.spec, keep_commands=True)
    record.commands = record.commands[:1]
    record.plays = (1, 0)
    with pytest.raises(RuntimeError, match="another engine or spec"):
        replay_record(record, BattleSpec())


class Rusher:
    """An opponent of a user's own: the first legal card, always."""

    def act(self, obs: dict[str, np.ndarray], mask: np.ndarray, rng: np.random.Generator) -> int:
        assert obs["vector"].ndim == 1, "RoyaleGym's default view"
        return int(np.flatnonzero(mask)[-1])


def test_an_opponent_of_ones_own_is_met_by_its_class_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_tool.main(["tests.bots.test_scores.Rusher", "noop", "--games", "2"]) == 0
    assert "Rusher against noop: 2-0-0" in capsys.readouterr().out
    with pytest.raises(UserError, match="nowhere"):
        evaluate_tool.main(["nowhere.Bot", "noop"])


def test_the_evaluate_tool(bot: Bot, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bot.save(tmp_path / "a")
    out = tmp_path / "result.json"
    assert evaluate_tool.main([str(tmp_path / "a"), "push", "--games", "2", "--json", str(out)]) == 0
    text = json.loads(out.read_text())
    assert (text["schema"], text["tool"]) == (1, "evaluate")
    assert set(text["result"]) == {"score", "low", "high", "games", "pairs"}
    assert (text["result"]["games"], text["result"]["pairs"]) == (2, 1)
    assert "over 1 seeds" in capsys.readouterr().out
    (names, bots, _) = evaluate_tool.load_pair(str(tmp_path / "a"), str(tmp_path / "a"), True)
    assert names == ("tiny", "tiny-b")
    assert bots["tiny-b"].mode == "sharp"
    with pytest.raises(UserError, match=r"neither a path nor one of .* did you mean 'push'"):
        evaluate_tool.main(["psuh", "push"])


def test_the_play_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert play_tool.main(["push", "defend", "--seed", "3", "--out", str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"push-vs-defend-3.{x}" for x in ("html", "json", "msgpack")
    ]
    assert "push (blue) - defend (red)" in capsys.readouterr().out
