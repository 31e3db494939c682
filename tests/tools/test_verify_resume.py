"""verify-resume finds what differs, and finds nothing between a run and its resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.cli.console import main
from royale_lightning.tools.verify_resume import Difference, digest, first_difference

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")

#: Snapshots from the second iteration on, met by the learner; enough game steps that it is rated.
LADDER = """\
trainer:
  callbacks:
    - class_path: royale_lightning.callbacks.SnapshotPromotion
      init_args: {first_game_steps: 300, growth: 0.3, share: 0.8}
    - class_path: royale_lightning.callbacks.RatingUpdate
      init_args: {battles: 4, share: 0.8}
data:
  rollout: {rows_per_iteration: 512}
  opponents: {mirror: 0.3, pool: 0.4, scripted: 0.3}
"""

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=2), x, max_size=3),
    max_leaves=10,
)


@given(PLAIN, PLAIN)
def test_equal_digests_are_equal_values(a: Any, b: Any) -> None:
    # repr tells -0.0 from 0.0 and True from 1, which == does not.
    def ordered(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: ordered(x[k]) for k in sorted(x, key=repr)}
        return [ordered(v) for v in x] if isinstance(x, list) else x

    assert digest(a) == digest(ordered(a))
    assert (digest(a) == digest(b)) == (repr(ordered(a)) == repr(ordered(b)))


def test_tensors_by_bytes_shape_and_type() -> None:
    x = torch.arange(6.0)
    assert digest(x) == digest(x.clone())
    changed = x.clone()
    changed[3] = torch.nextafter(x[3], torch.tensor(9.0))
    different = [x, x.reshape(2, 3), x.int(), x.double(), changed, x.bool(), x.bfloat16()]
    assert len({digest(y) for y in different}) == len(different)
    assert digest(torch.tensor(float("nan"))) == digest(torch.tensor(float("nan")))


@pytest.fixture
def runs(tmp_path: Path) -> Any:
    """``runs(name, change)`` writes a run of three iterations; ``change(iteration, checkpoint, row)`` may alter it."""

    def make(name: str, change: Any = lambda i, c, r: None) -> Path:
        run = tmp_path / name
        (run / "checkpoints").mkdir(parents=True)
        lines = []
        for i in (1, 2, 3):
            checkpoint: dict[str, Any] = {
                "state_dict": {"w": torch.arange(3.0) * i}, "optimizer_states": [{"step": i}], "loops": {"n": i},
                "callbacks": {"MetricLog": {"metrics_offset": len(name) * i}, "Mine": {"x": i}},
                "SelfPlayData": {"game_steps": i, "ranks": [{"battles": [i]}]},
                "royale_lightning": {"random": [{"torch": torch.zeros(2)}], "identity": {"digest": name}},
            }
            row = {"iteration": i, "loss": 0.5 * i, "time/iteration": float(len(name))}
            change(i, checkpoint, row)
            torch.save(checkpoint, run / f"checkpoints/iteration-{i:06d}.ckpt")
            lines.append(json.dumps(row))
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return run

    return make


def test_the_first_difference_is_named(runs: Any) -> None:
    straight = runs("straight")
    assert first_difference(straight, runs("same"), range(1, 4), "stopped") is None

    def at(iteration: int, alter: Any) -> Any:
        return lambda i, c, r: alter(c, r) if i >= iteration else None

    changes = {
        "weights": lambda c, r: c["state_dict"].update(w=torch.arange(3.0)),
        "optimizer": lambda c, r: c["optimizer_states"][0].update(step=0),
        "battles": lambda c, r: c["SelfPlayData"]["ranks"][0]["battles"].append(0),
        "data": lambda c, r: c["SelfPlayData"].update(game_steps=0),
        "callbacks": lambda c, r: c["callbacks"]["Mine"].update(x=0),
        "random": lambda c, r: c["royale_lightning"]["random"][0].update(torch=torch.ones(2)),
        "metrics.loss": lambda c, r: r.update(loss=0.1),
        "metrics.more": lambda c, r: r.update(more=1),
    }
    for part, alter in changes.items():
        other = runs(f"other-{part}", at(2, alter))
        assert first_difference(straight, other, range(1, 4), "killed") == Difference("killed", 2, part)


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-resume", "--config", CONFIG, "--iterations", "4"]) == 2
    assert "give two numbers as N+M" in capsys.readouterr().err


@pytest.mark.slow
def test_what_fit_refuses_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-resume", "--config", CONFIG, "--data.rollout.battels", "3"]) == 2
    assert "did you mean 'battles'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("where", ["inline", "processes", "ladder"])
def test_debug_resumes_exactly(tmp_path: Path, where: str) -> None:
    """The whole tool: six runs in fresh processes, one of them killed."""
    (tmp_path / "ladder.yaml").write_text(LADDER)
    more = {
        "inline": ["--data.rollout.source", "inline"],
        "processes": ["--data.rollout.source", "processes", "--data.rollout.workers", "2"],
        "ladder": ["--config", str(tmp_path / "ladder.yaml")],
    }[where]
    out = tmp_path / "out.json"
    assert main(["verify-resume", "--config", CONFIG, "--iterations", "2+1", "--json", str(out), *more]) == 0
    assert json.loads(out.read_text())["result"] == {"equal": True, "iterations": 3, "first_difference": None}


@pytest.mark.slow
def test_a_network_that_hides_its_state_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forgetful.py").write_text(
        "import torch\n"
        "from royale_lightning.ppo.auxiliary import AuxiliaryLoss\n"
        "class Forgetful(AuxiliaryLoss):\n"
        "    calls = 0\n"
        "    def forward(self, step):\n"
        "        self.calls += 1\n"
        "        return step.value.mean() * 1e-3 * self.calls, {}\n"
    )
    monkeypatch.chdir(tmp_path)
    more = ["--model.auxiliary", "{forgetful: forgetful.Forgetful}", "--json", "out.json", "--iterations", "1+1"]
    assert main(["verify-resume", "--config", CONFIG, *more]) == 1
    found = json.loads((tmp_path / "out.json").read_text())["result"]
    assert not found["equal"]
    assert found["first_difference"]["iteration"] == 2
