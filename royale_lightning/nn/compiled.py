"""The network's forward in training, compiled for the one shape of a minibatch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ..run.screen import say
from .protocol import ActorCritic, Observation


def _keep_kernels() -> None:
    """Keep compiled kernels where a restart finds them: the system's temporary folder is emptied at every boot.

    Without a home that can be written to (a user id without an account, as containers run under) that folder, torch's
    own choice, is what remains.
    """
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "royale_lightning" / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
    except (RuntimeError, OSError):
        return
    if os.access(folder, os.W_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


class CompiledForward:
    """Calls a network's forward, compiled where that is possible.

    Only the network, never the training step, whose logging and loss do not compile. It compiles once, for the first
    batch size it meets, forwards and backwards; any other size runs uncompiled, because each would compile for a
    minute. Acting and training share the weights: this holds none, and adds nothing to a checkpoint.

    Args:
        network: brought to shapes that depend on the batch size alone (:meth:`ActorCritic.use_static_shapes`).
    """

    def __init__(self, network: ActorCritic) -> None:
        _keep_kernels()
        network.use_static_shapes()
        self._network = network
        self._compiled: Any = torch.compile(network.forward, dynamic=False)
        self._rows: int | None = None

    def __reduce__(self) -> tuple[type[CompiledForward], tuple[ActorCritic]]:
        """A copy compiles its own network anew: what was compiled belongs to this process and this one's weights."""
        return CompiledForward, (self._network,)

    def __call__(self, obs: Observation) -> Any:
        rows = obs["action_mask"].shape[0]
        if self._compiled is None or self._rows not in (None, rows):
            return self._network(obs)
        if self._rows is not None:
            return self._compiled(obs)
        self._rows = rows
        try:
            return self._compiled(obs)
        except Exception as problem:  # no C++ compiler, no Triton, or a network the compiler cannot take
            why = next((x for x in str(problem).splitlines() if x.strip()), type(problem).__name__)
            say(f"model.compile: the network runs uncompiled, because {why}")
            self._compiled = None
            return self._network(obs)
