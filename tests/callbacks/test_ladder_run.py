"""The ladder inside real runs: the pool fills, the learner meets it, and a killed run loses and repeats nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import LightningModule, Trainer

from royale_lightning.callbacks import StopAfter, iteration_row
from royale_lightning.callbacks.base import iterations_done
from royale_lightning.cli.console import main
from royale_lightning.ladder.gate.gate import Judging, PromotionGate
from royale_lightning.ladder.gate.pairs import PairRequest
from royale_lightning.ladder.gate.verdict import GateContext, Outcome, Verdict
from royale_lightning.ladder.ratings.rating import DavidsonRater
from royale_lightning.ladder.results import read_results
from royale_lightning.ladder.seeds import gate_seeds
from royale_lightning.metrics.declarations import undeclared

CONFIG: dict[str, Any] = {
    "trainer": {
        "accelerator": "cpu", "enable_model_summary": False, "enable_progress_bar": False,
        "callbacks": [
            {"class_path": "royale_lightning.callbacks.RatingUpdate", "init_args": {"battles": 4, "share": 0.8}},
            {
                "class_path": "royale_lightning.callbacks.SnapshotPromotion",
                # Gates begin once 0.8 x 4,000 game steps pay for five battles of some 600.
                "init_args": {
                    "first_game_steps": 500, "growth": 0.3, "share": 0.8, "gate_battles": 5,
                    "gate": "tests.callbacks.test_ladder_run.OnePair",
                },
            },
        ],
    },
    "model": {"network": "tests.support.bots.Reflex", "ppo": {"ppo_epochs": 1}},
    "data": {
        "battle": {"deck": "starter"},
        "rollout": {"battles": 6, "rows_per_iteration": 256, "minibatch_rows": 128},
        "opponents": {"mirror": 0.3, "pool": 0.4, "scripted": 0.3},
    },
    "checkpoint": {"every": 1},
}


class OnePair(PromotionGate):
    """Plays a pair and lets every third in as champion, every third as a cycle member."""

    def judge(self, context: GateContext) -> Judging:
        (scores,) = yield (PairRequest(context.candidate, context.champion or "", gate_seeds(context.number, 0, 0, 1)),)
        outcomes: list[Outcome] = ["promoted", "cycle", "rejected"]
        return Verdict.of(context, outcomes[context.number % 3], f"scored {scores.mean()}")


class KillAfter(StopAfter):
    """Ends the process without a word after the ladder has acted and before the checkpoint is written."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        iteration_row(trainer)
        if iterations_done(trainer) == int(os.environ["KILL_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        super().on_train_epoch_end(trainer, pl_module)


def write(path: Path, *callbacks: dict[str, Any]) -> str:
    config = json.loads(json.dumps(CONFIG))
    config["trainer"]["callbacks"] += callbacks
    path.write_text(yaml.safe_dump(config))
    return str(path)


def log_of(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "results.jsonl").read_text().splitlines()]


def verdicts_of(run: str) -> list[str]:
    return [p.read_text() for p in sorted(Path(run, "ladder").glob("verdict-??????.json"))]


def data_of(run: str) -> dict[str, Any]:
    loaded = torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True, map_location="cpu")
    return next(v for k, v in loaded.items() if "SelfPlayData" in str(k))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five iterations."""
    folder = tmp_path_factory.mktemp("ladder")
    before = Path.cwd()
    os.chdir(folder)
    try:
        config = write(folder / "run.yaml")
        assert main(["fit", "--config", config, "--run_dir", "straight", "--stop.iterations", "5"]) == 0
    finally:
        os.chdir(before)
        os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    return folder


def test_the_pool_fills_and_is_met(straight: Path) -> None:
    run = straight / "straight"
    state = json.loads((run / "ladder" / "ladder.json").read_text())
    members = [m["snapshot"] for m in state["members"]]
    assert len(members) >= 3
    assert sorted(members) == sorted(p.name for p in (run / "snapshots").iterdir())
    verdicts = [json.loads(v) for v in verdicts_of(str(run))]
    assert [v["candidate"] for v in verdicts if v["admitted"]] == members
    rules = [v["rule"] for v in verdicts]
    assert rules[:2] == ["first", "cadence"]
    assert "gate" in rules
    for v in verdicts:
        assert v["rule"] != "cadence" or (v["outcome"], v["why"][:6]) == ("skipped", "budget")
    promoted = [v["candidate"] for v in verdicts if v["outcome"] == "promoted"]
    assert state["champion"] == promoted[-1]
    gated = [r for r in log_of(str(run)) if r.get("purpose", "").startswith("gate:")]
    assert len(gated) == 2 * rules.count("gate")
    train = [r for r in log_of(str(run)) if r["kind"] == "train"]
    flying = [b["assignment"]["players"] for b in data_of(str(run))["ranks"][0]["battles"]]
    met = {p for pair in [*flying, *((r["blue"], r["red"]) for r in train)] for p in pair}
    assert met & set(members), "the learner met its past"
    assert all(any(r[s].startswith("live:") for s in ("blue", "red")) for r in train)


def test_the_learner_is_rated_and_the_log_refits_to_the_same_numbers(straight: Path) -> None:
    run = straight / "straight"
    state = json.loads((run / "ladder" / "ladder.json").read_text())
    code = (
        "import json, sys; from pathlib import Path; from royale_lightning.ladder.ratings.rating import DavidsonRater\n"
        "from royale_lightning.ladder.results import read_results\n"
        "r = DavidsonRater().rate(reversed(list(read_results(Path(sys.argv[1])))))\n"
        "print(json.dumps({x.player: {'rating': x.elo, 'se': x.se, 'games': x.games, 'separable': x.separable}"
        " for x in r.table}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(run / "results.jsonl")], capture_output=True, text=True, check=True
    )
    assert json.loads(out.stdout) == state["ratings"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert undeclared({k for r in rows for k in r}) == []
    rated = [r for r in rows if "ladder/rating" in r]
    assert rated
    last = rated[-1]
    then = [r for r in read_results(run / "results.jsonl") if r.iteration <= last["iteration"]]
    mine = DavidsonRater().rate(then).of(f"live:{last['iteration']}")
    assert mine is not None
    assert (last["ladder/rating"], last["ladder/rating_se"]) == (mine.elo, mine.se)
    assert last["ladder/rating_separable"] == mine.separable
    contexts = {r.context for r in then}
    assert contexts == {state["context"]} == {state["unmarked"]}
    played = sum(r["ticks"] / 10 for r in log_of(str(run)) if r["kind"] == "eval")
    assert played <= 0.8 * rows[-1]["game_steps"] + 4 * 1000, "within its share and one rating"


@pytest.mark.slow
def test_a_run_killed_after_a_verdict_repeats_and_reuses_nothing(straight: Path) -> None:
    kill = {"class_path": "tests.callbacks.test_ladder_run.KillAfter", "init_args": {"iterations": 5}}
    config = write(straight / "killed.yaml", kill)
    gates = [v["iteration"] for v in map(json.loads, verdicts_of(str(straight / "straight"))) if v["rule"] == "gate"]
    at = gates[0]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "royale_lightning", "fit"]
    first = subprocess.run(
        [*command, "--config", config, "--run_dir", "killed"], cwd=straight, env={**env, "KILL_AT": str(at)},
        capture_output=True, text=True, check=False,
    )
    assert first.returncode == -signal.SIGKILL, first.stderr
    reached = len(verdicts_of(str(straight / "killed")))
    more = subprocess.run(
        [*command, "--ckpt_path", "killed/checkpoints/last.ckpt"], cwd=straight, env={**env, "KILL_AT": "0"},
        capture_output=True, text=True, check=False,
    )
    assert more.returncode == 0, more.stderr
    assert reached > 0
    assert "results of iterations after the checkpoint moved to" in more.stdout
    a, b = (str(straight / name) for name in ("straight", "killed"))
    assert log_of(a) == log_of(b)
    ids = [r["id"] for r in log_of(b)]
    assert ids == sorted(set(ids))
    games = [(r["blue"], r["red"], r["seed"]) for r in log_of(b) if r["kind"] == "eval"]
    assert len(games) == len(set(games))
    assert verdicts_of(a) == verdicts_of(b)
    assert list(Path(b, "ladder").glob("*.discarded-1")), "the verdict before the kill is kept aside"
    mine, other = data_of(a), data_of(b)
    assert mine["ladder"] == other["ladder"]
    assert mine["ranks"] == other["ranks"]


@pytest.mark.slow
def test_a_fork_takes_its_ladder_along(straight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(straight)
    fork = ["fit", "--ckpt_path", "straight/checkpoints/last.ckpt", "--run_dir", "fork", "--stop.iterations", "6"]
    assert main(fork) == 0
    before, after = log_of("straight"), log_of("fork")
    assert after[: len(before)] == before
    assert len(after) >= len(before)
    assert {p.name for p in Path("straight/snapshots").iterdir()} <= {p.name for p in Path("fork/snapshots").iterdir()}
    ratings = DavidsonRater().rate(read_results(Path("fork/results.jsonl")))
    assert set(data_of("straight")["ladder"]["ratings"]) <= set(ratings.players)


@pytest.mark.slow
def test_a_damaged_snapshot_leaves_the_pool_and_the_run_goes_on(
    straight: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(straight)
    lost = data_of("straight")["ladder"]["pool"]["members"][1]["snapshot"]
    file = straight / "straight" / "snapshots" / lost / "actor.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-50])
    try:
        go = ["fit", "--ckpt_path", "straight/checkpoints/last.ckpt", "--run_dir", "damaged", "--stop.iterations", "6"]
        assert main(go) == 0
    finally:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(whole)
    out = capsys.readouterr().out
    assert f"snapshot {lost}" in out
    assert "the pool goes on without it" in out
    state = json.loads(Path("damaged/ladder/ladder.json").read_text())
    assert lost not in [m["snapshot"] for m in state["members"]]
