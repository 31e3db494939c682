"""Many frozen actors in one forward: the opponents of a round of training.

A round of 96 battles asks some 15 snapshots for one or two decisions each. One forward per snapshot is then all
overhead, so networks of one architecture run as one, their weights stacked and mapped by ``torch.func.vmap``.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Collection, Iterator
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
            self._forward(network, [weights, weights], rows)
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
                at, logits = self._together(kind.mapped, ids, snapshots, rows)
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

    def _together(
        self, network: ActorCritic, ids: list[str], snapshots: np.ndarray, rows: Tensor
    ) -> tuple[Tensor, Logits]:
        """Rows cut into pieces of one size, one actor each; a snapshot with more rows is stacked more than once."""
        places = {s: np.flatnonzero(snapshots == s) for s in ids}
        size = -(-sum(map(len, places.values())) // len(ids))
        pieces = [(s, at[i : i + size]) for s, at in places.items() for i in range(0, len(at), size)]
        # A piece that is not full repeats its first row; nobody reads those.
        full = np.stack([np.pad(at, (0, size - len(at)), mode="edge") for _, at in pieces])
        used = np.concatenate([np.arange(len(at)) + i * size for i, (_, at) in enumerate(pieces)])
        at = torch.from_numpy(np.concatenate([at for _, at in pieces])).to(self.device)
        stacked = rows[torch.from_numpy(full).to(self.device)]
        logits = self._forward(network, [self._loaded[s][1] for s, _ in pieces], stacked)
        keep = torch.from_numpy(used).to(self.device)
        if isinstance(logits, Tensor):
            return at, logits.flatten(0, 1)[keep]
        # With static shapes a network makes all tiles.
        return at, StagedLogits(*(x.flatten(0, 1)[keep] for x in (logits.choice, logits.all_tiles())))

    def _forward(self, network: ActorCritic, weights: list[Weights], rows: Tensor) -> Logits:
        """Logits ``[N, B, ...]`` of rows uint8 ``[N, B, row_bytes]`` by N actors."""
        n, b = rows.shape[:2]
        obs = {k: x.unflatten(0, (n, b)) for k, x in unpack(rows.flatten(0, 1), self.layout).items()}
        stacked = {k: torch.stack([w[k] for w in weights]) for k in weights[0]}

        def one(weights: Weights, obs: Observation) -> Logits:
            logits: Logits = functional_call(network, weights, (obs,))[0]
            return logits

        with torch.no_grad(), _mappable_attention(self.device):
            return vmap(one)(stacked, obs)


@contextmanager
def _mappable_attention(device: torch.device) -> Iterator[None]:
    # The CPU's fused kernel has no batching rule: vmap would loop over the actors, and say so.
    if device.type != "cpu":
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield
