"""The policy's distribution: a masked softmax over choices, then a masked softmax over the tiles of a slot.

Two stages rather than one softmax over 2,305 actions, because a flat softmax couples how often to play with
how many tiles are legal (the two-stage head is the recipe that learned). A flat tensor is read as the same tree,
exactly.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..battle.actions import NOOP, ActionLayout
from ..errors import UserError
from .protocol import StagedLogits, TilesOnDemand

#: What an illegal logit becomes. Not ``-inf``: ``0 * -inf`` is NaN in an entropy and in its gradient, while
#: ``0 * finfo.min`` is 0, and ``exp(finfo.min - anything)`` is exactly 0 all the same.
_ILLEGAL = torch.finfo(torch.float32).min


#: In ``p log p`` only: exp of it is 0 in float32, so it changes no product, but a gradient through ``p`` would be
#: the least float, which a loss weight above 1 turns into ``inf * 0``.
_FLOOR = -200.0


def _entropy(logits: Tensor) -> Tensor:
    """Entropy over the last axis. By softmax, not by exp of the log-softmax: exp of the least float is slow."""
    return -(logits.softmax(-1) * logits.log_softmax(-1).clamp(min=_FLOOR)).sum(-1)


class _Taken(NamedTuple):
    """An action as the tree sees it, each int64 or bool ``[B]``; slot and tile are 0 where no slot was played."""

    choice: Tensor
    in_slot: Tensor
    slot: Tensor
    tile: Tensor


class _Tiles(NamedTuple):
    """Masked tile logits ``[n, tiles]`` of one slot each in ``rows`` (int64 ``[n]``), or in all rows for None."""

    rows: Tensor | None
    logits: Tensor

    def pick(self, x: Tensor) -> Tensor:
        """``[n]`` of ``x`` ``[B]``."""
        return x if self.rows is None else x.index_select(0, self.rows)

    def place(self, x: Tensor, in_slot: Tensor) -> Tensor:
        """``[B]`` of ``x`` ``[n]``, 0 where no slot is played."""
        if self.rows is None:
            return torch.where(in_slot, x, torch.zeros_like(x))
        return x.new_zeros(in_slot.shape[0]).index_copy(0, self.rows, x)


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on Apple's GPU, which has no other and raises."""
    return torch.float32 if device.type == "mps" else torch.float64


def _inverse_cdf(p: Tensor, u: Tensor) -> Tensor:
    """Index ``[B]`` of the interval of ``p`` (``[B, n]``, unnormalised) that holds ``u`` in [0, 1], both of
    :func:`widest_float`. 1 is what rounding to float32 makes of the largest float64 below it.

    Right bisection, ``min {i: cdf_i > u}``, among the intervals of positive width only: a parallel cumsum may
    round up over an empty one. The target is held below the total, so that the largest ``u`` finds the last.
    """
    cdf = torch.where(p > 0, p.cumsum(-1), -1.0)
    total = cdf.amax(-1)
    target = torch.minimum(u * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cdf > target.unsqueeze(-1)).to(torch.uint8).argmax(-1)


