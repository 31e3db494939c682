"""Restarts inside real runs: the pool fills and is begun from, a resume repeats nothing, banks come in and go out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from royalegym.state_mutator import Snapshot, save_snapshots

from royale_lightning.battle.save_state import SaveStateCodec
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.stamp import Stamp, stamp_of
from royale_lightning.callbacks import RestartHarvest
from royale_lightning.cli.console import main
from royale_lightning.errors import UserError
from royale_lightning.metrics.declarations import undeclared
from royale_lightning.metrics.row import PARTS
from royale_lightning.restarts.pool.bank_import import read_any_bank
from royale_lightning.restarts.pool.pool import PoolSettings, RestartPool
from royale_lightning.restarts.records.bank import read_bank, write_bank
from royale_lightning.restarts.records.key import key_digest
from royale_lightning.restarts.records.points import RestartPoint
from royale_lightning.run.jsonl import read_rows
from royale_lightning.tools.verify_resume import first_difference

ITERATIONS = 6
HARVEST = {
    "share": 0.4, "budget": 1.0, "markers": {"grid_steps": 5, "grace_steps": 3}, "export_bank": True,
}
CONFIG: dict[str, Any] = {
    "trainer": {"accelerator": "cpu", "enable_model_summary": False, "enable_progress_bar": False},
    "model": {"network": "tests.support.bots.Reflex", "ppo": {"ppo_epochs": 1}},
    "data": {
        "battle": {"deck": "starter", "max_ticks": 400},
        "rollout": {"battles": 4, "rows_per_iteration": 128, "minibatch_rows": 64},
        "opponents": {"mirror": 0.5, "scripted": 0.5},
    },
    "checkpoint": {"every": 1, "keep": -1},
}


def write(path: Path, **more: Any) -> str:
    config = json.loads(json.dumps(CONFIG))
    given = {**HARVEST, **more}
    callback = {"class_path": "royale_lightning.callbacks.RestartHarvest", "init_args": given}
    config["trainer"]["callbacks"] = [callback]
    path.write_text(yaml.safe_dump(config))
    return str(path)


def rows_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds ``straight``, a run of :data:`ITERATIONS`; the working directory."""
    made = tmp_path_factory.mktemp("restarts")
    before = Path.cwd()
    os.chdir(made)
    try:
        config = write(made / "run.yaml")
        assert main(["fit", "--config", config, "--run_dir", "straight", "--stop.iterations", str(ITERATIONS)]) == 0
        yield made
    finally:
        os.chdir(before)
        os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)


@pytest.fixture(scope="module")
def stamp() -> Stamp:
    return stamp_of(BattleSpec(deck="starter", max_ticks=400), key_digest())


def test_the_pool_fills_and_battles_begin_from_it(folder: Path) -> None:
    rows = rows_of(folder / "straight")
    assert undeclared({k for r in rows for k in r}) == []
    last = rows[-1]
    assert last["restarts/points"] > 10
    assert sum(r["restarts/replays"] for r in rows) >= 3
    assert sum(r["restarts/replays_failed"] + r["restarts/refused"] for r in rows) == 0
    begun = sum(r["restarts/restarts"] for r in rows)
    ended = sum(r.get("start/pool/episodes", 0) for r in rows)
    told = sum(r[f"restarts/{k}"] for r in rows for k in ("scored", "dead_start", "capped", "crashed", "abandoned"))
    assert begun > 5
    assert begun == told + last["restarts/in_flight"], "each served start ends in exactly one way"
    assert told == ended
    played = sum(r.get("start/pool/step_share", 0) * r["rollout/game_steps"] for r in rows[3:])
    assert 0.1 < played / sum(r["rollout/game_steps"] for r in rows[3:]) <= 0.7
    log = list(read_rows(folder / "straight" / "results.jsonl"))
    assert {r.get("start", "true") for r in log if r["kind"] == "eval"} <= {"true"}


