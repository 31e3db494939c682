"""Networks: rows in, a masked distribution over actions and a value out. Start with ``README.md`` beside this."""

from __future__ import annotations

from .build import NETWORKS, actor_state_dict, build_network, parameter_groups
from .conv import ConvNetwork
from .distribution import MaskedCategorical
from .entity import EntityNetwork
from .protocol import ActorCritic, Inputs, Observation, StagedLogits

__all__ = [
    "NETWORKS",
    "ActorCritic",
    "ConvNetwork",
    "EntityNetwork",
    "Inputs",
    "MaskedCategorical",
    "Observation",
    "StagedLogits",
    "actor_state_dict",
    "build_network",
    "parameter_groups",
]
