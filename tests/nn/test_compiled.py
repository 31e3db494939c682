"""The compiled training forward: the same numbers, one compilation, and eager where nothing compiles."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from royale_lightning.nn.compiled import CompiledForward


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.static = False

    def use_static_shapes(self) -> None:
        self.static = True

    def forward(self, obs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(obs["x"])
        return y, y.sum(-1)


def batch(rows: int) -> dict[str, torch.Tensor]:
    return {"x": torch.ones(rows, 3), "action_mask": torch.ones(rows, 5, dtype=torch.bool)}


def test_one_shape_is_compiled_and_the_others_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def compiler(forward: object, dynamic: bool) -> object:
        assert not dynamic

        def run(obs: dict[str, torch.Tensor]) -> object:
            seen.append(len(obs["x"]))
            return forward(obs)  # type: ignore[operator]

        return run

    monkeypatch.setattr(torch, "compile", compiler)
    network = Twice()
    run = CompiledForward(network)  # type: ignore[arg-type]
    assert network.static
    for rows in (4, 2, 4):
        assert torch.equal(run(batch(rows))[0], network(batch(rows))[0])
    assert seen == [4, 4]


def test_without_a_compiler_it_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiler(forward: object, dynamic: bool) -> object:
        def run(obs: object) -> object:
            raise RuntimeError("\nNo working C++ compiler found")

        return run

    monkeypatch.setattr(torch, "compile", compiler)
    network = Twice()
    run = CompiledForward(network)  # type: ignore[arg-type]
    for _ in range(2):
        assert torch.equal(run(batch(4))[1], network(batch(4))[1])
    out = capsys.readouterr().out
    assert out == "model.compile: the network runs uncompiled, because No working C++ compiler found\n"


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_compiles_its_own_network(how: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda forward, dynamic: forward)
    network = Twice()
    twin, run = how((network, CompiledForward(network)))  # type: ignore[arg-type]
    assert run._network is twin
    assert run._compiled.__self__ is twin


@pytest.mark.skipif(sys.platform == "win32", reason="user ids")
@pytest.mark.parametrize("home", ["none", "a file", "writable"])
def test_kernels_are_kept_in_a_home_and_need_none(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setattr(torch, "compile", lambda forward, dynamic: forward)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "")  # brought back after the test, whatever is set meanwhile
        monkeypatch.delenv(name)
    if home == "none":
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    else:
        monkeypatch.setenv("HOME", str(tmp_path))
    if home == "a file":
        (tmp_path / ".cache").touch()
    CompiledForward(Twice())  # type: ignore[arg-type]
    kept = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    assert kept == (str(tmp_path / ".cache/royale_lightning/inductor") if home == "writable" else None)


@pytest.mark.slow
def test_the_real_compiler_gives_the_same_gradients() -> None:
    torch.manual_seed(0)
    network = Twice()
    run = CompiledForward(network)  # type: ignore[arg-type]
    run(batch(4))[1].square().sum().backward()
    got = [p.grad.clone() for p in network.parameters()]  # type: ignore[union-attr]
    network.zero_grad()
    network(batch(4))[1].square().sum().backward()
    for a, p in zip(got, network.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)