def test_its_time_is_part_of_the_iterations(folder: Path) -> None:
    for row in rows_of(folder / "straight"):
        assert row["time/restarts"] > 0
        assert sum(row.get(f"time/{p}", 0.0) for p in (*PARTS, "rest")) == pytest.approx(row["time/iteration"])


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one(folder: Path) -> None:
    half = str(ITERATIONS // 2)
    assert main(["fit", "--config", "run.yaml", "--run_dir", "broken", "--stop.iterations", half]) == 0
    go_on = ["fit", "--ckpt_path", "broken/checkpoints/last.ckpt", "--stop.iterations", str(ITERATIONS)]
    assert main(go_on) == 0
    found = first_difference(folder / "straight", folder / "broken", range(1, ITERATIONS + 1), "stopped")
    assert found is None
    a, b = (Path(run, "restarts.bank").read_bytes() for run in ("straight", "broken"))
    assert a == b


def test_a_run_begins_with_a_bank(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(folder / "imports.yaml", import_bank="straight/restarts.bank", export_bank=False)
    assert main(["fit", "--config", config, "--run_dir", "imports", "--stop.iterations", "2"]) == 0
    assert "restart points read" in capsys.readouterr().out
    rows = rows_of(folder / "imports")
    assert rows[0]["restarts/imported"] > 10
    assert rows[0]["restarts/points"] > 10
    assert rows[0]["restarts/chance"] > 0
    assert sum(r["restarts/restarts"] for r in rows) > 0
    assert sum(r["restarts/refused"] for r in rows) == 0
    assert not (folder / "imports" / "restarts.bank").exists()


def test_a_save_from_inside_the_first_iteration_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rank has told its harvest's credit by then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROYALE_LIGHTNING_RUN_DIR", raising=False)
    config = yaml.safe_load(Path(write(tmp_path / "run.yaml", share=0.2)).read_text())
    walking = {"class_path": "royale_lightning.callbacks.RouteCurriculum", "init_args": {"share": 0.3}}
    impatience = {"class_path": "tests.support.interrupts.Impatience", "init_args": {"iteration": 1}}
    config["trainer"]["callbacks"] += [walking, impatience]
    Path("run.yaml").write_text(yaml.safe_dump(config))
    assert main(["fit", "--config", "run.yaml", "--run_dir", "run", "--stop.iterations", "2"]) == 130
    (saved,) = Path("run/checkpoints").glob("interrupted-*.ckpt")
    state = torch.load(saved, weights_only=True)["callbacks"]
    assert state["RestartHarvest"]["credits"] == []
    config["trainer"]["callbacks"][-1]["init_args"]["iteration"] = 0
    Path("on.yaml").write_text(yaml.safe_dump(config))
    go_on = ["--ckpt_path", str(saved), "--allow_mid_iteration", "--run_dir", "on", "--stop.iterations", "2"]
    assert main(["fit", "--config", "on.yaml", *go_on]) == 0
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    rows = rows_of(Path("on"))
    assert rows[-1]["iteration"] == 2
    assert sum(r["restarts/replays"] for r in rows) > 0


# ---- banks -------------------------------------------------------------------------------------------------------
def spec() -> BattleSpec:
    return BattleSpec(deck="starter", max_ticks=400)


@pytest.fixture(scope="module")
def points(folder: Path, stamp: Stamp) -> list[RestartPoint]:
    return read_bank(folder / "straight" / "restarts.bank", stamp)


def refusal(path: Path, stamp: Stamp) -> str:
    """The one sentence that an import ends with."""
    with pytest.raises(UserError) as caught:
        read_any_bank(path, spec(), stamp, 1)
    said = str(caught.value)
    assert str(path) in said
    assert "\n" not in said
    return said


def test_a_bank_that_does_not_belong_here_is_refused_in_a_sentence(
    points: list[RestartPoint], stamp: Stamp, tmp_path: Path
) -> None:
    path = tmp_path / "a.bank"
    foreign = replace(stamp, engine="0.0.1/another")
    write_bank(path, [replace(p, stamp=foreign) for p in points])
    assert "engine is 0.0.1/another there" in refusal(path, stamp)
    write_bank(path, points)
    whole = path.read_bytes()
    for at in (3, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        refusal(path, stamp)
        path.write_bytes(whole[:at])
        refusal(path, stamp)
    assert "cannot be read" in refusal(tmp_path / "none.bank", stamp)
    # A bank whose hashes are right, of states that are of another battle: the engine alone can tell.
    other = replace(points[0], payload=points[0].payload[:-8] + b"12345678", blob="")
    write_bank(path, [other])
    assert "restart point 0 is refused" in refusal(path, stamp)


def test_the_command_line_says_so_and_trains_nothing(
    folder: Path, points: list[RestartPoint], stamp: Stamp, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bank(folder / "foreign.bank", [replace(p, stamp=replace(stamp, cards="other")) for p in points])
    config = write(folder / "foreign.yaml", import_bank="foreign.bank")
    assert main(["fit", "--config", config, "--run_dir", "foreign", "--stop.iterations", "1"]) != 0
    said = capsys.readouterr().err
    assert "restart points of another game (cards is other there" in said
    assert "Traceback" not in said
    assert not (folder / "foreign" / "metrics.jsonl").exists()


def test_ten_thousand_points_are_read_and_the_newest_kept(
    points: list[RestartPoint], stamp: Stamp, tmp_path: Path
) -> None:
    many = [replace(points[i % len(points)], source=(7, i)) for i in range(10_000)]
    write_bank(tmp_path / "many.bank", many)
    read = read_any_bank(tmp_path / "many.bank", spec(), stamp, 41)
    assert len(read) == 10_000
    assert {p.policy_version for p in read} == {41}, "they count as of now, or they would be retired at once"
    pool = RestartPool(PoolSettings(), 1, stamp)
    assert pool.import_points(read) == 10_000
    buckets = {(p.partition, p.key) for p in points}
    assert pool.diagnostics()["points"] == 8 * len(buckets)
    assert pool.diagnostics()["bytes"] <= sum(len(p.payload) for p in points)


def test_a_bank_of_royalegyms_is_taken_in(points: list[RestartPoint], stamp: Stamp, tmp_path: Path) -> None:
    states = [SaveStateCodec(stamp).unpack(p.payload) for p in points[:4]]
    save_snapshots(tmp_path / "theirs.bank", [
        Snapshot(s.engine, s.memory, p.seat, s.max_ticks, p.tag) for s, p in zip(states, points, strict=False)
    ])
    read = read_any_bank(tmp_path / "theirs.bank", spec(), stamp, 5)
    assert [(p.state_hash, p.seat, p.policy_version) for p in read] == [(p.state_hash, p.seat, 5) for p in points[:4]]


# ---- settings ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"budget": 0.0}, "budget is 0.0; give a share"),
        ({"share": 0.8}, "share becomes 0.8; give a share of the game steps from 0 to 0.7"),
        ({"share": {"linear": [0.1, 0.9]}}, "give a share of the game steps from 0 to 0.7"),
        ({"share": -0.1}, "becomes -0.1"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        RestartHarvest(**settings)
