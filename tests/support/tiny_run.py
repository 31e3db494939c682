"""Small stand-ins with the attributes the command line and the callbacks rely on: four minibatches an iteration."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor
from torch.utils.data import IterableDataset

from royale_lightning.errors import UserError

MINIBATCHES = 4
STEPS = 100  # game steps per iteration


@dataclass(frozen=True)
class PPOSettings:
    """Settings as the real ones are: frozen, checked when made.

    Args:
        gamma: discount per game step.
        learning_rate: of the optimizer.
    """

    gamma: float = 0.99
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise UserError(f"ppo.gamma is {self.gamma}; it must lie between 0 and 1")


@dataclass(frozen=True)
class Episode:
    """What of an EpisodeRecord the progress display reads."""

    players: tuple[str, str]
    winner: int
    staggered: bool = False
    from_true_start: bool = True

    def score(self, seat: int) -> float | None:
        if self.winner < 0:
            return None
        return 0.5 if self.winner == 2 else float(self.winner == seat)


class TinyModule(LightningModule):
    """One linear layer; writes down the events whose order matters."""

    def __init__(self, network: str | dict = "entity", ppo: PPOSettings = PPOSettings()) -> None:
        super().__init__()
        self.save_hyperparameters({"network": network, "ppo": asdict(ppo)})
        self.settings = ppo
        self.layer = torch.nn.Linear(2, 1)
        self.events: list[str] = []
        self.extra: dict[str, float] = {}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.settings.learning_rate)

    def on_train_epoch_start(self) -> None:
        self.events.append("epoch start")

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.events.append(f"step {batch_idx}")
        return self.layer(batch).square().mean()

    def on_train_epoch_end(self) -> None:
        self.events.append("epoch end")

    def iteration_metrics(self) -> dict[str, float]:
        self.events.append("metrics")
        return {"loss": 0.5, **self.extra}

    def test_step(self, batch: Tensor, batch_idx: int) -> None:
        pass

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        pass


class TinyDataset(IterableDataset):
    """Sized; the generator collects first, yields minibatches, and may return early."""

    def __init__(self, data: TinyData) -> None:
        self.data = data

    def __len__(self) -> int:
        return MINIBATCHES

    def __iter__(self) -> Iterator[Tensor]:
        data = self.data
        data.log("collect")
        data.game_steps += STEPS
        data.iteration += 1
        for i in range(MINIBATCHES):
            if data.stop_early_at == (data.iteration, i):
                return
            if (data.iteration, i) == (data.signal_at, 1):
                for _ in range(data.signals):
                    os.kill(os.getpid(), getattr(signal, data.signal_name))
            yield torch.full((3, 2), float(data.iteration))
        data.log("after the last yield")


class TinyData(LightningDataModule):
    """Args:
    battles: how many; at least 1.
    signal_at: iteration in whose middle the process signals itself.
    signals: how often.
    signal_name: SIGINT or SIGTERM.
    """

    def __init__(
        self,
        battles: int = 2,
        signal_at: int = 0,
        signals: int = 1,
        signal_name: str = "SIGINT",
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        if battles < 1:
            raise UserError(f"battle.battles is {battles}; at least 1 battle is needed")
        self.seed = seed
        self.signal_at, self.signals, self.signal_name = signal_at, signals, signal_name
        self.stop_early_at: tuple[int, int] | None = None
        self.game_steps = 0
        self.iteration = 0
        self.played: list[Any] = []
        self.episodes = [Episode(("learner", "scripted:push"), 0), Episode(("scripted:push", "learner"), 2)]

    def identity_fields(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def log(self, event: str) -> None:
        if self.trainer is not None:
            self.trainer.lightning_module.events.append(event)

    def train_dataloader(self) -> TinyDataset:
        return TinyDataset(self)

    def test_dataloader(self) -> list[Tensor]:
        measure: Any = self.measure  # type: ignore[attr-defined]
        Path(measure.out).mkdir(exist_ok=True)
        (Path(measure.out) / "scores.json").write_text(f"{measure.stage} {measure.games} {measure.seed}")
        return [torch.zeros(1, 2)]

    val_dataloader = test_dataloader

    def iteration_metrics(self) -> dict[str, float]:
        return {"rows": 12.0, "absent": float("nan")}

    def state_dict(self) -> dict[str, Any]:
        return {"game_steps": self.game_steps, "iteration": self.iteration}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.game_steps = state_dict["game_steps"]
        self.iteration = state_dict["iteration"]


def main(argv: list[str]) -> int:
    """The command line over the stand-ins."""
    from royale_lightning.cli import console as cli
    from royale_lightning.cli import trainer_cli

    real = trainer_cli.run
    trainer_cli.run = lambda args: real(args, TinyModule, TinyData)
    try:
        return cli.main(argv)
    finally:
        trainer_cli.run = real


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
