"""Train Clash Royale bots by self-play on the real RoyaleSim engine, the Lightning way.

Public names are resolved when first used, so that a worker process, the command line's help and a tool that needs
no network do not import torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Before torch loads OpenMP. Its threads spin while they wait for each other, so that one other busy process on the
# machine slowed an update 35 times; sleeping costs an update on a quiet machine under a tenth. Set it to ACTIVE there.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from .battle.spec import BattleSpec as BattleSpec
    from .bots.bot import Bot as Bot
    from .cli.trainer_defaults import defaults as defaults
    from .errors import UserError as UserError
    from .nn.protocol import ActorCritic as ActorCritic
    from .nn.protocol import Inputs as Inputs
    from .parts import part as part
    from .ppo.module import SelfPlayModule as SelfPlayModule
    from .ppo.settings import PPOSettings as PPOSettings
    from .rollout.data import SelfPlayData as SelfPlayData
    from .rollout.settings import OpponentShares as OpponentShares
    from .rollout.settings import RolloutSettings as RolloutSettings

_WHERE = {
    "ActorCritic": "nn.protocol",
    "BattleSpec": "battle.spec",
    "Bot": "ladder.bot",
    "Inputs": "nn.protocol",
    "OpponentShares": "rollout.settings",
    "PPOSettings": "ppo.settings",
    "RolloutSettings": "rollout.settings",
    "SelfPlayData": "rollout.data",
    "SelfPlayModule": "ppo.module",
    "UserError": "errors",
    "defaults": "trainer_defaults",
    "part": "parts",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
