"""``royale-lightning doctor``: a healthy machine is ok, and each planted ill is found and named."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from royale_lightning.battle.prepare import prepare
from royale_lightning.battle.steps.game import Game
from royale_lightning.cli import console as cli
from royale_lightning.errors import UserError
from royale_lightning.nn.build import build_network
from royale_lightning.nn.protocol import ActorCritic, Inputs
from royale_lightning.tools import doctor
from royale_lightning.tools.doctor import forecasts, installation
from royale_lightning.tools.doctor.patient import Patient

SMALL: dict[str, Any] = {
    "trainer": {"accelerator": "cpu"},
    "model": {"network": {"class_path": "entity", "init_args": {"width": 16, "layers": 1, "heads": 2}}},
    "data": {
        "battle": {"max_ticks": 300},
        "rollout": {"battles": 2, "rows_per_iteration": 64, "minibatch_rows": 32, "source": "inline"},
    },
}


class Moody(ActorCritic):
    """Answers otherwise in training than in collection."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inner = build_network(SMALL["model"]["network"], inputs, 1)

    def forward(self, obs: dict[str, torch.Tensor]) -> Any:
        logits, value = self.inner(obs)
        return logits._replace(choice=logits.choice * (2.0 if self.training else 1.0)), value


@pytest.fixture(scope="module")
def patient() -> Patient:
    return Patient(SMALL)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_MASK_SECONDS", 0.5)
    monkeypatch.setattr(installation, "_MASK_PLAYS", 20)


def told(check: Callable[[Patient], str], patient: Patient) -> str:
    with pytest.raises(UserError) as caught:
        check(patient)
    return str(caught.value)


def test_a_healthy_machine_passes_and_the_result_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.json").write_text(json.dumps(SMALL))
    code = cli.main(["doctor", "--config", "small.json", "--json", "out.json"])
    written = json.loads(Path("out.json").read_text())
    assert (written["schema"], written["tool"], written["inputs"]) == (1, "doctor", {"config": "small.json"})
    checks = written["result"]["checks"]
    assert [c["name"] for c in checks] == [c.__name__ for c in doctor.CHECKS]
    assert {k for c in checks for k in c} == {"name", "ok", "detail"}
    assert all(c["ok"] for c in checks), [c for c in checks if not c["ok"]]
    assert code == 0
    out = capsys.readouterr().out
    assert all(c["detail"] in out for c in checks)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.json", "small.json"], "nothing else is left behind"


def test_one_failed_check_does_not_hide_the_others() -> None:
    settings = {**SMALL, "data": {**SMALL["data"], "battle": {"deck": ["Knigth", *"abcdefg"]}}}
    checks = {c.name: c for c in doctor.examine(settings)}
    assert checks["engine"].ok
    assert not checks["cards"].ok
    assert "did you mean 'Knight'" in checks["cards"].detail
    assert checks["gpu"].ok


def test_a_package_of_another_version_is_named(monkeypatch: pytest.MonkeyPatch, patient: Patient) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda n: "2.4.0" if n == "lightning" else real(n))
    assert "lightning is 2.4.0 and must be" in told(installation.versions, patient)


def test_a_mask_that_allows_too_much_is_found(monkeypatch: pytest.MonkeyPatch, patient: Patient) -> None:
    from royale_lightning.battle.steps.fast_game import FastGame

    whole = FastGame.encode

    def encode(self: Game, seat: int, out: Any) -> None:
        whole(self, seat, out)  # type: ignore[arg-type]
        out[prepare(patient.data.battle).row_layout.offsets["action_mask"] :] = 255

    monkeypatch.setattr(FastGame, "encode", encode)
    assert "plays that the mask allowed" in told(installation.mask, patient)


def test_a_network_that_differs_in_training_is_found() -> None:
    settings = {**SMALL, "model": {"network": {"class_path": f"{__name__}.Moody"}}}
    assert "probabilities in training are off by" in told(installation.ratio, Patient(settings))


def test_too_little_memory_disk_or_shared_memory_is_said(
    monkeypatch: pytest.MonkeyPatch, patient: Patient, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as m:
        m.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
        assert "lower rollout.battles" in told(forecasts.memory, patient)
    with monkeypatch.context() as m:
        m.setattr(forecasts.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        assert "checkpoint.keep" in told(forecasts.disk, patient)
        many = dataclasses.replace(patient)
        many.__dict__["processes"] = 2
        assert "--shm-size" in told(forecasts.shared_memory, many)


def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert "sees no such device" in told(forecasts.gpu, Patient({"trainer": {"accelerator": "gpu"}}))


def test_a_worker_is_weighed_where_there_are_workers() -> None:
    rollout = {**SMALL["data"]["rollout"], "source": "processes", "workers": 2}
    found = forecasts.memory(Patient({**SMALL, "data": {**SMALL["data"], "rollout": rollout}}))
    assert "2 workers of" in found
    assert int(found.split("workers of ")[1].split(" MB")[0]) > 30
