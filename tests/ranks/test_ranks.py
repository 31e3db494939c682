"""Two ranks over gloo, started as two nodes of one rank each, as torchrun or a cluster would start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from royale_lightning.rollout.minibatch import Minibatch
from royale_lightning.run.folder import RUN_DIR_ENV
from royale_lightning.tools.bench.update import parts_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def launch(
    tmp: Path, *more: str, dies: int = -1, loses: int = -1, ends: int = -1, ranks: int = 2,
    callbacks: list[dict[str, Any]] | None = None,
) -> list[subprocess.CompletedProcess[str]]:
    """Run ``fit`` on so many nodes of one rank each, all into ``tmp/run``, with a digest and further ``callbacks``."""
    digest = {"class_path": "rank_digest.RankDigest", "init_args": {"dies": dies, "loses": loses, "ends": ends}}
    overlay = {"trainer": {"callbacks": [digest, *(callbacks or [])]}}
    (tmp / "digest.yaml").write_text(yaml.safe_dump(overlay))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    line = [
        sys.executable, "-m", "royale_lightning", "fit", "--config", str(ROOT / "configs/debug.yaml"), "--config",
        str(tmp / "digest.yaml"), "--trainer.strategy", "ddp", "--trainer.devices", "1", "--trainer.num_nodes",
        str(ranks), "--data.rollout.battles", "2", "--data.rollout.rows_per_iteration", "64",
        "--data.rollout.minibatch_rows", "32", *more,
    ]
    started = []
    for rank in range(ranks):
        env = {
            # Not the run folder that a run of this very process may have left for its own ranks.
            **{k: v for k, v in os.environ.items() if k != RUN_DIR_ENV},
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)]), "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "RANK": str(rank),
            "NODE_RANK": str(rank), "GROUP_RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "TORCHELASTIC_RUN_ID": "test",
        }
        started.append(
            subprocess.Popen(line, env=env, cwd=tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    done = []
    for p in started:
        try:
            out, err = p.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += "\nHANGS"
        done.append(subprocess.CompletedProcess(p.args, p.returncode, out, err))
    return done


def test_what_rank_zero_makes_or_raises_is_on_all_ranks_however_long_it_takes() -> None:
    """Past the process group's limit too: a gate that takes an hour must not end the other ranks."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2",
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / "for_all_ranks.py")], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    leader, follower = ([*p.communicate(timeout=120)[0].splitlines()] for p in started)
    assert leader[:5] == [
        "fine {'pool': ['a']}", "slow slow", "mistake UserError give another deck",
        "failure PermissionError [Errno 13] Permission denied: 'results.jsonl'",
        "stopped StopNow stopped by SIGINT in the middle of an iteration",
    ]
    assert follower[:3] == leader[:3]
    for line, told in zip(follower[3:5], ("PermissionError(13, 'Permission denied')", "StopNow("), strict=True):
        assert "RankZeroFailed rank 0 failed and with it all ranks: " + told in line
    assert "unsendable RankZeroFailed" in follower[5]
    assert leader[6] == follower[6] == "fine {'pool': ['a']}"


def lines(run: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (run / f"rank-{rank}.jsonl").read_text().splitlines()]


def test_ranks_share_weights_and_not_battles(tmp_path: Path) -> None:
    """Also that an early stop of the update is one decision: no rank waits for a minibatch the other skipped."""
    run = tmp_path / "run"
    for done in launch(tmp_path, "--run_dir", str(run), "--model.ppo.kl_limit", "1e-12"):
        assert done.returncode == 0, done.stderr
    a, b = lines(run, 0), lines(run, 1)
    assert len(a) == len(b) == 2
    for one, other in zip(a, b, strict=True):
        assert one["epochs"] == other["epochs"] == 1, "the KL limit of 1e-12 ends the update after one PPO epoch"
        for shared in ("iteration", "game_steps", "weights", "return_scale", "figures", "seen"):
            assert one[shared] == other[shared]
        assert one["figures"]["policy/play_rate"] > 0
        assert one["seen"]["time/update"] > 0, "a time of its own, and yet all ranks see one"
        assert "health/actions_refused" in one["figures"]
        assert one["rows"] != other["rows"]
        assert set(one["battles"]) <= {0, 1}
        assert set(other["battles"]) <= {2, 3}
    assert a[0]["weights"] != a[1]["weights"]
    rows = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert [r["iteration"] for r in rows] == [1, 2], "rank 0 alone writes"


