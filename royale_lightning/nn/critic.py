"""A critic apart from the actor, which may know what the actor's seat does not see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from ..battle.rows.hidden import HIDDEN_BYTES, HIDDEN_FIELDS
from ..errors import UserError
from ..parts import Part, PartLike
from .build import seeded
from .protocol import ActorCritic, Inputs, Observation, StagedLogits
from .rows import unpack

#: Short names of the shipped critics.
CRITICS = {"entity": "royale_lightning.nn.EntityCritic"}
#: What the critic's batch holds beside the observation: uint8 ``[B, HIDDEN_BYTES]``, where somebody reads it.
HIDDEN = "hidden"

#: Fields of ``battle.rows.hidden`` by name, uint8 ``[B, n]``.
Hidden = dict[str, Tensor]


def hidden_fields(hidden: Tensor) -> Hidden:
    """``battle.rows.hidden.HIDDEN_FIELDS`` of uint8 ``[B, HIDDEN_BYTES]``."""
    return {name: hidden[:, at : at + n] for name, (at, n) in HIDDEN_FIELDS.items()}


class Critic(nn.Module, ABC):
    """A value network of its own, in training alone: no bot holds it.

    Write ``__init__(self, inputs: Inputs, **your_settings)`` and :meth:`forward`; name it in ``model.critic``. The
    actor never gets ``hidden``; that is why the two are apart.
    """

    @abstractmethod
    def forward(self, obs: Observation, hidden: Hidden) -> Tensor:
        """Values float ``[B]``.

        Args:
            obs: what the seat sees, as a network gets it.
            hidden: what it does not, :func:`hidden_fields`.
        """


def build_critic(part: PartLike, inputs: Inputs, seed: int) -> Critic:
    """The critic that ``part`` names, on the CPU; its weights are a function of ``seed`` alone.

    Raises:
        UserError: it is no :class:`Critic`, takes other arguments, raises, or gives values of another shape.
    """
    where = "model.critic"
    found = Part.of(part, where, CRITICS)
    with seeded(seed):
        critic: Critic = found.build(where, inputs, kind=Critic)
        obs = unpack(torch.zeros(2, inputs.layout.row_bytes, dtype=torch.uint8), inputs.layout)
        try:
            with torch.no_grad():
                value = critic(obs, hidden_fields(torch.zeros(2, HIDDEN_BYTES, dtype=torch.uint8)))
        except Exception as exc:
            raise UserError(f"{where}: {found.class_path}.forward raised {type(exc).__name__}: {exc}") from exc
    if not isinstance(value, Tensor) or value.shape != (2,) or not value.dtype.is_floating_point:
        shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise UserError(f"{where}: {found.class_path} returned {shape} for two rows; give floats of shape [batch]")
    return critic


class Asymmetric(ActorCritic):
    """An actor, and a critic that knows more, as one network: logits from the one, :meth:`value` from the other.

    ``forward`` gives the actor's own idea of the value, which nobody needs to wait for while acting: a rollout's values
    are asked for once, all rows together.
    """

    def __init__(self, actor: ActorCritic, critic: Critic) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic

    def forward(self, obs: Observation) -> tuple[StagedLogits | Tensor, Tensor]:
        logits, value = self.actor(_seen(obs))
        return logits, value

    def value(self, obs: Observation) -> Tensor:
        """Values ``[B]`` of observations with :data:`HIDDEN` beside them."""
        return cast(Tensor, self.critic(_seen(obs), hidden_fields(obs[HIDDEN])))


def _seen(obs: Observation) -> Observation:
    return {name: x for name, x in obs.items() if name != HIDDEN}
