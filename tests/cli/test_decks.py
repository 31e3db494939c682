"""Decks on command lines and in runs: what was written, and what a run holds of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from royale_lightning.battle.decks import shipped_decks
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.cli.console import main
from royale_lightning.tools import evaluate as evaluate_tool
from royale_lightning.tools.verify_resume import rows_without_time

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")
HOG, GIANT = shipped_decks()["hog_cycle"], shipped_decks()["giant_beatdown"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["fit", "--print_config", *words])
    return yaml.safe_load(capsys.readouterr().out)["data"]["battle"]["deck"]


def test_a_command_line_takes_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = f"[[{', '.join(HOG)}], [{', '.join(GIANT)}]]"
    for text, held in (
        ("mirrored", "mirrored"), ("hog_cycle", "hog_cycle"), ("mine.yaml", "mine.yaml"), (pair, [HOG, GIANT]),
        ("{own: shipped, mirrored: true}", {"own": "shipped", "mirrored": True}),
        ("[{own: random, share: 2}, {own: starter}]", [{"own": "random", "share": 2}, {"own": "starter"}]),
    ):
        assert printed(capsys, "--config", CONFIG, "--data.battle.deck", text) == held
    # The last file counts whole: two ways to draw decks are not mixed into a third.
    (tmp_path / "one.yaml").write_text("data: {battle: {deck: {own: shipped, mirrored: true}}}")
    (tmp_path / "two.yaml").write_text("data: {battle: {deck: {own: starter, enemy: shipped}}}")
    files = ["--config", str(tmp_path / "one.yaml"), "--config", str(tmp_path / "two.yaml")]
    assert printed(capsys, *files) == {"own": "starter", "enemy": "shipped"}
    assert printed(capsys, *files, "--data.battle.deck", "mirrored") == "mirrored"
    assert printed(capsys, *files[:2], "--data.battle.deck.own", "starter") == {"own": "starter", "mirrored": True}


def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, told in (
        ("mirored", "did you mean 'mirrored'"), ("no.yaml", "deck file cannot be read"),
        ("{owm: random}", "unknown key 'owm'"), ("{own: {hog: [Knight]}}", "hog has 1 cards"),
    ):
        assert main(["fit", "--config", CONFIG, "--data.battle.deck", text]) == 2
        (error,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
        assert told in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("overlap", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_run_holds_the_decks_of_a_file_and_its_schedule(
    overlap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be gone by then, and the pool is as wide after a resume as it is in the unbroken run."""
    monkeypatch.chdir(tmp_path)
    decks = {"hog": HOG, "giant": {"cards": GIANT, "weight": 2}}
    Path("mine.yaml").write_text(yaml.safe_dump(decks))
    deck = "{own: mine.yaml, enemy: {widen: [[0, 12], [60, 40], [400, all]]}}"
    fit = ["fit", "--config", CONFIG, "--data.battle.deck", deck, "--data.rollout.overlap", overlap]
    assert main([*fit, "--run_dir", "straight", "--stop.iterations", "3"]) == 0
    assert main([*fit, "--run_dir", "split", "--stop.iterations", "1"]) == 0
    held = yaml.safe_load(Path("split/config.yaml").read_text())["data"]["battle"]["deck"]
    assert held == {"own": decks, "enemy": {"widen": [[0, 12], [60, 40], [400, "all"]]}}
    Path("mine.yaml").unlink()
    assert main(["fit", "--ckpt_path", "split/checkpoints/last.ckpt", "--stop.iterations", "3"]) == 0
    rows, others = rows_without_time(Path("straight")), rows_without_time(Path("split"))
    assert list(rows) == [1, 2, 3]
    assert rows == others
    assert Bot.load("split").trained_on.deck == BattleSpec(deck=held).deck


def test_evaluations_take_another_deck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", CONFIG, "--run_dir", "run", "--stop.iterations", "1"]) == 0
    assert main(["validate", "--ckpt_path", "run", "--games", "2", "--data.battle.deck", "mirrored"]) == 0
    assert json.loads(Path("run/validation.json").read_text())["deck"] == "mirrored"
    monkeypatch.setattr("royale_lightning.bots.scores.LADDER", ("push",))
    assert main(["test", "--ckpt_path", "run", "--games", "2", "--by_deck", "--data.battle.deck", "hog_cycle"]) == 0
    scores = json.loads(Path("run/scores.json").read_text())
    assert scores["by_deck"]["sampled"]["own"]["hog_cycle"]["games"] == 2
    line = ["evaluate", "run", "push", "--games", "2", "--json", "it.json", "--data.battle.deck"]
    assert main([*line, "{own: hog_cycle, enemy: shipped}"]) == 0
    assert json.loads(Path("it.json").read_text())["inputs"]["deck"]["own"] == {"hog_cycle": HOG}
    assert main([*line, "hog_cycel"]) == 2
    assert "did you mean 'hog_cycle'" in capsys.readouterr().err
    _, _, spec = evaluate_tool.load_pair("push", "defend", False, "mirrored")
    assert spec == BattleSpec(deck="mirrored")
