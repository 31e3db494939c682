"""The processes that train one network together, and what they tell each other."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.distributed import distributed_c10d

from ..errors import UserError

T = TypeVar("T")


class Ranks:
    """The processes of a run, from where one of them stands; alone without arguments.

    Every collective of ours is a method of this class: all ranks call it at once, or those that did wait for ever.

    Args:
        rank: of this process, from 0.
        world_size: how many there are.
        device: this rank's, where tensors are exchanged: NCCL knows no other.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, device: torch.device | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device or torch.device("cpu")

    @classmethod
    def of(cls, trainer: Trainer | None) -> Ranks:
        """A Trainer's; alone before there is one."""
        if trainer is None or trainer.world_size == 1:
            return cls()
        return cls(trainer.global_rank, trainer.world_size, trainer.strategy.root_device)

    @property
    def alone(self) -> bool:
        return self.world_size == 1

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes files and decides for all."""
        return self.rank == 0

    def sum(self, x: Tensor) -> Tensor:
        """``x`` summed over ranks, in place; any shape, the same on every rank."""
        if not self.alone:
            torch.distributed.all_reduce(x)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """The largest of the ranks' ``x`` by element, in place; any shape, the same on every rank."""
        if not self.alone:
            torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MAX)
        return x

    def total(self, number: int) -> int:
        """A whole number up to 2^53 summed over ranks."""
        if self.alone:
            return number
        return int(self.sum(torch.tensor(float(number), dtype=torch.float64, device=self.device)).item())

    def any(self, here: bool) -> bool:
        """Whether it is so on any rank: what one alone did, such as to stop, would leave the others waiting for it."""
        return self.total(int(here)) > 0

    def gather(self, mine: T) -> list[T]:
        """Every rank's, in the order of ranks; anything that can be pickled."""
        if self.alone:
            return [mine]
        found: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(found, mine)
        return found

    def joined(self, mine: list[T]) -> list[T]:
        """The lists of all ranks, one after the other."""
        return [x for part in self.gather(mine) for x in part]

    def from_rank_zero(self, make: Callable[[], T]) -> T:
        """What ``make`` gives on rank 0, on every rank, however long it takes and however it ends.

        The others wait outside of any collective, so that no limit of the process group ends a run whose ladder plays
        for an hour, and they see signals meanwhile. A rank 0 that dies takes its connection with it, which raises here.

        Args:
            make: called on rank 0 alone; its result can be pickled.

        Raises:
            UserError: ``make`` raised one: on every rank.
            RankZeroFailed: it raised anything else, on the other ranks; rank 0 raises what it was.
        """
        return make() if self.alone else _on_rank_zero(make, self.leads)

    def wait(self) -> None:
        """Return when every rank is here."""
        if not self.alone:
            ids = [self.device.index] if self.device.type == "cuda" else None
            torch.distributed.barrier(device_ids=ids)


class RankZeroFailed(RuntimeError):
    """What rank 0 did for all ranks ended in an exception that is not for a user; it shows where it was raised."""


#: Longest pause between two looks, seconds: short beside anything worth waiting for, and no load on the store.
_PAUSE = 0.1
_calls = itertools.count()


def _on_rank_zero[S](make: Callable[[], S], leads: bool) -> S:
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
    torch.distributed.broadcast_object_list(told, 0)
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
    made: S = pickle.loads(what)
    return made
