"""Each mistake a user can make gives one clear sentence and a non-zero exit, before any training starts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from royalegym.reward import RewardFunction
from torch import Tensor

from royale_lightning.cli.console import main
from royale_lightning.nn import ActorCritic, Inputs
from tests.support.sentences import FIT, quiet_lightning, said

__all__ = ["quiet_lightning"]

STARTER = ["Knight", "Archer", "Giant", "Minions", "Fireball", "Zap", "Cannon", "Musketeer"]


class RaisesOnBind(RewardFunction):
    def bind(self, engine: Any) -> None:
        raise RuntimeError("I need a licence")

    def get_reward(self, team: int, prev: Any, state: Any, results: Any) -> float:
        return 0.0


class ShortLogits(ActorCritic):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(12, 7)

    def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        x = self.layer(obs["wide"].float())
        return x, x[:, 0]


def deck(cards: list[str]) -> list[str]:
    return ["--data.battle.deck", "[" + ", ".join(cards) + "]"]


MISTAKES = {
    "unknown key": (["--data.rollout.battels", "8"], r"battels.*battles"),
    "unknown card": (deck([*STARTER[:7], "Musketer"]), r"'Musketer'.*did you mean 'Musketeer'"),
    "seven cards": (deck(STARTER[:7]), r"has 7 cards"),
    "a card twice": (deck([*STARTER[:7], "Zap"]), r"'Zap' twice"),
    "negative gamma": (["--model.ppo.gamma", "-0.5"], r"gamma must be in \(0, 1\], was -0.5"),
    "no such checkpoint": (["--ckpt_path", "nowhere/last.ckpt"], r"nowhere/last.ckpt"),
    "0 battles": (["--data.rollout.battles", "0"], r"rollout.battles is 0"),
    "a reward that raises": (["--data.battle.reward", f"{__name__}.RaisesOnBind"], r"I need a licence.*battle.reward"),
    "a network of the wrong shape": (["--model.network", f"{__name__}.ShortLogits"], r"2305|2,305"),
    "arguments that are none": (
        ["--model.network", '{"class_path": "entity", "init_args": [1]}'], r"model.network: init_args is \[1\]",
    ),
    "an argument of a wrong type": (
        ["--model.network", '{"class_path": "entity", "init_args": {"width": "x"}}'], r"model.network.*'width': 'x'",
    ),
    "max_time": (["--trainer.max_time", "00:00:10:00"], r"StopAfter"),
    "a small buffer": (["--data.rollout.rows_per_iteration", "32"], r"rows_per_iteration is 32"),
    "a short name nobody knows": (["--model.network", "entitee"], r"'entitee'.*did you mean 'entity'"),
    "an opponent nobody knows": (["--data.opponents.scripted_opponents", "[pushh]"], r"'pushh'.*did you mean 'push'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, sentence = MISTAKES[name]
    code = main([*FIT, *arguments])
    err = said(capsys)
    assert code == 2, err
    assert re.search(sentence, err), err
    assert not list(tmp_path.glob("runs/*")), "a refused start leaves no run behind"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("stop: []", r"stop is \[\]; it is a section"),
        ("data: {rollout: 3}", r"data.rollout is 3; it is a section"),
        ("loggers: 3", r"loggers"),
        ("ckpt_path: 3", r"ckpt_path is .3."),
        ("data: {battle: {frame_stack: null}}", r"data.battle.frame_stack"),
    ],
)
def test_odd_files(
    text: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_text(text)
    assert main([*FIT, "--config", "odd.yaml"]) == 2
    assert re.search(sentence, error := said(capsys)), error


def test_an_occupied_folder_and_another_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*FIT, "--run_dir", "mine", "--stop.iterations", "1"]) == 0
    capsys.readouterr()
    assert main([*FIT, "--run_dir", "mine"]) == 2
    assert "mine" in said(capsys)
    other = '{"class_path": "entity", "init_args": {"width": 32, "layers": 1, "heads": 2}}'
    assert main(["fit", "--ckpt_path", "mine/checkpoints/last.ckpt", "--model.network", other,
                 "--stop.iterations", "2"]) == 2
    assert "network" in said(capsys)
    assert main(["fit", "--ckpt_path", "mine/checkpoints/last.ckpt", "--data.battle.deck", "random",
                 "--stop.iterations", "2"]) == 2
    assert "battle" in said(capsys)


def test_too_few_open_files_for_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(x) for x in os.listdir("/dev/fd")}
    limit = [x for x in range(len(taken) + 20) if x not in taken][19] + 1  # leaves twenty
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        more = ["--data.rollout.source", "processes", "--data.rollout.workers", "16", "--data.rollout.battles", "16"]
        assert main([*FIT, *more]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told = said(capsys)
    assert f"Too many open files; the limit of this process is {limit} open files: raise it with `ulimit" in told
