"""``fit`` for N + M iterations equals ``fit`` for N and ``fit --ckpt_path`` for M, battles in flight included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from royale_lightning.cli.console import main
from royale_lightning.ladder.results import read_results
from royale_lightning.tools.verify_resume import rows_without_time

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_a_resumed_run_is_the_unbroken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "--config", CONFIG]
    assert main([*fit, "--run_dir", "straight", "--stop.iterations", "3"]) == 0
    assert main([*fit, "--run_dir", "split", "--stop.iterations", "1"]) == 0
    assert main(["fit", "--ckpt_path", "split/checkpoints/last.ckpt", "--stop.iterations", "3"]) == 0
    a, b = (
        torch.load(f"{run}/checkpoints/last.ckpt", weights_only=True, map_location="cpu")
        for run in ("straight", "split")
    )
    # Two runs of one seed, one of them broken: the same rows apart from time.
    rows, others = rows_without_time(Path("straight")), rows_without_time(Path("split"))
    assert list(rows) == [1, 2, 3]
    assert rows == others
    assert len(rows[3]) > 50
    assert equal(a["state_dict"], b["state_dict"])
    assert equal(a["optimizer_states"], b["optimizer_states"])
    mine = next(v for k, v in a.items() if k == "SelfPlayData" or "SelfPlayData" in str(k))
    other = next(v for k, v in b.items() if k == "SelfPlayData" or "SelfPlayData" in str(k))
    assert mine["ranks"][0]["battles"], "battles were in flight"
    assert equal(mine, other), "battles in flight, ordinals, scaler and scores"


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_run_rewound_to_any_of_its_checkpoints_has_one_history(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics log and the battles log hold each iteration once, in order, with the battles of a straight run."""
    monkeypatch.chdir(tmp_path)
    # Battles are played out, or none is decided.
    line = ["--config", CONFIG, "--data.battle.max_ticks", "null", "--data.rollout.rows_per_iteration", "512"]
    line += ["--checkpoint.every", "1", "--checkpoint.keep", str(keep), "--stop.iterations"]
    assert main(["fit", "--run_dir", "straight", *line, "6"]) == 0
    straight = [(r.iteration, r.blue, r.red, r.seed, r.winner) for r in read_results(Path("straight/results.jsonl"))]
    assert straight
    assert main(["fit", "--run_dir", "a", *line, "3"]) == 0
    for pick in (0, -1, 1, 0, 1):
        there = sorted(Path("a/checkpoints").glob("iteration-*.ckpt"))
        path = there[pick % len(there)]
        to = min(6, int(path.stem.split("-")[1]) + 2)
        if to == int(path.stem.split("-")[1]):
            continue
        assert main(["fit", "--ckpt_path", str(path), *line, str(to)]) == 0
        assert list(rows_without_time(Path("a"))) == list(range(1, to + 1))
        battles = [(r.iteration, r.blue, r.red, r.seed, r.winner) for r in read_results(Path("a/results.jsonl"))]
        assert battles == [b for b in straight if b[0] <= to]
    ids = [r.id for r in read_results(Path("a/results.jsonl"))]
    assert ids == list(range(1, len(ids) + 1))
