"""The shipped configurations, read by the real command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from royale_lightning.cli import console as cli

CONFIGS = Path(__file__).parents[2] / "configs"


def dump(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as done:
        cli.main(["fit", *args, "--print_config"])
    assert not done.value.code
    return capsys.readouterr().out


#: Of fit; a sweep is W&B's.
OURS = [p for p in sorted(CONFIGS.rglob("*.yaml")) if p.parent.name != "sweeps"]


@pytest.mark.parametrize("path", OURS, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_shipped_configs_survive_a_round_trip(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = dump(capsys, "--config", str(path))
    (tmp_path / "dumped.yaml").write_text(first)
    assert dump(capsys, "--config", str(tmp_path / "dumped.yaml")) == first


def test_small_files_compose(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(CONFIGS / name) for name in ("debug.yaml", "trainer/gpu.yaml")]
    config = yaml.safe_load(dump(capsys, "--config", files[0], "--config", files[1]))
    assert config["trainer"]["precision"] == "bf16-mixed"
    assert config["trainer"]["enable_model_summary"] is False
    assert config["stop"]["iterations"] == 2
