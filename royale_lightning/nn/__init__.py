"""Networks: rows in, a masked distribution over actions and a value out. Start with ``README.md`` beside this."""

from __future__ import annotations

from .build import NETWORKS, actor_state_dict, build_network, parameter_groups
from .conv import ConvNetwork
from .critic import CRITICS, Asymmetric, Critic, Hidden, build_critic
from .distribution import MaskedCategorical
from .entity import EntityNetwork
from .entity_critic import EntityCritic
from .protocol import ActorCritic, Inputs, Observation, StagedLogits

__all__ = [
    "CRITICS",
    "NETWORKS",
    "ActorCritic",
    "Asymmetric",
    "ConvNetwork",
    "Critic",
    "EntityCritic",
    "EntityNetwork",
    "Hidden",
    "Inputs",
    "MaskedCategorical",
    "Observation",
    "StagedLogits",
    "actor_state_dict",
    "build_critic",
    "build_network",
    "parameter_groups",
]
