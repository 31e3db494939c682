"""The bot that comes with the package: small, honest about its strength, and a win within a minute of an install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from royale_lightning.bots.bot import Bot
from royale_lightning.bots.bot_files import SHIPPED
from royale_lightning.bots.evaluate import paired_games, play_games
from royale_lightning.bots.scores import pair_scores

ROOT = Path(__file__).parents[2]


def test_play_without_arguments_shows_a_win(tmp_path: Path) -> None:
    code = (
        "import sys; from royale_lightning.cli.console import main; code = main(['play']); "
        "assert not {'lightning', 'wandb'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "first_bot (blue) - push (red): blue won" in done.stdout
    assert list((tmp_path / "replays").glob("*.html"))


def test_it_is_small_and_of_a_shipped_configuration() -> None:
    folder = SHIPPED["first_bot"]
    assert sum(p.stat().st_size for p in folder.iterdir()) < 2_000_000
    config = yaml.safe_load((ROOT / "configs" / "first_bot.yaml").read_text())
    bot = Bot.load("first_bot")
    assert bot.trained_on.deck == config["data"]["battle"]["deck"]
    assert bot.record.game_steps >= config["stop"]["game_steps"]


@pytest.mark.slow
def test_its_scores_are_its_own() -> None:
    """The battles behind ``scores.json``, its first ten seeds: the score within what those seeds alone can say."""
    scores = json.loads((SHIPPED["first_bot"] / "scores.json").read_text())
    bot = Bot.load("first_bot")
    for name in ("push", "defend"):
        games = paired_games("bot", f"scripted:{name}", 20, scores["seed"])
        mine = pair_scores(play_games({"bot": bot}, games, bot.spec)).mean()
        assert mine >= scores["modes"]["sampled"]["opponents"][name]["score"] - 0.15


def test_a_folder_of_the_users_wins_over_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from royale_lightning.errors import UserError

    monkeypatch.chdir(tmp_path)
    Path("first_bot").mkdir()
    with pytest.raises(UserError, match="'first_bot' holds neither"):
        Bot.load("first_bot")
