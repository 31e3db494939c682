"""The backward curriculum inside a real run: wins are archived and judged, and battles begin on them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from royale_lightning.bots.bot_files import SHIPPED
from royale_lightning.callbacks import RouteCurriculum
from royale_lightning.cli.console import main
from royale_lightning.errors import UserError
from royale_lightning.metrics.declarations import undeclared
from royale_lightning.metrics.row import PARTS
from royale_lightning.restarts import route_work
from royale_lightning.tools.verify_resume import first_difference

ITERATIONS = 8
HARVEST = {"class_path": "royale_lightning.callbacks.RestartHarvest", "init_args": {"share": 0.1, "budget": 1.0}}
ROUTES = {
    "class_path": "royale_lightning.callbacks.RouteCurriculum",
    "init_args": {
        "share": 0.5, "budget": 1.0, "games": 3, "probes": 2, "archive_size": 1,
        "curriculum": {"window": 2, "grace": 2, "patience": 2, "first_steps": 20},
    },
}
CONFIG: dict[str, Any] = {
    "trainer": {
        "accelerator": "cpu", "enable_model_summary": False, "enable_progress_bar": False,
        "callbacks": [HARVEST, ROUTES],
    },
    "model": {
        # It wins against nobody in a few minutes, and loses to nobody.
        "network": "tests.support.bots.Reflex", "ppo": {"ppo_epochs": 1},
        "auxiliary": {"self_imitation": {"class_path": "self_imitation", "init_args": {"rows": 16}}},
    },
    "data": {
        "battle": {"deck": "starter"},
        "rollout": {"battles": 4, "rows_per_iteration": 192, "minibatch_rows": 96, "stagger": False},
        "opponents": {"mirror": 0.0, "scripted": 1.0, "scripted_opponents": ["noop"]},
    },
    "checkpoint": {"every": 1, "keep": -1},
}


def write(path: Path, *callbacks: dict[str, Any]) -> str:
    config = json.loads(json.dumps(CONFIG))
    if callbacks:
        config["trainer"]["callbacks"] = list(callbacks)
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Holds ``straight``, a run of :data:`ITERATIONS`; the working directory."""
    made = tmp_path_factory.mktemp("curriculum")
    before, judged = Path.cwd(), route_work.judge
    os.chdir(made)
    # Against the only opponent that an untrained network beats, waiting wins as well, once a tower has fallen.
    route_work.judge = lambda steps, passive, policy, games, **how: judged(
        steps, [0] * len(steps), policy, games, **how
    )
    try:
        config = write(made / "run.yaml")
        assert main(["fit", "--config", config, "--run_dir", "straight", "--stop.iterations", str(ITERATIONS)]) == 0
        yield made
    finally:
        os.chdir(before)
        route_work.judge = judged
        os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "straight" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_wins_are_archived_judged_and_walked(rows: list[dict[str, float]]) -> None:
    assert undeclared({k for r in rows for k in r}) == []
    last = rows[-1]
    assert last["curriculum/archived"] >= 1
    assert last["curriculum/judged"] >= 1
    assert last["curriculum/coverage"] == 1.0
    assert last["curriculum/routes"] >= 1
    served = sum(r["curriculum/served"] for r in rows)
    starved = sum(r["curriculum/starved"] for r in rows)
    assert served > 0
    assert served + starved == sum(r["curriculum/attempts"] for r in rows), "invariant 27"
    assert any("start/curriculum/episodes" in r for r in rows)
    for row in rows:
        assert sum(row.get(f"time/{p}", 0.0) for p in (*PARTS, "rest")) == pytest.approx(row["time/iteration"])


@pytest.mark.slow
def test_the_archive_is_shown_to_the_policy(rows: list[dict[str, float]]) -> None:
    assert rows[0]["auxiliary/self_imitation/rows_shown"] == 0
    assert rows[-1]["auxiliary/self_imitation/rows_shown"] == 16


@pytest.mark.slow
def test_no_restarted_battle_is_rated(folder: Path) -> None:
    log = [json.loads(line) for line in (folder / "straight" / "results.jsonl").read_text().splitlines()]
    assert {r["kind"] for r in log} == {"train"}, "judging a route is no evaluation"


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one(folder: Path) -> None:
    most = str(ITERATIONS - 2)
    assert main(["fit", "--config", "run.yaml", "--run_dir", "broken", "--stop.iterations", most]) == 0
    assert main(["fit", "--ckpt_path", "broken/checkpoints/last.ckpt", "--stop.iterations", str(ITERATIONS)]) == 0
    found = first_difference(folder / "straight", folder / "broken", range(1, ITERATIONS + 1), "stopped")
    assert found is None


