"""Damaged and odd input of every kind: a clear error or a correct load, never a traceback and never a wrong load."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import Trainer

from royale_lightning.bots.bot_files import read_bot
from royale_lightning.bots.snapshots import DamagedSnapshot, SnapshotStore
from royale_lightning.cli.console import main
from royale_lightning.errors import UserError
from royale_lightning.ladder.results import LogMark, Result, ResultsLog, read_results
from royale_lightning.restarts.records.bank import read_bank, write_bank
from royale_lightning.run.checkpoints import whole_checkpoint
from royale_lightning.run.jsonl import JsonLines
from tests.support.restarts import STAMP, point

CONFIG = Path(__file__).parents[2] / "configs" / "debug.yaml"
ODD: list[Any] = [
    None, True, -1, 0, 1, 2, 3.5, 1e30, -1e-30, 10**18, "", "nan", ".inf", "null", "Knight", "a.b", "a.b.C", "../x",
    "scripted", [], [1], ["Knight"] * 8, {}, {"class_path": "torch.nn.Linear"}, {"class_path": "os.getcwd"},
    {"linear": [1, 0]}, {"linear": [1]}, {"warmup": 3}, {"x": {"y": 1}}, "\u2603", "x" * 300, "${HOME}",
]


def paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a nested configuration."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*at, key)
            yield from paths(value, (*at, key))


def mutated(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """One to three places changed: another value, a key renamed, a branch gone, or one put where another was."""
    new = copy.deepcopy(config)
    for _ in range(rng.randint(1, 3)):
        places = list(paths(new))
        if not places:
            break
        *path, last = rng.choice(places)
        where = new
        for key in path:
            where = where[key]
        how = rng.random()
        if how < 0.7:
            where[last] = rng.choice(ODD)
        elif how < 0.8:
            where[last + rng.choice("sx_")] = where.pop(last)
        elif how < 0.9:
            del where[last]
        else:
            source: Any = new
            for key in rng.choice(places):
                source = source[key] if isinstance(source, dict) and key in source else source
            where[last] = copy.deepcopy(source)
    return new


@pytest.fixture
def whole_config(tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """debug.yaml with every setting written out."""
    with pytest.raises(SystemExit):
        main(["fit", "--config", str(CONFIG), "--print_config"])
    return yaml.safe_load(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("first", "count"), [(0, 20), *(pytest.param(s, 50, marks=pytest.mark.slow) for s in range(100, 1100, 100))]
)
def test_mutated_configurations(
    first: int, count: int, whole_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Read, built and, where that goes well, checked as ``fit`` does before it trains."""
    monkeypatch.chdir(tmp_path)
    given: list[Any] = []

    # Its signature becomes settings.
    def fit(
        self: Trainer, model: Any, train_dataloaders: Any = None, val_dataloaders: Any = None, datamodule: Any = None,
        ckpt_path: str | None = None, weights_only: bool | None = None,
    ) -> None:
        given.append((model, datamodule))

    monkeypatch.setattr(Trainer, "fit", fit)
    outcomes = set()
    for seed in range(first, first + count):
        config = mutated(whole_config, random.Random(seed))
        Path("x.yaml").write_text(yaml.safe_dump(config))
        monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)
        given.clear()
        try:
            code = main(["fit", "--config", "x.yaml", "--run_dir", f"run-{seed}"])
            # Not inside fit: a frame of a test counts as a user's own code, whose errors are a user's own.
            for model, data in given:
                data.setup("fit")
                model.build(data.inputs, data.seed)
        except SystemExit as exc:
            code = int(exc.code or 0)
        except UserError as exc:
            print(f"error: {exc}", file=sys.stderr)
            code = 2
        except Exception as exc:
            raise AssertionError(f"seed {seed} gave a traceback") from exc
        err = capsys.readouterr().err
        assert code in (0, 2), f"seed {seed}"
        if code == 2:
            lines = [x for x in err.splitlines() if x.startswith("error: ")]
            assert len(lines) == 1, f"seed {seed}: {err}"
            assert len(lines[0]) < 600, f"seed {seed}: {lines[0]}"
        assert "Traceback" not in err, f"seed {seed}: {err}"
        outcomes.add(code)
        shutil.rmtree(f"run-{seed}", ignore_errors=True)
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)
    assert 2 in outcomes
    assert count < 50 or 0 in outcomes


# ---- files -----------------------------------------------------------------------------------------------------
def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, overwritten, doubled or emptied."""
    how = rng.randrange(6)
    at = rng.randrange(max(1, len(data)))
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if how == 2:
        return data[:at] + rng.randbytes(min(64, len(data) - at)) + data[at + 64 :]
    if how == 3:
        return data + data[at : at + 100]
    if how == 4:
        return data[:at] + b"\0" * (len(data) - at)
    return b""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two iterations."""
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    assert main(["fit", "--config", str(CONFIG), "--run_dir", str(folder)]) == 0
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    return folder


def same(a: Any, b: Any) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


