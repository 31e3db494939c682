"""The first word: our tools and Lightning's subcommands."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.cli import console as cli


def test_help_and_version_need_neither_torch_nor_lightning() -> None:
    code = (
        "import sys; from royale_lightning.cli.console import main; assert main(['--help']) == 0; "
        "assert main(['--version']) == 0; "
        "assert not {'torch', 'lightning', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fit " in done.stdout
    assert "royale-lightning 0." in done.stdout


def test_help_of_every_tool_is_light() -> None:
    code = (
        "import sys; from royale_lightning.cli.console import TOOLS, main\n"
        "for tool in TOOLS:\n"
        "    try:\n        main([tool, '--help'])\n"
        "    except SystemExit:\n        pass\n"
        "    assert not {'torch', 'lightning'} & set(sys.modules), tool\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_lists_both_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ("royale_lightning.errors", "check something")
    monkeypatch.setattr(cli, "TOOLS", {"doctor": there, "gate": ("royale_lightning.tools.absent", "x")})
    text = cli.help_text()
    assert "predict" in text
    assert "check something" in text
    assert "gate" not in text, "a tool that is not there is not listed"


def test_a_tool_gets_the_rest_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    tool = types.ModuleType("a_tool")
    tool.main = lambda argv: seen.append(argv) or 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_tool", tool)
    monkeypatch.setattr(cli, "available_tools", lambda: {"doctor": ("a_tool", "check")})
    assert cli.main(["doctor", "--json", "x"]) == 7
    assert seen == [["--json", "x"]]


def test_the_first_battle_after_an_install_says_why_it_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = types.ModuleType("a_tool")
    tool.main = lambda argv: 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_tool", tool)
    monkeypatch.setattr(cli, "available_tools", lambda: {"play": ("a_tool", ""), "rate": ("a_tool", "")})
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "cli/console.py"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    kept = tmp_path / "battle" / "engine" / "__pycache__"
    kept.mkdir(parents=True)

    def said(*argv: str) -> bool:
        assert cli.main(list(argv)) == 0
        return "compiled now" in capsys.readouterr().out

    assert said("play")
    assert not said("rate"), "it plays nothing"
    assert not said("play", "--help")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not said("play"), "nobody here knows what lies there"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    (kept / "state_json.read_state-423.py312.nbi").touch()
    assert not said("play")


def test_no_word_and_a_wrong_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["fitt"]) == 2
    assert "did you mean 'fit'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fit --trainer.max_epoch 3", "there is no setting 'trainer.max_epoch'; did you mean 'max_epochs'"),
        ("fit --model.ppo.gama 3", "there is no setting 'model.ppo.gama'; did you mean 'gamma'?"),
        ("fit --config 'model: {ppo: {gama: 3}}'", "there is no setting 'model.ppo.gama'; did you mean 'gamma'?"),
        ("fit --config 'modell: {x: 3}'", "there is no setting 'modell'; did you mean 'model'?"),
        ("fit --config 'trainer: {callbacks: {class_path: EarlyStopping, init_args: {foo: 1}}}'", "'foo'"),
        ("fit --config 'trainer: ['", "the configuration is not valid YAML"),
        ("fit --config 'trainer: {callbacks: [{class_path: a.Foo}]}'", "'a.Foo'"),
        ("fit --config nofile.yaml", "there is no configuration file"),
        ("fit extra", "the argument 'extra' belongs to no setting"),
        ("fit --model.ppo.gamma -1", "ppo.gamma is -1.0; it must lie between 0 and 1"),
        ("fit --data.battles 0", "battle.battles is 0; at least 1 battle is needed"),
        ("fit --trainer.max_epochs abc", "trainer.max_epochs is 'abc': expected null or int"),
        ("fit --trainer.max_time 00:00:01:00", "max_time stops in the middle of an iteration; use StopAfter(minutes"),
        ("fit --trainer.max_steps 5", "max_steps stops in the middle"),
        ("fit --trainer.limit_val_batches 2", "limit_val_batches must be 0 in fit"),
        ("fit --trainer.reload_dataloaders_every_n_epochs 1", "reload_dataloaders_every_n_epochs"),
        ("fit --trainer.overfit_batches 1", "overfit_batches trains on"),
        ("fit --trainer.overfit_batches 0.5", "overfit_batches trains on"),
        ("fit --trainer.limit_train_batches 0", "limit_train_batches is 0,"),
        ("fit --trainer.limit_train_batches 1", "limit_train_batches is 1,"),
        ("fit --trainer.limit_train_batches 0.5", "limit_train_batches is 0.5,"),
        ("fit --trainer.max_epochs 0", "trainer.max_epochs is 0, so nothing would be trained"),
        ("test --out here --trainer.limit_test_batches 0", "limit_test_batches is 0, so nothing would be played"),
        ("predict --out here --trainer.limit_predict_batches 0.0", "limit_predict_batches is 0, so nothing"),
        ("fit --trainer.devices 0", "devices"),
        ("fit --checkpoint.every 0", "checkpoint.every is 0; it must be at least 1"),
        ("fit --stop.minutes -1", "stop.minutes is -1.0; it must be greater than 0"),
        ("fit --ckpt_path nope.ckpt", "ckpt_path is 'nope.ckpt', but there is no file"),
        ("fit --ckpt_path best", "ckpt_path is 'best', but there is no file"),
        ("test", "test needs --ckpt_path"),
        ("test --out here --games 0", "games is 0; at least 1 must be played"),
    ],
)
def test_a_mistake_is_one_sentence(royale: Callable[[str], Any], tmp_path: Any, line: str, told: str) -> None:
    assert told in royale(line).error
    assert not (tmp_path / "runs").exists(), "a mistake leaves no run folder behind"


def test_the_hidden_traceback_can_be_had(royale: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSONARGPARSE_DEBUG", "true")
    assert "Traceback" in royale("fit --data.battles 0").err