# ---- demonstrations ----------------------------------------------------------------------------------------------
def shown_config(path: Path, opponents: dict[str, Any], **settings: Any) -> str:
    config = json.loads(json.dumps(CONFIG))
    shown = {"share": 0.6, "games": 4, "probes": 2, "archive_size": 1, "demonstrations": 4, **settings}
    config["trainer"]["callbacks"] = [
        {**HARVEST, "init_args": {"share": 0.0, "budget": 0.06}}, {**ROUTES, "init_args": shown},
    ]
    config["data"]["opponents"] = opponents
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.slow
def test_a_demonstrators_wins_are_walked_from_the_first_iteration_and_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    opponents = {"mirror": 0.0, "scripted": 1.0, "scripted_opponents": ["push"]}
    # Rungs at every decision, and some episodes anywhere on the won battles.
    # It is used once, so a resume does not look for it.
    shutil.copytree(SHIPPED["first_bot"], tmp_path / "teacher")
    config = shown_config(
        tmp_path / "run.yaml", opponents, demonstrator="teacher", share=0.4, bucket_share=0.2, budget=1.0,
        curriculum={"decision_granular": True},
    )
    try:
        assert main(["fit", "--config", config, "--run_dir", "whole", "--stop.iterations", "8"]) == 0
        assert "teacher showed 2 won battles to walk back" in capsys.readouterr().out, "one a seat"
        assert main(["fit", "--config", config, "--run_dir", "cut", "--stop.iterations", "6"]) == 0
        capsys.readouterr()
        shutil.rmtree(tmp_path / "teacher")
        assert main(["fit", "--ckpt_path", "cut/checkpoints/last.ckpt", "--stop.iterations", "8"]) == 0
        assert "showed" not in capsys.readouterr().out
    finally:
        os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    rows = [json.loads(line) for line in Path("whole/metrics.jsonl").read_text().splitlines()]
    assert rows[0]["curriculum/archived"] == rows[0]["curriculum/walking"] == rows[0]["curriculum/judged"] == 2
    assert sum(r["curriculum/starved"] for r in rows) == 0
    assert sum(r["curriculum/served"] for r in rows) > 0
    assert min(v for r in rows for k, v in r.items() if k.startswith("time/")) >= 0, "before the rows' clock began"
    assert sum(r.get("start/bucket/episodes", 0) for r in rows) > 0
    assert first_difference(Path("whole"), Path("cut"), range(1, 9), "stopped") is None


@pytest.mark.parametrize(
    ("opponents", "demonstrator", "says"),
    [
        ({"mirror": 0.0, "scripted": 1.0}, "nowhere", "RouteCurriculum.demonstrator: there is no bot at 'nowhere'"),
        ({"mirror": 1.0, "scripted": 0.0}, "first_bot", "needs a named opponent to win against, and the learner meets"),
    ],
)
def test_a_demonstrator_without_a_bot_or_an_opponent_is_refused(
    opponents: dict[str, Any], demonstrator: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    config = shown_config(tmp_path / "run.yaml", opponents, demonstrator=demonstrator)
    assert main(["fit", "--config", config, "--run_dir", "run", "--stop.iterations", "1"]) != 0
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


# ---- what is refused ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("callbacks", "says"),
    [
        ([ROUTES], "RouteCurriculum walks the routes that RestartHarvest mints; list RestartHarvest"),
        (
            [{**HARVEST, "init_args": {"share": 0.4}}, ROUTES],
            "the shares of pool 0.4, curriculum 0.5 and bucket 0.0 sum to 0.9",
        ),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    callbacks: list[dict[str, Any]], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write(tmp_path / "run.yaml", *callbacks)
    assert main(["fit", "--config", config, "--run_dir", "run", "--stop.iterations", "1"]) != 0
    os.environ.pop("ROYALE_LIGHTNING_RUN_DIR", None)
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"budget": 0.0}, "budget is 0.0"), ({"games": 0}, "games is 0; give at least 1"),
        ({"probes": 0}, "probes is 0"), ({"archive_size": 0}, "archive_size is 0"), ({"share": 0.9}, "becomes 0.9"),
        ({"demonstrations": 0}, "demonstrations is 0"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        RouteCurriculum(**settings)
