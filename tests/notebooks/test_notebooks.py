"""Every notebook runs from top to bottom in a real kernel, and is committed without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from royale_lightning.cli.console import main

CONFIGS = Path(__file__).parents[2] / "configs"
FOLDER = Path(__file__).parents[2] / "notebooks"
ALL = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    # In a copy, so that nothing a notebook writes stays beside it.
    shutil.copytree(FOLDER, tmp_path / "notebooks")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "notebooks")}}).execute()


def test_notebooks_are_committed_without_outputs() -> None:
    assert len(ALL) >= 5
    for path in ALL:
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), path.name
            assert cell.get("execution_count") is None, path.name


def test_every_parameter_of_the_sweep_is_a_flag_of_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """As W&B's agent writes them."""
    sweep = yaml.safe_load((CONFIGS / "sweeps" / "first_bot.yaml").read_text())
    given = {k: p.get("value", p.get("values", [p.get("min")])) for k, p in sweep["parameters"].items()}
    arguments = [f"--{k}={v[0] if isinstance(v, list) else v}" for k, v in given.items()]
    before = sweep["command"][1 : sweep["command"].index("${args}")]
    before[before.index("configs/first_bot.yaml")] = str(CONFIGS / "first_bot.yaml")
    with pytest.raises(SystemExit) as end:
        main([*before, *arguments, "--print_config"])
    assert end.value.code in (None, 0)
    shown = yaml.safe_load(capsys.readouterr().out)
    for key, value in given.items():
        at = shown
        for name in key.split("."):
            at = at[name]
        assert at == (value[0] if isinstance(value, list) else value)
