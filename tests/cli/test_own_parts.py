"""What goes wrong in a user's own part while a run is going on: one sentence that names it, and nothing spoiled."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from royale_lightning.cli.console import main
from tests.support.sentences import FIT, quiet_lightning, said

__all__ = ["quiet_lightning"]

OWN = "tests.support.own_parts"


def part(name: str, what: str) -> str:
    return f'{{"class_path": "{OWN}.{name}", "init_args": {{"what": "{what}"}}}}'


REWARD, NETWORK = "--data.battle.reward", "--model.network"
OPPONENTS, AUXILIARY = "--data.opponents.scripted_opponents", "--model.auxiliary"
CASES: dict[str, tuple[list[str], str]] = {
    "a reward raises": ([REWARD, part("OddReward", "raise")], r"battle.reward, .*parts.OddReward.*KeyError: 'tower'"),
    "a reward is text": ([REWARD, part("OddReward", "text")], r"battle.reward, .*own_parts.OddReward.*'a lot'"),
    "a reward is NaN": ([REWARD, part("OddReward", "nan")], r"battle.reward paid nan to seat \d of battle \d"),
    "NaN logits": ([NETWORK, part("OddNetwork", "nan")], r"the network gave .* no finite number for \d+ of \d+ rows"),
    "a field that is not there": ([NETWORK, part("NoSuchField", "x")], r"KeyError: 'minimap'; the observation has"),
    "a field asked for later": ([NETWORK, part("OddNetwork", "key")], r"KeyError: 'minimap' \(line \d+ of own_parts"),
    "short logits": ([NETWORK, part("OddNetwork", "short")], r"logits of shape \[\d+, 100\] for \d+ rows of 2305"),
    "a NaN loss": ([AUXILIARY, f"{{mine: {OWN}.NanLoss}}"], r"minibatch 1 of iteration 1 is no finite number"),
    "a loss of many rows": ([AUXILIARY, f"{{mine: {OWN}.RowsOfLoss}}"], r"auxiliary.mine gave a loss of shape"),
    "an opponent raises": ([OPPONENTS, f"[{OWN}.Raises]"], r"ZeroDivisionError: no plan \(line \d+ of own_parts.py"),
    "a far-off action": ([OPPONENTS, f"[{OWN}.FarOff]"], r"opponent .*own_parts.FarOff chose 1000000 at game step"),
    "a negative action": ([OPPONENTS, f"[{OWN}.Negative]"], r"own_parts.Negative chose -1 at game step"),
    "half an action": ([OPPONENTS, f"[{OWN}.Half]"], r"own_parts.Half chose 0.5 at game step"),
    "an illegal action": ([OPPONENTS, f"[{OWN}.Forbidden]"], r"own_parts.Forbidden chose \d+ at game step"),
    "too many battles": (["--data.rollout.battles", "1000000000000"], r"no memory on cpu .*rollout.battles 1000000"),
    "3 into 2 minibatches": (["--trainer.accumulate_grad_batches", "3"], r"is 3 and a PPO epoch has 2 minibatches"),
    "a negative clip": (["--trainer.gradient_clip_val", "-1"], r"gradient_clip_val is -1"),
    "a negative seed": (["--seed_everything", "-1"], r"seed_everything is -1; give a number from 0"),
    "nowhere to write": (["--run_dir", "/proc/x/y"], r"cannot make the run folder '/proc/x/y'"),
}


#: Variations of what another case shows as well.
SLOW = {
    "a reward is text", "short logits", "a field asked for later", "a loss of many rows", "a negative action",
    "half an action", "an illegal action", "a NaN loss",
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "nowhere to write" and sys.platform != "linux":
        pytest.skip("no /proc, where nobody may write")
    monkeypatch.chdir(tmp_path)
    arguments, sentence = CASES[name]
    assert main([*FIT, *([] if "--run_dir" in arguments else ["--run_dir", "run"]), *arguments]) == 2
    error = said(capsys)
    assert re.search(sentence, error), error
    assert not list(tmp_path.glob("run/checkpoints/*")), "nothing of a spoiled iteration is kept"


def test_the_rows_of_a_nan_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (CASES["NaN logits"][0], CASES["a NaN loss"][0]):
        assert main([*FIT, "--run_dir", arguments[0].strip("-"), *arguments]) == 2
    rollout: Any = load_file("model.network/bundles/iteration-000001/batch.safetensors")
    assert rollout["log_prob"].isnan().all()
    batch: Any = load_file("model.auxiliary/bundles/iteration-000001/batch.safetensors")
    assert batch["rows"].shape[0] == batch["advantage"].shape[0] == 64
