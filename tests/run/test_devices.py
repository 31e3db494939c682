"""Precisions and strategies: taken, or refused with the reason."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy

from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.errors import UserError
from royale_lightning.run import devices


@pytest.mark.parametrize("precision", [None, 32, "32-true", "bf16-mixed"])
def test_precisions_taken(precision: object) -> None:
    devices.check_precision(precision)


@pytest.mark.parametrize(
    ("precision", "why"),
    [("bf16-true", "0.4 %"), ("16-mixed", "65,504"), ("16-true", "65,504"), ("64-true", "stored bytes"),
     ("transformer-engine", "not been tried")],
)
def test_precisions_refused(precision: str, why: str, tmp_path: object) -> None:
    with pytest.raises(UserError, match=rf"trainer.precision is {precision}.*{why}.*bf16-mixed"):
        complete({"precision": precision}, tmp_path)  # type: ignore[arg-type]


def test_strategies_taken() -> None:
    for strategy in (None, "auto", "ddp", DDPStrategy()):
        devices.check_strategy(strategy)


@pytest.mark.parametrize(
    ("strategy", "why"),
    [("fsdp", "shards weights"), ("deepspeed_stage_2", "shards weights"), ("ddp_spawn", "copying this process"),
     ("ddp_notebook", "copying this process"), ("xla", "not been tried")],
)
def test_strategies_refused(strategy: str, why: str, tmp_path: object) -> None:
    with pytest.raises(UserError, match=rf"trainer.strategy is {strategy}.*{why}.*use ddp"):
        complete({"strategy": strategy}, tmp_path)  # type: ignore[arg-type]


def test_a_trainer_made_by_hand_is_checked_too() -> None:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    for made in ({"precision": "bf16-true"}, {"strategy": "ddp_spawn", "devices": 2, "accelerator": "cpu"}):
        with pytest.raises(UserError, match=r"bf16-true|ddp_spawn"):
            devices.check_devices(Trainer(**{"accelerator": "cpu", **quiet, **made}))  # type: ignore[arg-type]
    devices.check_devices(Trainer(accelerator="cpu", precision="bf16-mixed", **quiet))  # type: ignore[arg-type]


def test_a_device_that_is_missing_is_refused_or_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(devices, "is_here", lambda name: name not in ("gpu", "cuda", "mps"))
    with pytest.raises(UserError, match=r"trainer.accelerator is cuda.*--trainer.accelerator cpu"):
        complete({"accelerator": "cuda"}, tmp_path)  # type: ignore[arg-type]
    made, said = devices.to_measure({"accelerator": "cuda", "devices": 4, "strategy": "ddp", "precision": "32"}, ())
    assert made == {"accelerator": "cpu", "devices": 1, "strategy": "auto", "num_nodes": 1, "precision": "32"}
    assert said is not None
    # What was typed is an order, and what needs no change gets none.
    assert devices.to_measure({"accelerator": "cuda", "devices": 4}, ("accelerator", "devices")) == (
        {"accelerator": "cuda", "devices": 4}, None
    )
    assert devices.to_measure({"accelerator": "auto", "devices": "auto"}, ()) == (
        {"accelerator": "auto", "devices": "auto"}, None
    )


def test_names_of_devices() -> None:
    for name in ("cpu", "auto", None, object()):
        assert devices.is_here(name)
    assert devices.is_here("cuda") == torch.cuda.is_available()


def test_autocast_keeps_no_stale_weights() -> None:
    """Two ways in which one autocast context would hand out old or graphless copies of the weights.

    Lightning 2.6 wraps a training step in autocast without the weight cache; with it, a forward after an optimizer
    step would use the weights of before, and a forward without gradient would leave the next one without any.
    """
    from lightning.pytorch.plugins.precision import MixedPrecision

    torch.manual_seed(0)
    layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    optimizer = torch.optim.SGD(layer.parameters(), 1.0)
    with MixedPrecision("bf16-mixed", "cpu").forward_context():
        with torch.no_grad():
            layer(x)
        layer(x).sum().backward()
        assert layer.weight.grad is not None, "the forward without gradient left its copies behind"
        before = layer(x)
        optimizer.step()
        after = layer(x)
    assert not torch.equal(before, after)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(after, layer(x))
