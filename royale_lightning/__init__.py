"""Train Clash Royale bots by self-play on the real RoyaleSim engine, the Lightning way.

Public names are resolved when first used, so that a worker process, the command line's help and a tool that needs
no network do not import torch.
"""

import os

import lazy_loader

# Before torch loads OpenMP. Its threads spin while they wait for each other, so that one other busy process on the
# machine slowed an update 35 times; sleeping costs an update on a quiet machine under a tenth. Set it to ACTIVE there.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
