"""The ladder's tools on a run folder, each with its JSON."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.cli.console import main
from royale_lightning.ladder.ladder import Ladder
from royale_lightning.ladder.pool import Member
from royale_lightning.ladder.published import read_state
from royale_lightning.ladder.ratings.rating import DavidsonRater
from royale_lightning.ladder.results import Result, ResultsLog
from royale_lightning.nn import actor_state_dict
from tests.support.bots import make_bot


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three snapshots; the second beat the first, nobody met the third."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    ladder = Ladder(make_bot().spec)
    ladder.open(folder)
    bots = [make_bot(seed=i) for i in range(3)]
    ids = [ladder.store.add(b.record, actor_state_dict(b.network)) for b in bots]

    def fill() -> None:
        for i, snapshot in enumerate(ids):
            ladder.pool.admit(Member(snapshot, "first" if i == 0 else "cadence", i, 1000 * i))
        ladder.pool.promote(ids[1])

    ladder.act(fill)
    ladder.close()
    log = ResultsLog(folder / "results.jsonl")
    log.append(
        Result(
            kind="eval", blue=blue, red=red, seed=seed, winner=int(red == ids[1] or seed % 5 == 0), ticks=3600,
            crowns=(1, 0), iteration=1, game_step=10,
        )
        for seed in range(40) for blue, red in ((ids[1], ids[0]), (ids[0], ids[1]))
    )
    log.close()
    return folder


def files(run: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def call(tmp_path: Path, *line: str) -> dict[str, Any]:
    assert main([*line, "--json", str(tmp_path / "out.json")]) == 0
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["schema"] == 1
    assert out["tool"] == line[0]
    return dict(out["result"])


def test_rate_fits_the_log(run: Path, tmp_path: Path) -> None:
    players = call(tmp_path, "rate", str(run))["players"]
    assert [p["games"] for p in players] == [80, 80]
    assert players[0]["rating"] > players[1]["rating"] + 50
    assert all(p["se"] > 0 for p in players)


def test_ladder_lists_members_and_what_nobody_measured_is_null(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = call(tmp_path, "ladder", str(run))
    first, champion, unplayed = result["members"]
    assert result["champion"] == champion["snapshot"]
    assert first["over_champion"]["high"] < 0
    assert champion["over_champion"]["elo"] == 0
    assert (unplayed["rating"], unplayed["games"], unplayed["over_champion"]) == (None, 0, None)
    assert champion["snapshot"] in capsys.readouterr().out


def test_who_won_all_has_no_error_to_print(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The champion's last opponent lost every battle: its number is the prior's choice."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    champion = read_state(copy)["champion"]
    log = ResultsLog(copy / "results.jsonl", context=read_state(copy)["context"])
    log.append(
        Result(
            kind="eval", blue=blue, red=red, seed=seed, winner=int(red == champion), ticks=1, crowns=(0, 0),
            iteration=1, game_step=10,
        )
        for seed in range(900, 910) for blue, red in (("scripted:noop", champion), (champion, "scripted:noop"))
    )
    log.close()
    players = {p["id"]: p for p in call(tmp_path, "rate", str(copy))["players"]}
    assert (players["scripted:noop"]["separable"], players[champion]["separable"]) == (True, False)
    assert players["scripted:noop"]["se"] > 0, "for readers of the file it is there, with the mark"
    about = f"about {players['scripted:noop']['rating']:.0f}"
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "scripted:noop" in x)
    assert about in line
    assert "separable" in line
    assert f" {players['scripted:noop']['se']:.0f} " not in line
    others = {p["id"]: p for p in call(tmp_path, "ladder", str(copy))["others"]}
    assert others["scripted:noop"]["separable"]
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "scripted:noop" in x)
    assert about in line
    assert "±" not in line


class Doubled(DavidsonRater):
    """A rater of one's own: nobody is worth more than a hundred points of prior."""

    def __init__(self) -> None:
        super().__init__(prior_sd=100.0)


def test_the_tools_use_the_rater_that_the_run_is_configured_with(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)

    def gaps(*more: str) -> tuple[float, float | None]:
        rated = call(tmp_path, "rate", str(copy), *more)["players"]
        first = call(tmp_path, "ladder", str(copy))["members"][0]
        return rated[0]["rating"] - rated[1]["rating"], -first["over_champion"]["elo"]

    shipped = gaps()
    assert shipped[0] == pytest.approx(shipped[1])
    state = read_state(copy)
    assert state["rater"]["class_path"] == "royale_lightning.ladder.DavidsonRater"
    for setting, told in (
        ({"class_path": "royale_lightning.ladder.DavidsonRater", "init_args": {"prior_sd": 100.0}}, None),
        ({"class_path": "tests.tools.test_ladder_tools.Doubled", "init_args": {}}, None),
        ({"class_path": "tests.tools.nowhere.Rater", "init_args": {}}, "the run's rater in ladder/ladder.json: "),
        ({"class_path": "royale_lightning.ladder.gate.gate.SprtGate", "init_args": {}}, "gate.SprtGate is no Rater"),
    ):
        (copy / "ladder" / "ladder.json").write_text(json.dumps({**state, "rater": setting}))
        if told is not None:
            assert main(["rate", str(copy)]) == 2
            assert told in capsys.readouterr().err
            continue
        own = gaps()
        assert own[0] == pytest.approx(own[1])
        assert own[0] < 0.9 * shipped[0]
        assert gaps("--prior_sd", "400")[0] == pytest.approx(shipped[0]), "what is asked for wins"


