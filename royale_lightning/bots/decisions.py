"""What a policy thought at each decision of a recorded battle: its value and its likeliest actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from royalegym.env import AGENTS

from ..battle.actions import NOOP, ActionLayout
from ..battle.rows.layout import MASK, RowLayout
from ..battle.rows.row_codecs import pack_row
from ..nn.distribution import MaskedCategorical
from ..nn.protocol import ActorCritic
from ..nn.rows import rows_to_tensor, unpack

#: Likeliest actions kept of a decision: a hand of cards and the wait fit on a page.
TOP = 5


@dataclass(frozen=True)
class Decision:
    """One choice of one seat.

    Args:
        tick: of the battle, before it acted.
        seat: 0 blue, 1 red.
        action: what it did, a flat index.
        value: V of what it saw, in the critic's (scaled) return; None for a policy without a trained critic.
        p_wait: probability of waiting.
        top: the :data:`TOP` likeliest actions and their probabilities, likeliest first.
    """

    tick: int
    seat: int
    action: int
    value: float | None
    p_wait: float
    top: tuple[tuple[int, float], ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class DecisionLog:
    """Collects the rows a policy would see while a battle is replayed in a RoyaleGym environment.

    Args:
        layout: of the policy's rows.
        seats: whose decisions are kept.
    """

    def __init__(self, layout: RowLayout, seats: Sequence[int]) -> None:
        self.layout = layout
        self.seats = tuple(seats)
        self._rows: list[np.ndarray] = []
        self._at: list[tuple[int, int, int]] = []
        # Zeros before a seat's first decision, as the arena has it (battle.frames).
        old = layout.row_bytes - layout.single.row_bytes if layout.frame else 0
        self._history = {s: np.zeros(old, dtype=np.uint8) for s in self.seats}

    @property
    def unwatched(self) -> list[str]:
        """Agents whose observation nobody needs."""
        return [a for i, a in enumerate(AGENTS) if i not in self.seats]

    def look(self, tick: int, obs: Mapping[str, Mapping[str, Any]], actions: Mapping[str, int]) -> None:
        """Note both seats' observations and what they are about to do."""
        for seat in self.seats:
            agent = AGENTS[seat]
            if agent not in obs or not obs[agent][MASK][1:].any():
                continue
            row = np.zeros(self.layout.row_bytes, dtype=np.uint8)
            pack_row(self.layout, obs[agent], obs[agent][MASK], row)
            old = self._history[seat]
            if len(old):
                row[: len(old)] = old
                self._history[seat] = row[self.layout.single.row_bytes :].copy()
            self._rows.append(row)
            self._at.append((tick, seat, int(actions.get(agent, NOOP))))

    @torch.no_grad()
    def judge(self, network: ActorCritic, actions: ActionLayout, *, with_value: bool) -> list[Decision]:
        """What ``network`` thinks of everything noted, in the order of the battle.

        Args:
            with_value: whether its critic is trained; a bot's is not.
        """
        if not self._rows:
            return []
        training = network.training
        network.eval()
        device = next(network.parameters()).device
        obs = unpack(rows_to_tensor(np.stack(self._rows), device), self.layout)
        logits, value = network(obs)
        policy = MaskedCategorical(logits, obs[MASK], actions)
        prob, best = policy.flat_log_probs().exp().topk(min(TOP, actions.n_actions))
        p_wait, found = policy.p_wait.cpu().tolist(), value.float().cpu().tolist()
        if training:
            network.train()
        out = []
        for i, (tick, seat, action) in enumerate(self._at):
            # A decision may have fewer legal actions than we list.
            top = [(a, p) for a, p in zip(best[i].tolist(), prob[i].tolist(), strict=True) if p > 0.0]
            out.append(Decision(tick, seat, action, found[i] if with_value else None, p_wait[i], tuple(top)))
        return out