@pytest.fixture(scope="module")
def iterations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of two iterations of two PPO epochs, with what two ranks computed and told each other in them."""
    folder = tmp_path_factory.mktemp("iterations")
    run = folder / "run"
    for done in launch(
        folder, "--run_dir", str(run), "--data.rollout.forced_rows", "critic", "--stop.iterations", "2",
        "--model.ppo.kl_limit", "9", callbacks=[
            {"class_path": "gradient_dump.GradientDump"}, {"class_path": "collective_count.CollectiveCount"},
        ],
    ):
        assert done.returncode == 0, done.stderr
    return run


def test_minibatches_exchange_gradients_and_nothing_else(iterations: Path) -> None:
    for rank in (0, 1):
        found = json.loads((iterations / f"collectives-{rank}.json").read_text())
        assert found["minibatches"] == 4
        # The gradients of a small network are one bucket. The one sum more is the KL between two PPO epochs.
        assert found["calls"] == {"allreduce_": 4 + 1}


def test_two_ranks_step_along_the_gradient_of_one_rank_with_the_rows_of_both(iterations: Path) -> None:
    """Also where one rank has more choice rows than the other: DDP takes the mean of the ranks' gradients."""
    run = iterations
    steps = [[torch.load(run / f"gradient-{step}-{rank}.pt") for rank in (0, 1)] for step in range(4)]
    choices = [[int(x["batch"]["choice"].sum()) for x in pair] for pair in steps]
    # Not the first: later on Adam has moved the weights away from those that acted, and no ratio is 1.
    step = next(i for i, (one, other) in enumerate(choices) if i and one != other and min(one, other) > 0)
    a, b = steps[step]
    for name, gradient in a["gradient"].items():
        assert torch.equal(gradient, b["gradient"][name])
    module, data = parts_of(yaml.safe_load((run / "config.yaml").read_text()), seed=1)
    module.build(data.inputs, data.seed)
    module.network.load_state_dict(a["weights"])
    both = {k: torch.cat([a["batch"][k], b["batch"][k]]) for k in a["batch"] if k != "actor_weight"}
    module.training_step(Minibatch(**both, epoch=1, index=0), 0).backward()
    largest = max(float(g.abs().max()) for g in a["gradient"].values())
    for name, p in module.network.named_parameters():
        if name in a["gradient"]:
            torch.testing.assert_close(p.grad, a["gradient"][name], rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.slow
def test_two_ranks_resume_exactly_after_twenty_iterations(tmp_path: Path) -> None:
    straight, split = tmp_path / "straight", tmp_path / "split"
    for done in launch(tmp_path, "--run_dir", str(straight), "--stop.iterations", "20"):
        assert done.returncode == 0, done.stderr
    for done in launch(tmp_path, "--run_dir", str(split), "--stop.iterations", "11"):
        assert done.returncode == 0, done.stderr
    last = split / "checkpoints" / "last.ckpt"
    for done in launch(tmp_path, "--ckpt_path", str(last), "--run_dir", str(split), "--stop.iterations", "20"):
        assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert lines(split, rank) == lines(straight, rank)
    assert lines(straight, 0)[-1]["weights"] == lines(straight, 1)[-1]["weights"]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("overlap", ["false", "true"])
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path, before: int, after: int, overlap: str) -> None:
    run = tmp_path / "run"
    more = ["--data.rollout.overlap", overlap]
    for done in launch(tmp_path, "--run_dir", str(run), "--stop.iterations", "2", *more, ranks=before):
        assert done.returncode == 0, done.stderr
    go_on = ["--ckpt_path", str(run / "checkpoints/last.ckpt"), "--run_dir", str(run), "--stop.iterations", "4", *more]
    for done in launch(tmp_path, *go_on, ranks=after):
        assert done.returncode == 2
        assert f"trainer.world_size {before} -> {after}" in done.stderr
        assert "--allow_drift" in done.stderr.splitlines()[-1]
    done = launch(tmp_path, *go_on, "--allow_drift", ranks=after)
    assert [p.returncode for p in done] == [0] * after, done[0].stderr
    said = "2 battles begin anew on the ranks that are new" if after > before else "the 2 battles in flight"
    (line,) = [x for p in done for x in (p.stdout + p.stderr).splitlines() if "the run had" in x]
    assert f"the run had {before} ranks and has {after}" in line
    assert said in line
    assert [x["iteration"] for x in lines(run, 0)] == [1, 2, 3, 4]
    if after == 2:
        assert [x["iteration"] for x in lines(run, 1)] == [3, 4]
        assert lines(run, 0)[-1]["weights"] == lines(run, 1)[-1]["weights"]
        assert set(lines(run, 1)[-1]["battles"]) <= {2, 3}