COUNTS = [(0, 12), pytest.param(1000, 200, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_checkpoints(run: Path, tmp_path: Path, first: int, count: int) -> None:
    good = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    before = torch.load(run / "checkpoints/iteration-000001.ckpt", weights_only=True)
    last = tmp_path / "checkpoints/last.ckpt"
    for seed in range(first, first + count):
        rng = random.Random(seed)
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        shutil.copytree(run / "checkpoints", tmp_path / "checkpoints")
        for name in ("last.ckpt", "iteration-000002.ckpt"):
            path = tmp_path / "checkpoints" / name
            path.write_bytes(damaged(path.read_bytes(), random.Random(seed)))
        manifest = tmp_path / "checkpoints/manifest.json"
        if rng.random() < 0.3:
            manifest.write_bytes(damaged(manifest.read_bytes(), rng))
        try:
            path = whole_checkpoint(last)
        except UserError:
            # A manifest that says otherwise speaks against a whole file, too.
            assert manifest.read_bytes() != (run / "checkpoints/manifest.json").read_bytes(), seed
            continue
        found = torch.load(path, weights_only=True)
        assert same(found["state_dict"], good["state_dict"]) or same(found["state_dict"], before["state_dict"]), seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
@pytest.mark.parametrize("file", ["bot/actor.safetensors", "checkpoints/iteration-000001.ckpt"])
def test_damaged_bots(run: Path, tmp_path: Path, file: str, first: int, count: int) -> None:
    path = tmp_path / file
    record, weights, _ = read_bot(run / file)
    shutil.copytree((run / file).parent, path.parent)
    data = path.read_bytes()
    for seed in range(first, first + count):
        path.write_bytes(damaged(data, random.Random(seed)))
        try:
            found, tensors, _ = read_bot(path)
        except UserError:
            continue
        assert same(tensors, weights), seed
        assert found == record, seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_snapshots(run: Path, tmp_path: Path, first: int, count: int) -> None:
    """One that is not what its name stands for leaves the store; another of its kind is not hurt."""
    record, weights, _ = read_bot(run / "bot")
    for seed in range(first, first + count):
        store = SnapshotStore(tmp_path / f"{seed}", sets_aside=True)
        name = store.add(record, weights)
        path = store.path(name) / "actor.safetensors"
        path.write_bytes(damaged(path.read_bytes(), random.Random(seed)))
        try:
            found, tensors = store.read(name)
        except DamagedSnapshot:
            assert name not in store, seed
            assert store.add(record, weights) == name
            continue
        assert same(tensors, weights), seed
        assert found == record, seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_banks(tmp_path: Path, first: int, count: int) -> None:
    path = tmp_path / "a.bank"
    points = [point(n, (1, n % 2, 2)) for n in range(6)]
    write_bank(path, points)
    data = path.read_bytes()
    for seed in range(first, first + count):
        path.write_bytes(damaged(data, random.Random(seed)))
        try:
            found = read_bank(path, STAMP)
        except UserError:
            continue
        assert found == points, seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_logs(tmp_path: Path, first: int, count: int) -> None:
    """Every line is as it was, or the log is refused; a torn end is set aside."""
    path = tmp_path / "results.jsonl"
    log = ResultsLog(path)
    log.append(
        Result(
            kind="eval", blue="a", red="b", seed=i, winner=i % 3, ticks=100 + i, crowns=(1, 2), iteration=i, game_step=i
        )
        for i in range(20)
    )
    mark = LogMark(path.stat().st_size, log.last_id)
    log.close()
    data = path.read_bytes()
    good = list(read_results(path))
    for seed in range(first, first + count):
        rng = random.Random(seed)
        for old in tmp_path.glob("results.jsonl*"):
            old.unlink()
        path.write_bytes(damaged(data, rng))
        try:
            opened = ResultsLog(path, mark if rng.random() < 0.5 else None)
            opened.close()
            found = list(read_results(path))
        except UserError:
            continue
        # A log may end early, and hold nothing that was not there.
        assert found == good[: len(found)], seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_metrics_logs_are_appended_to(tmp_path: Path, first: int, count: int) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"iteration": i, "loss": i / 7}).encode() + b"\n" for i in range(30)]
    for seed in range(first, first + count):
        for old in tmp_path.glob("metrics.jsonl*"):
            old.unlink()
        path.write_bytes(damaged(b"".join(lines), random.Random(seed)))
        log = JsonLines(path)
        log.append({"iteration": 99})
        log.close()
        assert json.loads(path.read_bytes().splitlines()[-1]) == {"iteration": 99}, seed


@pytest.mark.parametrize(("first", "count"), COUNTS)
def test_damaged_runs_are_reported(run: Path, tmp_path: Path, first: int, count: int) -> None:
    """Whatever a log or a listing holds, a report is written or refused."""
    names = ["metrics.jsonl", "bot/bot.json", "config.yaml"]
    copy_of = tmp_path / "run"
    shutil.copytree(run, copy_of, ignore=shutil.ignore_patterns("checkpoints"))
    for seed in range(first, first + count):
        rng = random.Random(seed)
        name = rng.choice(names)
        (copy_of / name).write_bytes(damaged((run / name).read_bytes(), rng))
        assert main(["report", str(copy_of), "--out", str(tmp_path / "out.html")]) in (0, 2), seed
        shutil.copy(run / name, copy_of / name)