class MaskedCategorical:
    """Distribution over legal actions, in two stages.

    With ``c`` a choice (wait, a slot, a button) and ``t`` a tile, ``p(a) = p(c)`` for wait and buttons and
    ``p(c) p(t | c)`` for a card. A slot is legal if any of its tiles is; the no-op always is. Everything is
    float32 (:func:`widest_float` inside sampling), under autocast too, nothing synchronises the device, and each
    quantity is computed when first asked for: a PPO step that asks for :meth:`log_prob`, the first-stage entropies and
    :meth:`entropy_tile_of` touches one of the ``[B, tiles]`` grids of a row instead of all.

    The entropy splits exactly into what a bonus may want to weigh apart, by the chain rule::

        entropy = entropy_play + entropy_choice + entropy_tile
        entropy_play   = H(wait or play)
        entropy_choice = p(play) * H(c | play)
        entropy_tile   = sum over slots s of p(s) * H(t | s)

    Args:
        logits: unmasked, staged or flat ``[B, n_actions]``. Of a flat tensor a slot's choice logit is the
            masked logsumexp over its tiles, which makes the staged distribution equal to the flat softmax.
        mask: bool ``[B, n_actions]``, True where legal.
        actions: the tree.
    """

    def __init__(self, logits: StagedLogits | Tensor, mask: Tensor, actions: ActionLayout) -> None:
        self.actions = actions
        n, grid = mask.shape[0], actions.slots * actions.tiles
        self._mask = mask
        self._tile_mask = mask[:, 1 : 1 + grid].view(n, actions.slots, actions.tiles)
        # amax over bytes: torch's bool any() along the last axis is 20 times slower on a CPU.
        slot_mask = self._tile_mask.view(torch.uint8).amax(-1).bool() if actions.slots else mask[:, :0]
        self._choice_mask = torch.cat([torch.ones_like(mask[:, :1]), slot_mask, mask[:, 1 + grid :]], -1)
        if isinstance(logits, Tensor):
            flat = logits.float()
            if flat.shape != mask.shape:
                raise UserError(
                    f"the network returned logits of shape {list(flat.shape)} for {n} rows of {mask.shape[1]} actions"
                )
            self._tile: Tensor | TilesOnDemand = flat[:, 1 : 1 + grid].view(n, actions.slots, actions.tiles)
            # The logsumexp of a row is its largest logit less that one's log-probability. torch.logsumexp would
            # take exp of the least float, which is 20 times slower on a CPU.
            slot = self._masked_tile.amax(-1) - self.tile_log_probs.amax(-1)
            choice = torch.cat([flat[:, :1], slot, flat[:, 1 + grid :]], -1)
        else:
            choice, self._tile = logits.choice.float(), logits.tile
        self._choice = torch.where(self._choice_mask, choice, _ILLEGAL)

    # --- the two stages -------------------------------------------------------------------------------------

    @cached_property
    def _masked_tile(self) -> Tensor:
        tile = self._tile if isinstance(self._tile, Tensor) else self._tile.all()
        return torch.where(self._tile_mask, tile.float(), _ILLEGAL)

    @cached_property
    def choice_log_probs(self) -> Tensor:
        """float32 ``[B, n_choices]``; an illegal choice has the least float, not ``-inf``."""
        return F.log_softmax(self._choice, -1)

    @cached_property
    def tile_log_probs(self) -> Tensor:
        """float32 ``[B, slots, tiles]``, of a tile given its slot; meaningless in a slot without a legal tile."""
        return F.log_softmax(self._masked_tile, -1)

    @cached_property
    def _play_log_prob(self) -> Tensor:
        plays = self.choice_log_probs[:, 1:]
        return plays.logsumexp(-1) if plays.shape[1] else torch.full_like(plays.sum(-1), _ILLEGAL)

    def _tiles(self, in_slot: Tensor, slot: Tensor) -> _Tiles:
        """Masked tile logits of one slot in the rows that play one, or in all rows where finding those would wait."""
        if isinstance(self._tile, Tensor):
            at = slot.view(-1, 1, 1).expand(-1, 1, self.actions.tiles)
            tile, legal = self._tile.gather(1, at).squeeze(1), self._tile_mask.gather(1, at).squeeze(1)
            return _Tiles(None, torch.where(legal, tile.float(), _ILLEGAL))
        rows = in_slot.nonzero().squeeze(-1)
        chosen = slot.index_select(0, rows)
        tile, legal = self._tile.of(rows, chosen), self._tile_mask[rows, chosen]
        return _Tiles(rows, torch.where(legal, tile.float(), _ILLEGAL))

    def _take(self, action: Tensor) -> _Taken:
        a, grid = self.actions, self.actions.slots * self.actions.tiles
        in_slot = (action > NOOP) & (action <= grid)
        at = torch.where(in_slot, action - 1, 0)
        slot = at // a.tiles
        choice = torch.where(in_slot, slot + 1, torch.where(action > grid, action - grid + a.slots, NOOP))
        return _Taken(choice, in_slot, slot, at - slot * a.tiles)

    def _join(self, choice: Tensor, u: Tensor | None) -> tuple[Tensor, _Tiles | None]:
        """The flat action of a choice, its tile drawn by ``u`` (``[B]``) or, without it, the best; and the logits of
        the tiles it is one of."""
        a, grid = self.actions, self.actions.slots * self.actions.tiles
        if not a.slots:
            return choice, None
        in_slot = (choice > NOOP) & (choice <= a.slots)
        slot = torch.where(in_slot, choice - 1, 0)
        tiles = self._tiles(in_slot, slot)
        row = tiles.logits
        tile = row.argmax(-1) if u is None else _inverse_cdf(self._wide(row).softmax(-1), tiles.pick(u))
        beyond = torch.where(choice > a.slots, choice - a.slots + grid, NOOP)
        return torch.where(in_slot, 1 + slot * a.tiles + tiles.place(tile, in_slot), beyond), tiles

    # --- acting ---------------------------------------------------------------------------------------------

    @staticmethod
    def _wide(x: Tensor) -> Tensor:
        return x.to(widest_float(x.device))

    @torch.no_grad()
    def sample(self, uniforms: Tensor) -> Tensor:
        """Actions int64 ``[B]`` by inverse CDF: a function of ``uniforms`` (``[B, 2]`` in [0, 1), of
        :func:`widest_float`) alone.

        The first column decides the choice and the second the tile. An illegal action has an interval without
        width and is never drawn, at 0 and just below 1 neither.
        """
        return self._sample(uniforms)[0]

    @torch.no_grad()
    def sample_with_log_prob(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`sample`, and :meth:`log_prob` of what it drew, from the same tiles."""
        action, tiles = self._sample(uniforms)
        # Not the cached log-probabilities: made here they would have no gradient ever after.
        return action, self._log_prob(F.log_softmax(self._choice, -1), self._take(action), tiles)

    def _sample(self, uniforms: Tensor) -> tuple[Tensor, _Tiles | None]:
        choice = _inverse_cdf(self._wide(self._choice).softmax(-1), uniforms[:, 0])
        return self._join(choice, uniforms[:, 1])

    @torch.no_grad()
    def sharp(self, uniforms: Tensor) -> Tensor:
        """Wait or play drawn by ``uniforms[:, 0]``, then the best choice and its best tile; int64 ``[B]``.

        At two decisions a second p(wait) is a hazard rate: its argmax nearly always waits and elixir leaks.
        """
        drawn = _inverse_cdf(self._wide(self._choice).softmax(-1), uniforms[:, 0])
        if self.actions.n_choices == 1:
            return drawn
        best = 1 + self._choice[:, 1:].argmax(-1)
        return self._join(torch.where(drawn == NOOP, drawn, best), None)[0]

    @torch.no_grad()
    def mode(self) -> Tensor:
        """The best choice, wait among them, then its best tile; int64 ``[B]``. See :meth:`sharp` first."""
        return self._join(self._choice.argmax(-1), None)[0]

    # --- learning -------------------------------------------------------------------------------------------

    def log_prob(self, action: Tensor) -> Tensor:
        """float32 ``[B]`` of int64 ``[B]``; exactly 0 where only one action is legal."""
        taken = self._take(action)
        tiles = self._tiles(taken.in_slot, taken.slot) if self.actions.slots else None
        return self._log_prob(self.choice_log_probs, taken, tiles)

    def log_prob_and_tile_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`log_prob` and :meth:`entropy_tile_of` of the same actions, sharing their one grid."""
        taken = self._take(action)
        if not self.actions.slots:
            first = self._log_prob(self.choice_log_probs, taken, None)
            return first, torch.zeros_like(first)
        tiles = self._tiles(taken.in_slot, taken.slot)
        log_prob = self._log_prob(self.choice_log_probs, taken, tiles)
        return log_prob, tiles.place(_entropy(tiles.logits), taken.in_slot)

    @staticmethod
    def _log_prob(choice: Tensor, taken: _Taken, tiles: _Tiles | None) -> Tensor:
        first = choice.gather(-1, taken.choice.unsqueeze(-1)).squeeze(-1)
        if tiles is None:
            return first
        tile = tiles.pick(taken.tile).unsqueeze(-1)
        return first + tiles.place(F.log_softmax(tiles.logits, -1).gather(-1, tile).squeeze(-1), taken.in_slot)

    @cached_property
    def p_wait(self) -> Tensor:
        """float32 ``[B]``, probability of the no-op."""
        return self.choice_log_probs[:, NOOP].exp()

    @cached_property
    def entropy_play(self) -> Tensor:
        """float32 ``[B]``, entropy of wait or play, at most log 2; 0 where nothing can be played."""
        pair = torch.stack([self.choice_log_probs[:, NOOP], self._play_log_prob], -1)
        return -(pair.exp() * pair.clamp(min=_FLOOR)).sum(-1)

    @cached_property
    def entropy_choice(self) -> Tensor:
        """float32 ``[B]``, ``p(play) * H(which choice | play)``."""
        logp = self.choice_log_probs[:, 1:]
        given_play = (logp - self._play_log_prob.unsqueeze(-1)).clamp(min=_FLOOR)
        return -(logp.exp() * given_play).sum(-1)

    @cached_property
    def entropy_tile(self) -> Tensor:
        """float32 ``[B]``, ``sum_s p(s) * H(tile | s)`` over all slots: every grid of the row is computed."""
        p_slot = self.choice_log_probs[:, 1 : 1 + self.actions.slots].exp()
        return (p_slot * _entropy(self._masked_tile)).sum(-1)

    def entropy_tile_of(self, action: Tensor) -> Tensor:
        """float32 ``[B]``: H(tile | s) of the slot that ``action`` played, 0 for wait and buttons.

        Over actions drawn from the policy its mean is :attr:`entropy_tile`, from one grid a row. Its gradient
        takes p(s) as given: it spreads the tiles without rewarding slots for having many.
        """
        return self.log_prob_and_tile_entropy(action)[1]

    def entropy(self) -> Tensor:
        """float32 ``[B]``, of the joint distribution over actions; exactly 0 where only one action is legal."""
        return self.entropy_play + self.entropy_choice + self.entropy_tile

    def flat_log_probs(self) -> Tensor:
        """float32 ``[B, n_actions]``; an illegal action has the least float."""
        a, choice = self.actions, self.choice_log_probs
        cards = (choice[:, 1 : 1 + a.slots, None] + self.tile_log_probs).flatten(1)
        flat = torch.cat([choice[:, :1], cards, choice[:, 1 + a.slots :]], -1)
        legal = torch.cat([torch.ones_like(self._mask[:, :1]), self._mask[:, 1:]], -1)
        return torch.where(legal, flat, _ILLEGAL)