def test_battles_of_another_deck_are_left_out_and_counted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    drifted = {**read_state(copy), "context": "other", "unmarked": "old"}
    (copy / "ladder" / "ladder.json").write_text(json.dumps(drifted))
    assert main(["rate", str(copy)]) == 2
    assert "80 battles with other decks" in capsys.readouterr().err
    assert [m["rating"] for m in call(tmp_path, "ladder", str(copy))["members"]] == [None, None, None]


def test_gate_judges_without_touching_the_run(run: Path, tmp_path: Path) -> None:
    before = files(run)
    third = [m["snapshot"] for m in call(tmp_path, "ladder", str(run))["members"]][2]
    line = ["gate", str(run), "--candidate", third, "--gate", "tests.callbacks.test_ladder_run.OnePair", "--anchors"]
    result = call(tmp_path, *line)
    assert result["outcome"] in ("promoted", "cycle", "rejected")
    assert result["why"].startswith("scored ")
    assert call(tmp_path, *line) == result, "the same seeds"
    assert files(run) == before


def test_a_candidate_from_outside_plays_the_runs_battles(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not its own: those could not be compared with what the run has played, and would be paired with it."""
    played: list[tuple[Any, int]] = []
    real = Ladder.play

    def noting(self: Ladder, *args: Any, **more: Any) -> Any:
        played.append((self.spec.deck, self.spec.decision_ms))
        return real(self, *args, **more)

    monkeypatch.setattr(Ladder, "play", noting)
    outside = tmp_path / "outside"
    make_bot(seed=2, spec=BattleSpec(deck="random")).save(outside)
    line = ["gate", str(run), "--gate", "tests.callbacks.test_ladder_run.OnePair", "--anchors", "--candidate"]
    found = call(tmp_path, *line, str(outside))
    assert played == [("starter", 500)]
    inside = [m["snapshot"] for m in call(tmp_path, "ladder", str(run))["members"]][2]
    assert call(tmp_path, *line, inside) == found, "the same weights, in the same battles"
    # A run of a version that did not note its battles is one of its own snapshots' battles.
    old = shutil.copytree(run, tmp_path / "old")
    state = json.loads((old / "ladder/ladder.json").read_text())
    del state["battle"]
    (old / "ladder/ladder.json").write_text(json.dumps(state))
    assert call(tmp_path, "gate", str(old), *line[2:], str(outside)) == found
    assert set(played) == {("starter", 500)}
    make_bot(seed=2, spec=BattleSpec(decision_ms=250)).save(tmp_path / "quick")
    capsys.readouterr()
    assert main([*line, str(tmp_path / "quick")]) == 2
    err = capsys.readouterr().err
    assert "cannot play these battles: battle.decision_ms 250 there and 500 here" in err
    assert err.count("error: ") == 1
    assert len(played) == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("rate nowhere", "there is no results.jsonl in 'nowhere'"),
        ("ladder nowhere", "'nowhere' has no ladder"),
        ("gate nowhere --candidate x", "'nowhere' has no ladder"),
        ("gate RUN --candidate x", "there is no bot at 'x'"),
        ("gate RUN --candidate RUN/snapshots/FIRST --champion x", "--champion 'x' is not in the run's pool"),
        ("gate RUN --candidate RUN/snapshots/FIRST --gate sprtt", "'sprtt'"),
        ("gate RUN --candidate RUN/snapshots/FIRST --anchors pussh", "did you mean 'push'"),
        ("exploit nowhere", "there is no bot at 'nowhere'"),
    ],
)
def test_one_sentence_says_what_is_wrong(
    line: str, told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sorted(p.name for p in (run / "snapshots").iterdir())[0]
    assert main(line.replace("RUN", str(run)).replace("FIRST", first).split()) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("error: ") == 1


@pytest.mark.slow
def test_exploit_trains_against_the_bot_alone_from_its_own_weights(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    snapshot = sorted((run / "snapshots").iterdir())[0]
    line = ["exploit", str(snapshot), "--minutes", "0.05", "--games", "4", "--run_dir", "response"]
    result = call(tmp_path, *line)
    assert result["games"] == 4
    assert 0 <= result["low"] <= result["score"] <= result["high"] <= 1
    results = [json.loads(x) for x in Path("response/results.jsonl").read_text().splitlines()]
    assert all(snapshot.name in (r["blue"], r["red"]) for r in results)
    assert Bot.load("response").record.game_steps == result["game_steps"] > 0


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="another file system is needed")
def test_play_puts_its_page_on_another_disk(tmp_path: Path) -> None:
    line = ["play", "noop", "random-0.9", "--out", str(tmp_path)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        page = Path(other, "deep", "page.html")
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("another file system is needed")
        assert main([*line, "--html", str(page)]) == 0
        assert page.read_text().startswith("<!")
        assert not list(tmp_path.glob("*.html"))
    beside = next(tmp_path.glob("*.msgpack")).with_suffix(".html")
    assert main([*line, "--html", str(beside)]) == 0
    assert beside.is_file()
