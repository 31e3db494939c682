"""Where the tokens of a batch lie: padded to one shape, or packed into buckets of rows of similar length."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .entity_tokens import FIXED, Entities
from .protocol import Observation


class Span(NamedTuple):
    """Rows of tokens padded to one length, inside a flat list of tokens.

    ``bias`` float32 ``[rows, length]``, added to attention scores: 0 for a token that is there, else ``-inf``.
    """

    rows: int
    length: int
    bias: Tensor


class Take(torch.autograd.Function):
    """``x[index]`` along the first axis for an index without repeats, whose backward is then a copy, not a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return grad[0].new_zeros(ctx.rows, *grad[0].shape[1:]).index_copy_(0, index, grad[0]), None


class ScatterReLU(torch.autograd.Function):
    """float32 ``[n, C]``: ReLU of ``start`` ``[C]`` plus the sum of the ``parts`` ``[M, C]`` with ``at`` that row.

    ``at == n`` drops a part. One function, because autograd's slice, ``index_add`` and ReLU write the board, the
    largest tensor of the network, four times more.
    """

    @staticmethod
    def forward(ctx: Any, parts: Tensor, start: Tensor, at: Tensor, n: int) -> Tensor:
        out = start.expand(n + 1, -1).contiguous().index_add_(0, at, parts)[:n].relu_()
        ctx.save_for_backward(at, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        at, out = ctx.saved_tensors
        board = torch.ops.aten.threshold_backward(grad[0], out, 0)
        parts = board.index_select(0, at.clamp(max=out.shape[0] - 1))
        return parts.index_fill_(0, (at == out.shape[0]).nonzero().squeeze(-1), 0.0), board.sum(0), None, None


def padded(obs: Observation) -> Entities:
    """All rows of the arrays, empty ones too: shapes depend on the batch size alone."""
    names = ("units", "unit_wide", "spells", "spell_wide", "projectiles", "projectile_wide")
    row = torch.arange(obs["units"].shape[0], device=obs["units"].device)
    rows = [row.repeat_interleave(obs[n].shape[1]) for n in names[::2]]
    return Entities._make([*(obs[n].flatten(0, 1) for n in names), torch.cat(rows)])


def packed(obs: Observation, bucket_rows: int) -> tuple[Entities, Tensor, list[Span], Tensor]:
    """The entities that are there, and the places of their tokens.

    Rows are sorted by their number of tokens and cut into buckets, each padded to its longest row only.

    Returns:
        ``(entities, put, spans, count)``: ``put`` int64 ``[6 B + U + S]`` is the place in the flat list of all
        spans of the fixed tokens row by row, then of the units, then of the spells; ``count`` int64 ``[B]`` is the
        number of units and spells of each row.
    """
    rows, items, here, count = [], [], [], []
    for name, wide in (("units", "unit_wide"), ("spells", "spell_wide"), ("projectiles", "projectile_wide")):
        on = obs[name][..., 0] > 0
        at = on.flatten().nonzero().squeeze(-1)
        rows.append(at // on.shape[1])
        items += [obs[name].flatten(0, 1).index_select(0, at), obs[wide].flatten(0, 1).index_select(0, at)]
        rank = on.cumsum(1)
        here.append(rank.flatten()[at] - 1)
        count.append(rank[:, -1])
    b, length = count[0].shape[0], FIXED + count[0] + count[1]
    order = length.argsort(stable=True)
    cut = order.tensor_split(max(1, round(b / bucket_rows)))
    # Sorted, so that the last row of a bucket is its longest.
    longest = length[torch.stack([c[-1] for c in cut])]
    sizes = torch.tensor([c.shape[0] for c in cut])
    each = longest.repeat_interleave(sizes)
    start = torch.empty_like(order).index_copy_(0, order, each.cumsum(0) - each)
    put = torch.cat(
        [
            (start.unsqueeze(-1) + torch.arange(FIXED)).flatten(),
            start[rows[0]] + FIXED + here[0],
            start[rows[1]] + (FIXED + count[0])[rows[1]] + here[1],
        ]
    )
    spans, lengths = [], longest.tolist()
    for c, n in zip(cut, lengths, strict=True):
        bias = torch.where(torch.arange(n) < length[c].unsqueeze(-1), 0.0, -torch.inf)
        spans.append(Span(c.shape[0], n, bias))
    return Entities._make([*items, torch.cat(rows)]), put, spans, count[0] + count[1]
