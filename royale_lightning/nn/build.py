"""From a setting to a network whose weights depend on the seed alone and whose shapes have been checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..parts import Part, PartLike
from .protocol import ActorCritic, Inputs, StagedLogits
from .rows import unpack

#: Short names of the shipped networks.
NETWORKS = {
    "entity": "royale_lightning.nn.EntityNetwork",
    "conv": "royale_lightning.nn.ConvNetwork",
}

_WHERE = "model.network"
_CRITIC = "critic"


def build_network(part: PartLike, inputs: Inputs, seed: int) -> ActorCritic:
    """The network that ``part`` names, on the CPU.

    Its weights are a function of ``seed`` (and of the part) alone, and torch's global generator is left as it
    was. Two rows of zeros go through it once, so that a wrong shape is found here and not in the first update.

    Raises:
        UserError: the class cannot be found or takes other arguments, is no :class:`ActorCritic`, or returns
            logits or values of another shape or dtype than the action space asks for.
    """
    found = Part.of(part, _WHERE, NETWORKS)
    with seeded(seed):
        network: ActorCritic = found.build(_WHERE, inputs, kind=ActorCritic)
        # In the fork too: dropout of a user's network would draw.
        _check(network, inputs, found.class_path)
    return network


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator at ``seed`` while modules are built, and as it was afterwards: layers draw from it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _check(network: ActorCritic, inputs: Inputs, name: str) -> None:
    rows, a = torch.zeros(2, inputs.layout.row_bytes, dtype=torch.uint8), inputs.actions
    try:
        with torch.no_grad():
            out = network(unpack(rows, inputs.layout))
    except Exception as exc:
        fields = ", ".join(f.name for f in inputs.layout.fields)
        raise UserError(
            f"{_WHERE}: {name}.forward raised {type(exc).__name__}: {exc}; the observation has the fields {fields}"
        ) from exc
    if not isinstance(out, tuple) or len(out) != 2:
        raise UserError(f"{_WHERE}: {name}.forward returned {type(out).__name__}, expected the pair (logits, value)")
    logits, value = out
    if isinstance(logits, Tensor):
        _expect(logits, (2, a.n_actions), "flat logits", name)
    elif isinstance(logits, StagedLogits):
        _expect(logits.choice, (2, a.n_choices), "choice logits", name)
        _expect(logits.all_tiles(), (2, a.slots, a.tiles), "tile logits", name)
    else:
        raise UserError(
            f"{_WHERE}: {name}.forward returned logits of type {type(logits).__name__}, expected StagedLogits or a "
            f"tensor of shape [batch, {a.n_actions}]"
        )
    _expect(value, (2,), "value", name)


def _expect(x: Tensor, shape: tuple[int, ...], what: str, name: str) -> None:
    def text(s: tuple[int, ...]) -> str:
        return "[" + ", ".join(["batch", *map(str, s[1:])]) + "]"

    if tuple(x.shape) != shape:
        found = text(tuple(x.shape)) if x.shape[:1] == (2,) else str(list(x.shape))
        raise UserError(f"{_WHERE}: {name} returned {what} of shape {found}, expected {text(shape)}")
    if not x.dtype.is_floating_point:
        raise UserError(f"{_WHERE}: {name} returned {what} of dtype {x.dtype}, expected a floating-point tensor")
    if not bool(torch.isfinite(x).all()):
        raise UserError(f"{_WHERE}: {name} returned {what} that are not finite for a row of zeros")


def parameter_groups(network: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """``(actor, critic)`` by name: the critic's names begin with ``critic``, the shared trunk is the actor's."""
    named = dict(network.named_parameters())
    critic = {k: p for k, p in named.items() if k.startswith(_CRITIC)}
    return {k: p for k, p in named.items() if k not in critic}, critic


def actor_state_dict(network: nn.Module) -> dict[str, Tensor]:
    """What a snapshot keeps: every weight and buffer whose name does not begin with ``critic``, detached."""
    return {k: x.detach() for k, x in network.state_dict().items() if not k.startswith(_CRITIC)}
