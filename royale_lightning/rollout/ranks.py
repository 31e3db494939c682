"""What one rank does for all of them, however long it takes and however it ends."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ..errors import UserError

#: Longest pause between two looks, seconds: short beside anything worth waiting for, and no load on the store.
_PAUSE = 0.1
_calls = itertools.count()


class RankZeroFailed(RuntimeError):
    """What rank 0 did for all ranks ended in an exception that is not for a user; it shows where it was raised."""


def on_rank_zero[T](make: Callable[[], T], leads: bool) -> T:
    """What ``make`` gives on rank 0, on every rank; all of them call at once, through the default process group.

    The others wait outside of any collective, so that no limit of the process group ends a run whose ladder plays for
    an hour, and they see signals meanwhile. A rank 0 that dies takes its connection with it, which raises here.

    Args:
        make: called on rank 0; its result can be pickled.
        leads: whether this is rank 0.

    Raises:
        UserError: ``make`` raised one: on every rank.
        RankZeroFailed: it raised anything else, on the other ranks; rank 0 raises what it was.
    """
    # The public names of torch have collectives alone. One key a call: a late rank must not take the next one's.
    store, key = distributed_c10d._get_default_store(), f"royale_lightning/on_rank_zero/{next(_calls)}"
    raised: BaseException | None = None
    told: list[Any] = [None]
    if leads:
        try:
            out = make()
            told = [("made", pickle.dumps(out))]
        except BaseException as failure:
            raised = failure
            told = [("refused", str(failure)) if isinstance(failure, UserError) else ("failed", repr(failure))]
        store.set(key, "")
    else:
        pause = 0.001
        while not store.check([key]):
            time.sleep(pause)
            pause = min(_PAUSE, 2 * pause)
    dist.broadcast_object_list(told, 0)
    if leads:
        store.delete_key(key)  # everybody has seen it
        if raised is not None:
            raise raised
        return out
    how, what = told[0]
    if how == "refused":
        raise UserError(what)
    if how == "failed":
        raise RankZeroFailed(f"rank 0 failed and with it all ranks: {what}")
    made: T = pickle.loads(what)
    return made
