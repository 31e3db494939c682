"""Many frozen actors in one forward: the opponents of a round of training.

A round of 96 battles asks some 15 snapshots for one or two decisions each. One forward per snapshot is then all
overhead, so networks of one architecture run as one, their weights stacked and mapped by ``torch.func.vmap``.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..battle.prepare import prepare
from ..battle.spec import BattleSpec
from ..nn import actor_state_dict
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic, Observation, StagedLogits
from ..nn.rows import unpack
from .bot_files import Weights
from .snapshots import SnapshotStore

#: Distinct snapshots in a round from which one mapped forward is faster than one forward each. Default network, one
#: core, forwards alone: 4 snapshots 11 ms each against 13 mapped, 8: 22 and 17, 16: 40 and 22, 24: 60 and 27.
STACK_FROM = 5
#: Snapshots kept in memory beyond those in play; reading and checking one takes some 3 ms.
KEEP = 16

Logits = StagedLogits | Tensor


@dataclass
class _Architecture:
    """What snapshots of one network setting share.

    Attributes:
        each: runs one snapshot's rows by the network's own path. Its critic, which no snapshot has, answers nobody.
        mapped: runs many at once, or None where vmap cannot map the network.
    """

    each: ActorCritic
    mapped: ActorCritic | None


@dataclass(frozen=True)
class _Stack:
    """Weights of snapshots of one architecture.

    Attributes:
        at: place of each id.
        weights: every tensor of the actor, ``[N, ...]``.
    """

    at: dict[str, int]
    weights: Weights

    @classmethod
    def of(cls, weights: Mapping[str, Weights]) -> _Stack:
        each = list(weights.values())
        return cls({s: i for i, s in enumerate(weights)}, {k: torch.stack([w[k] for w in each]) for k in each[0]})

    def pick(self, snapshots: Sequence[str]) -> Weights:
        """Of these, in this order, one of them more than once too; a copy unless they are all there are."""
        if list(snapshots) == list(self.at):
            return self.weights
        at = torch.tensor([self.at[s] for s in snapshots]).to(next(iter(self.weights.values())).device)
        return {k: x.index_select(0, at) for k, x in self.weights.items()}


class FrozenActors:
    """Plays every snapshot of a store, by id.

    Args:
        store: where they lie.
        spec: the battles they play.
        device: where they run.
    """

    def __init__(self, store: SnapshotStore, spec: BattleSpec, device: torch.device) -> None:
        self.store = store
        self.layout, self.actions = prepare(spec).row_layout, prepare(spec).action_layout
        self.device = device
        self._loaded: OrderedDict[str, tuple[str, Weights]] = OrderedDict()
        self._architectures: dict[str, _Architecture] = {}
        self._stacks: dict[str, _Stack] = {}

    def require(self, in_play: Collection[str]) -> None:
        """Have these snapshots in memory, and of others only the :data:`KEEP` last used.

        Raises:
            UserError: one is missing, damaged or does not fit.
        """
        for snapshot in sorted(in_play):
            if snapshot not in self._loaded:
                self._loaded[snapshot] = self._load(snapshot)
            self._loaded.move_to_end(snapshot)
        while len(self._loaded) > len(in_play) + KEEP:
            self._loaded.popitem(last=False)
        # So that the stacks are never larger than what is loaded.
        self._stacks = {key: stack for key, stack in self._stacks.items() if stack.at.keys() <= self._loaded.keys()}

    @property
    def loaded(self) -> tuple[str, ...]:
        """Ids in memory, least recently used first."""
        return tuple(self._loaded)

    def _load(self, snapshot: str) -> tuple[str, Weights]:
        bot = self.store.load(snapshot)
        key = json.dumps(bot.record.network, sort_keys=True)
        if key not in self._architectures:
            network = bot.network.to(self.device).requires_grad_(False)
            self._architectures[key] = _Architecture(network, self._mapped(self.store.load(snapshot).network))
        # Copies: the network of the first one is moved and stays, with weights that others replace at each call.
        weights = {k: x.to(self.device, copy=True) for k, x in actor_state_dict(bot.network).items()}
        return key, weights

    def _mapped(self, network: ActorCritic) -> ActorCritic | None:
        network = network.to(self.device).requires_grad_(False)
        network.use_static_shapes()
        rows = torch.zeros((2, 1, self.layout.row_bytes), dtype=torch.uint8, device=self.device)
        weights = actor_state_dict(network)
        try:
            self._forward(network, _Stack.of({"one": weights, "other": weights}).weights, rows)
        except Exception:  # whatever in a network of the user's own does not map
            return None
        return network

    @torch.no_grad()
    def act(self, snapshots: np.ndarray, rows: Tensor, uniforms: Tensor) -> Tensor:
        """Actions int64 ``[B]`` of choice decisions.

        Args:
            snapshots: id of each row's player ``[B]``, all of them required before.
            rows: uint8 ``[B, row_bytes]``.
            uniforms: ``[B, 2]``, of ``widest_float``.
        """
        action = torch.zeros(len(snapshots), dtype=torch.int64, device=self.device)
        by_key: dict[str, list[str]] = {}
        for snapshot in sorted(set(snapshots.tolist())):
            by_key.setdefault(self._loaded[snapshot][0], []).append(snapshot)
        for key, ids in by_key.items():
            kind = self._architectures[key]
            if kind.mapped is not None and len(ids) >= STACK_FROM:
                at, logits = self._together(kind.mapped, self._stack(key, ids), ids, snapshots, rows)
                mask = unpack(rows[at], self.layout)["action_mask"]
                action[at] = MaskedCategorical(logits, mask, self.actions).sample(uniforms[at])
                continue
            for snapshot in ids:
                at = torch.from_numpy(np.flatnonzero(snapshots == snapshot)).to(self.device)
                obs = unpack(rows[at], self.layout)
                # Not functional_call: tiles that are computed on demand would be asked for behind it.
                kind.each.load_state_dict(self._loaded[snapshot][1], strict=False, assign=True)
                logits, _ = kind.each(obs)
                action[at] = MaskedCategorical(logits, obs["action_mask"], self.actions).sample(uniforms[at])
        return action

    def _stack(self, key: str, ids: Collection[str]) -> _Stack:
        """One that holds these ids: made when somebody came who is not in it, and kept over the rounds until then."""
        if key not in self._stacks or not self._stacks[key].at.keys() >= set(ids):
            self._stacks.pop(key, None)  # before there is another
            loaded = sorted(self._loaded)
            self._stacks[key] = _Stack.of({s: self._loaded[s][1] for s in loaded if self._loaded[s][0] == key})
        return self._stacks[key]

    def _together(
        self, network: ActorCritic, stack: _Stack, ids: list[str], snapshots: np.ndarray, rows: Tensor
    ) -> tuple[Tensor, Logits]:
        """Rows cut into pieces of one size, one actor each; a snapshot with more rows is there more than once."""
        places = {s: np.flatnonzero(snapshots == s) for s in ids}
        size = -(-sum(map(len, places.values())) // len(ids))
        pieces = [(s, at[i : i + size]) for s, at in places.items() for i in range(0, len(at), size)]
        # A piece that is not full repeats its first row; nobody reads those.
        full = np.stack([np.pad(at, (0, size - len(at)), mode="edge") for _, at in pieces])
        used = np.concatenate([np.arange(len(at)) + i * size for i, (_, at) in enumerate(pieces)])
        at = torch.from_numpy(np.concatenate([at for _, at in pieces])).to(self.device)
        stacked = rows[torch.from_numpy(full).to(self.device)]
        logits = self._forward(network, stack.pick([s for s, _ in pieces]), stacked)
        keep = torch.from_numpy(used).to(self.device)
        if isinstance(logits, Tensor):
            return at, logits.flatten(0, 1)[keep]
        # With static shapes a network makes all tiles.
        return at, StagedLogits(*(x.flatten(0, 1)[keep] for x in (logits.choice, logits.all_tiles())))

    def _forward(self, network: ActorCritic, weights: Weights, rows: Tensor) -> Logits:
        """Logits ``[N, B, ...]`` of rows uint8 ``[N, B, row_bytes]`` by N actors, their weights stacked."""
        n, b = rows.shape[:2]
        obs = {k: x.unflatten(0, (n, b)) for k, x in unpack(rows.flatten(0, 1), self.layout).items()}

        def one(weights: Weights, obs: Observation) -> Logits:
            logits: Logits = functional_call(network, weights, (obs,))[0]
            return logits

        with torch.no_grad(), _mappable_attention(self.device):
            return vmap(one)(weights, obs)


@contextmanager
def _mappable_attention(device: torch.device) -> Iterator[None]:
    # The CPU's fused kernel has no batching rule: vmap would loop over the actors, and say so.
    if device.type != "cpu":
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield
