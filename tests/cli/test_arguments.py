"""What is typed wins over files wherever it stands, and reaches into parts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.cli import arguments
from royale_lightning.cli.console import main
from royale_lightning.parts import PartSetting

CONFIG = str(Path(__file__).parents[2] / "configs" / "debug.yaml")
KNOWN = ["stop", "stop.iterations", "data", "data.rollout", "data.rollout.battles", "loggers", "ckpt_path"]

_GROUPS = st.sampled_from([
    ["--stop.iterations", "3"], ["--stop.iterations=4"], ["--config", "a.yaml"], ["-c", "b.yaml"], ["--config=c.yaml"],
    ["--data", "{}"], ["--data.rollout={}"], ["--data.rollout.battles", "-1"], ["--loggers", "csv", "wandb"],
    ["--trainer.callbacks+=A"], ["--trainer.callbacks.init_args.x=1"], ["--allow_drift"],
])


@given(st.lists(_GROUPS))
def test_files_then_sections_then_settings_each_in_its_order(groups: list[list[str]]) -> None:
    args = [word for group in groups for word in group]
    found = arguments.options(arguments.in_order(args, KNOWN))
    assert sorted(found) == sorted(groups), "nothing is lost or torn apart"
    kinds = [
        [g for g in found if g[0].startswith(("--config", "-c"))],
        [g for g in found if g[0] == "--data"],
        [g for g in found if g[0].startswith("--data.rollout=")],
    ]
    rest = [g for g in found if not any(g in kind for kind in kinds)]
    assert found == [*kinds[0], *kinds[1], *kinds[2], *rest]
    for kind in (*kinds, rest):
        assert kind == [g for g in groups if g in kind]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The configuration that ``fit`` would start with."""
    with pytest.raises(SystemExit) as ended:
        main(["fit", *words, "--print_config"])
    assert ended.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_an_option_before_the_file_wins_too(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(
        capsys, "--stop.iterations", "7", "--data.rollout.battles", "6",
        "--data", "{rollout: {battles: 3, workers: 2}}", "--config", CONFIG,
    )
    assert made["stop"]["iterations"] == 7
    assert (made["data"]["rollout"]["battles"], made["data"]["rollout"]["workers"]) == (6, 2)
    assert made["data"]["rollout"]["rows_per_iteration"] == 128, "the rest is the file's"


def test_options_reach_into_parts(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(
        capsys, "--model.network.init_args.width", "32", "--data.battle.reward.tower=2e-1", "--config", CONFIG,
        "--model.auxiliary.near.class_path", "kl_to_reference", "--model.auxiliary.near.bot", "first_bot",
        "--data.opponents.matchmaker.init_args.depth", "{a: [1, 2]}",
    )
    assert made["model"]["network"] == {"class_path": "entity", "init_args": {"width": 32, "layers": 1, "heads": 2}}
    assert made["data"]["battle"]["reward"] == {"class_path": "tower_result", "init_args": {"tower": 0.2}}
    assert made["model"]["auxiliary"] == {"near": {"class_path": "kl_to_reference", "init_args": {"bot": "first_bot"}}}
    assert made["data"]["opponents"]["matchmaker"] == {"class_path": "mix", "init_args": {"depth": {"a": [1, 2]}}}
    # Another class has other arguments.
    made = printed(capsys, "--config", CONFIG, "--model.network.class_path", "conv", "--model.network.width", "8")
    assert made["model"]["network"] == {"class_path": "conv", "init_args": {"width": 8}}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model.network.init_args.widht", "32"], "did you mean 'width'?"),
        (["--model.network.init_args", "{width: 32}"], "--model.network.init_args sets nothing by itself"),
        (["--model.network.init_args.width.x", "32"], "model.network has no settings below 'init_args.width'"),
        (["--model.network.width"], "--model.network.width has 0 values; give it one"),
        (["--model.network.width", "[1"], "model.network: '[1' is not valid YAML"),
        (["--data.battle.start.x", "1"], "data.battle.start names no class that could take 'x'"),
        (["--data.battle.arena.x", "1"], "no setting 'data.battle.arena.x': data.battle.arena is a single value"),
        (["--data.battle.deck.x", "1"], "battle.deck has the unknown key 'x'; it takes own"),
        (["--alarms.extra.x", "1"], "alarms.extra is a list of parts"),
        (
            ["--trainer.callbacks+=SnapshotPromotion", "--trainer.callbacks.init_args.gate.init_args.x=3"],
            "write --trainer.callbacks.init_args.gate '{class_path: ..., init_args: {...}}'",
        ),
    ],
)
def test_what_cannot_be_reached_says_how(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", CONFIG, *words]) == 2
    (error,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
    assert told in error
    assert "NestedArg" not in error
    assert "PartSetting" not in error
    assert not list(tmp_path.iterdir())


def test_a_part_that_is_changed_stays_the_files_own() -> None:
    given_part = PartSetting({"class_path": "entity", "init_args": {"layers": 1}})
    made = arguments.with_setting(given_part, "model.network", ["init_args", "layers"], "2", many=False)
    assert made["init_args"] == {"layers": 2}
    assert given_part.value == {"class_path": "entity", "init_args": {"layers": 1}}


def test_a_gpu_runs_folder_is_measured_on_a_machine_without_one(
    royale: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("royale_lightning.run.devices.is_here", lambda name: name != "gpu")
    assert royale("fit --run_dir run --stop.iterations 1").code == 0
    config = Path("run/config.yaml")
    text = config.read_text()
    changed = text.replace("accelerator: auto", "accelerator: gpu").replace("devices: auto", "devices: [0, 3]")
    config.write_text(changed.replace("strategy: auto", "strategy: ddp"))
    assert config.read_text().count("gpu") == 1
    done = royale("test --ckpt_path run --games 2")
    assert done.code == 0, done.err
    assert "the run trained on gpu, and torch finds none on this machine: playing on the CPU" in done.out
    assert Path("run/scores.json").exists()
    asked = royale("test --ckpt_path run --games 2 --trainer.accelerator gpu").error
    assert "give --trainer.accelerator cpu" in asked
    assert "trainer.accelerator is gpu" in royale("fit --ckpt_path run --stop.iterations 2").error


def test_lightning_greets_nobody(royale: Callable[[str], Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert royale("fit --run_dir run --stop.iterations 1").code == 0
        assert royale("test --ckpt_path run --games 2").code == 0
    said = [r.getMessage() for r in caplog.records]
    assert any("Loaded model weights" in x for x in said), "what is news is still said"
    assert not [x for x in said if "available" in x or "Seed set" in x or "💡" in x], said
