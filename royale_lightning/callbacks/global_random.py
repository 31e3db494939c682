"""The global random generators of every rank, as plain values: ours never draw from them, a user's code may."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer


def random_state() -> dict[str, Any]:
    """States of Python's, numpy's and torch's global generators in this process."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    version, words, gauss_next = random.getstate()
    return {
        "python": [version, list(words), gauss_next],
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
    }


def gather_random_state(trainer: Trainer) -> list[dict[str, Any]]:
    """Of every rank, in rank order; called on all of them."""
    states: list[Any] = [random_state()]
    if trainer.world_size > 1:
        mine, states = states[0], [None] * trainer.world_size
        torch.distributed.all_gather_object(states, mine)
    return states


def set_random_state(trainer: Trainer, states: list[dict[str, Any]]) -> None:
    """Put this rank's generators where they stood; a run on another number of ranks or devices keeps its own."""
    if len(states) != trainer.world_size:
        return
    state = states[trainer.global_rank]
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
