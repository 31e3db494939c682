"""Every replaceable part, taken by ``class_path`` from a package that is not ours, does what it is for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from my_lab import battles, learning

from royale_lightning.battle.environment import make_env
from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.round import CHOICE, Assignment, Round
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import ArenaSettings, build_arena
from royale_lightning.cli import console as cli

HERE = Path(__file__).parent

#: Seconds, not minutes: two iterations of a tiny network.
SMALL: dict[str, Any] = {
    "trainer": {"accelerator": "cpu", "enable_model_summary": False, "enable_progress_bar": False},
    "model": {"network": {"class_path": "my_lab.learning.Flat"}, "ppo": {"ppo_epochs": 1}},
    "data": {
        "battle": {"max_ticks": 400, "codec_states": 0},
        "rollout": {"battles": 2, "rows_per_iteration": 64, "minibatch_rows": 64, "stagger": False, "threads": 1},
    },
    "stop": {"iterations": 2},
    "checkpoint": {"every": 2},
}


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for k, v in more.items():
        out[k] = merged(out[k], v) if isinstance(v, dict) and isinstance(out.get(k), dict) else v
    return out


def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    """Train through the command line; the run folder and its rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)
    Path("mine.yaml").write_text(yaml.safe_dump(merged(SMALL, more)))
    try:
        assert cli.main(["fit", "--config", "mine.yaml", "--run_dir", "run"]) == 0
    finally:
        os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    rows = [json.loads(x) for x in Path("run/metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    return Path("run").resolve(), rows


def test_the_learners_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning.LambdaOne.calls = 0
    run, rows = fit(tmp_path, monkeypatch, {
        "trainer": {"callbacks": [{"class_path": "my_lab.learning.CountPlays"}]},
        "model": {
            "network": {"class_path": "my_lab.learning.Flat", "init_args": {"hidden": 4}},
            "auxiliary": {"patience": {"class_path": "my_lab.learning.Patience", "init_args": {"weight": 0.5}}},
            "ppo": {
                "horizon_game_steps": 400,
                "learning_rate": {"class_path": "my_lab.learning.Knee", "init_args": {"start": 0.01, "at": 0.25}},
                "advantage": {"class_path": "my_lab.learning.LambdaOne"},
            },
        },
    })
    assert learning.LambdaOne.calls == 2, "advantages are asked for once an iteration"
    assert rows[0]["ppo/learning_rate"] == pytest.approx(0.01)
    done = rows[0]["game_steps"] / 400
    assert rows[1]["ppo/learning_rate"] == pytest.approx(learning.Knee(0.01, 0.25)(min(1.0, done)))
    assert 0 < rows[0]["auxiliary/patience/p_play"] < 1
    assert rows[0]["auxiliary/patience/weight"] == 0.5
    assert 0 < rows[0]["auxiliary/patience/gradient_share"] < 1
    assert rows[1]["my_lab/plays"] >= 0
    bot = json.loads((run / "bot" / "bot.json").read_text())
    assert bot["network"] == {"class_path": "my_lab.learning.Flat", "init_args": {"hidden": 4}}


def test_the_battles_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    battles.Hoarder.seen.clear()
    _, rows = fit(tmp_path, monkeypatch, {
        "data": {
            "battle": {
                "reward": {"class_path": "my_lab.battles.Siege", "init_args": {"scale": 2.0}},
                "observation": "my_lab.battles.Glance",
                "start": "my_lab.battles.RichStart",
                "termination": "my_lab.battles.FirstTower",
                "truncation": {"class_path": "my_lab.battles.Seconds", "init_args": {"seconds": 10.0}},
                "actions": "my_lab.battles.ThreeSpots",
            },
            "opponents": {"mirror": 0.5, "scripted": 0.5, "scripted_opponents": ["my_lab.battles.Hoarder"]},
        }
    })
    played = [r for r in rows if r["battle/episodes"]]
    assert played, "two hundred ticks are a battle here"
    assert all(r["battle/ticks"] == 200 and r["battle/truncated"] == 1 for r in played), "10 s, from a minute on"
    assert battles.Hoarder.seen, "it is asked"
    shapes, bars = zip(*((s, v[0]) for s, v in battles.Hoarder.seen), strict=True)
    assert set(shapes) == {(20, 32, 18)}, "RoyaleGym's default view, though the learner sees seven numbers"
    assert max(bars) == 1.0, "the bar is full at the start"


@pytest.mark.parametrize("observation", ["entities", "spatial", "my_lab.battles.Glance"])
def test_an_own_opponent_sees_what_royalegym_shows(observation: str) -> None:
    """Batched or not, whatever the learner sees: bit for bit RoyaleGym's default observation of the same battle."""
    spec = BattleSpec(observation=observation, max_ticks=700, codec_states=0)
    block = Round(1, prepare(spec).row_layout.row_bytes)
    arena = build_arena(spec, 0, 1, block, ArenaSettings(forced_share=0.0))
    battles.Hoarder.seen.clear()
    arena.advance([Assignment(0, 0, ("learner", "scripted:my_lab.battles.Hoarder"), 5, keep_commands=True)])
    while not block.episodes:
        assert block.kind[0] == CHOICE
        layout = prepare(spec).row_layout
        legal = np.flatnonzero(layout.unpack_mask(layout.views(block.rows[:1])["action_mask"])[0])
        block.action[0] = legal[-1] if block.game_step[0] % 3 == 0 else 0
        arena.advance([])
    shown = list(battles.Hoarder.seen)
    commands = {(step, seat): a for step, seat, a in block.episodes[0].commands}
    env = make_env(BattleSpec(observation="spatial"))
    obs, _ = env.reset(seed=5)
    expected = []
    for step in range(block.episodes[0].game_steps):
        if obs["red"]["action_mask"][1:].any():
            expected.append(obs["red"]["vector"].copy())
        obs, *_ = env.step({"blue": commands.get((step, 0), 0), "red": commands.get((step, 1), 0)})
    assert len(shown) == len(expected) > 20
    assert sum((a == b).all() for (_, a), b in zip(shown, expected, strict=True)) == len(expected)


def test_parts_of_a_notebook_cell_train_inline(tmp_path: Path) -> None:
    """Classes of ``__main__``, as a notebook has them; worker processes could not import them, and say so."""
    program = """
from lightning.pytorch import Trainer
from royale_lightning import *
from my_lab import battles, learning

class Mine(battles.Siege): pass
class Thing(battles.Hoarder): seen = []
class Net(learning.Flat): pass

spec = BattleSpec(reward=part(Mine, scale=3.0), max_ticks=300)
def data(source):
    opponents = OpponentShares(mirror=0.0, scripted=1.0, scripted_opponents=["__main__.Thing"])
    return SelfPlayData(spec, RolloutSettings(2, 64, 64, source=source, threads=1), opponents)
def module():
    return SelfPlayModule(network=part(Net, hidden=4), ppo=PPOSettings(ppo_epochs=1))
quiet = dict(max_epochs=1, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
Trainer(**defaults("a", **quiet)).fit(module(), data("inline"))
assert Thing.seen
try:
    Trainer(**defaults("b", **quiet)).fit(module(), data("processes"))
except UserError as refused:
    print("refused:", refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])},
    )
    assert done.returncode == 0, done.stderr
    assert "refused: " in done.stdout
    assert "__main__" in done.stdout


@pytest.mark.parametrize(
    ("battle", "told"),
    [
        ({"reward": "my_lab.battles.Hoarder"}, "battle.reward: my_lab.battles.Hoarder is no RewardFunction"),
        ({"start": "my_lab.nowhere.X"}, "battle.start: cannot import 'my_lab.nowhere.X'"),
        ({"truncation": {"class_path": "my_lab.battles.Seconds", "init_args": {"second": 1}}}, "'seconds'"),
    ],
)
def test_a_part_that_does_not_fit_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], battle: dict[str, Any],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(merged(SMALL, {"data": {"battle": battle}})))
    assert cli.main(["fit", "--config", "mine.yaml", "--run_dir", "run"]) == 2
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    told_lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
    assert len(told_lines) == 1
    assert told in told_lines[0]