@pytest.mark.slow
def test_ranks_stop_together_on_a_figure(tmp_path: Path) -> None:
    """Of a time, which each rank measures anew."""
    stop = {
        "class_path": "lightning.pytorch.callbacks.EarlyStopping",
        "init_args": {"monitor": "time/update", "patience": 1, "min_delta": 1e9},
    }
    run = tmp_path / "run"
    for done in launch(tmp_path, "--run_dir", str(run), "--stop.iterations", "9", callbacks=[stop]):
        assert done.returncode == 0, done.stderr
    assert len(lines(run, 0)) == len(lines(run, 1)) == 2


@pytest.mark.slow
def test_a_signal_to_one_rank_stops_all_at_the_iterations_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    other, told = launch(tmp_path, "--run_dir", str(run), "--stop.iterations", "9", ends=1)
    assert "HANGS" not in other.stderr + told.stderr
    assert (other.returncode, told.returncode) == (0, 0), other.stderr + told.stderr
    assert [x["iteration"] for x in lines(run, 0)] == [x["iteration"] for x in lines(run, 1)] == [1, 2, 3]
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 3 - 1


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_job(tmp_path: Path) -> None:
    left, dead = launch(tmp_path, "--run_dir", str(tmp_path / "run"), "--stop.iterations", "9", dies=1)
    assert dead.returncode == -9
    assert left.returncode not in (0, None)
    assert "HANGS" not in left.stderr


@pytest.mark.slow
def test_ranks_hold_one_pool_and_replay_their_own_battles(tmp_path: Path) -> None:
    harvest = {
        "class_path": "royale_lightning.callbacks.RestartHarvest",
        "init_args": {"share": 0.5, "budget": 1.0, "markers": {"grid_steps": 5, "grace_steps": 3}},
    }
    run = tmp_path / "run"
    done = launch(
        tmp_path, "--run_dir", str(run), "--data.battle.max_ticks", "200", "--stop.iterations", "6",
        callbacks=[harvest],
    )
    assert [p.returncode for p in done] == [0, 0], done[0].stderr + done[1].stderr
    a, b = (lines(run, rank) for rank in (0, 1))
    assert [x["starts"] for x in a] == [x["starts"] for x in b]
    assert [x["weights"] for x in a] == [x["weights"] for x in b]
    assert a[-1]["points"] > 0
    first = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(r["restarts/restarts"] for r in first) > 0


@pytest.mark.slow
def test_a_worker_lost_on_one_rank_costs_its_battles_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = launch(
        tmp_path, "--run_dir", str(run), "--stop.iterations", "5", "--data.rollout.source", "processes",
        "--data.rollout.workers", "1", loses=1,
    )
    assert [p.returncode for p in done] == [0, 0], done[0].stderr + done[1].stderr
    a, b = (lines(run, rank) for rank in (0, 1))
    assert [x["iteration"] for x in a] == [x["iteration"] for x in b] == [1, 2, 3, 4, 5]
    assert [x["weights"] for x in a] == [x["weights"] for x in b]


@pytest.mark.slow
def test_ranks_share_one_ladder(tmp_path: Path) -> None:
    """Rank 0 judges, all of them meet whom it let in; every verdict and every battle is written once."""
    promotion = {
        "class_path": "royale_lightning.callbacks.SnapshotPromotion",
        "init_args": {
            "first_game_steps": 100, "growth": 0.3, "share": 0.8, "gate_battles": 5,
            "gate": "tests.callbacks.test_ladder_run.OnePair",
        },
    }
    rating = {"class_path": "royale_lightning.callbacks.RatingUpdate", "init_args": {"battles": 4, "share": 0.8}}
    run = tmp_path / "run"
    done = launch(
        tmp_path, "--run_dir", str(run), "--stop.iterations", "14", "--data.opponents.mirror", "0.5",
        "--data.opponents.pool", "0.5", "--data.opponents.scripted", "0", callbacks=[promotion, rating],
    )
    assert [p.returncode for p in done] == [0, 0], done[0].stderr + done[1].stderr
    a, b = (lines(run, rank) for rank in (0, 1))
    assert [x["pool"] for x in a] == [x["pool"] for x in b]
    assert [x["weights"] for x in a] == [x["weights"] for x in b]
    members, champion = a[-1]["pool"]
    assert len(members) >= 2
    assert champion in members
    verdicts = sorted((run / "ladder").glob("verdict-*.json"))
    judged = [json.loads(v.read_text()) for v in verdicts]
    assert [v.name for v in verdicts] == [f"verdict-{i + 1:06d}.json" for i in range(len(verdicts))]
    assert {v["outcome"] for v in judged} >= {"promoted"}
    results = [json.loads(x) for x in (run / "results.jsonl").read_text().splitlines()]
    evaluated = [(r["blue"], r["red"], r["seed"]) for r in results if r["kind"] == "eval"]
    assert evaluated
    assert len(set(evaluated)) == len(evaluated)
