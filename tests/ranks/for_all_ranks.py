"""One rank of two: asks rank 0 for a result, a mistake, a failure and more, and prints what it got of each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from royale_lightning.errors import UserError
from royale_lightning.run.ranks import Ranks
from royale_lightning.run.signals import StopNow

#: Of the process group's collectives.
LIMIT_S = 2.0


def slow() -> str:
    time.sleep(2.5 * LIMIT_S)
    return "slow"


def mistake() -> None:
    raise UserError("give another deck")


def failure() -> None:
    raise PermissionError(13, "Permission denied", "results.jsonl")


def stopped() -> None:
    raise StopNow(2)


def unsendable() -> Callable[[], None]:
    return lambda: None


def fine() -> dict[str, Any]:
    return {"pool": ["a"]}


if __name__ == "__main__":
    leads = os.environ["RANK"] == "0"
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_S))
    for make in (fine, slow, mistake, failure, stopped, unsendable, fine):
        try:
            print(make.__name__, Ranks(0 if leads else 1, 2).from_rank_zero(make), flush=True)
        except BaseException as exc:
            print(make.__name__, type(exc).__name__, exc, flush=True)
    dist.destroy_process_group()
    sys.exit(0)
