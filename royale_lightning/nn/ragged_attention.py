"""Attention over rows of different length: padded to one shape, or packed without the tokens that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .entity_tokens import FIXED, Entities
from .protocol import Observation


class Gather(torch.autograd.Function):
    """``x.index_select(dim, index)``, where ``inverse`` says at which place of the result each entry of ``x`` lies.

    The backward is then a gather too, not a sum into zeros. A second place of an entry gets no gradient: those are
    the pads, whose result nothing reads.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.dim = dim
        return x.index_select(dim, index)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad[0].index_select(ctx.dim, inverse), None, None, None


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


class PaddedAttention(NamedTuple):
    """Every row with room for all its entities: one shape, one fused kernel, for accelerators and the compiler.

    ``bias`` float32 ``[rows, length]``: 0 for a token that is there, else ``-inf``.
    """

    bias: Tensor

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """``[rows * length, width]`` from ``[rows * length, 3 * width]``."""
        rows, length = self.bias.shape
        q, k, v = qkv.view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.to(q.dtype)[:, None, None])
        return y.transpose(1, 2).reshape(rows * length, -1)


class PackedAttention(NamedTuple):
    """Tokens that are there, in one flat list; only attention itself is padded, in buckets of rows of like length.

    With ``N`` tokens, ``H`` heads, and ``P`` places (tokens and pads) in all buckets together:

    ``biases``: of each bucket float32 ``[rows * H, 1, length]``, as above; ``gather`` int64 ``[3 P H]``, for each
    place in ``[q/k/v, row, head, position]`` order, bucket by bucket, which (token, q/k/v, head) it holds; ``back``
    int64 ``[3 N H]``, the reverse; ``place`` int64 ``[N H]``, where attention's result for (token, head) lies in
    ``[row, head, position]`` order.
    """

    biases: Sequence[Tensor]
    gather: Tensor
    back: Tensor
    place: Tensor

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """``[N, width]`` from ``[N, 3 * width]``. Up to 30 tokens two batched products beat torch's flash kernel."""
        n = qkv.shape[0]
        padded = Gather.apply(qkv.view(n * 3 * heads, -1), 0, self.gather, self.back)
        sizes = [3 * b.shape[0] * b.shape[2] for b in self.biases]
        y = []
        for bias, part in zip(self.biases, padded.split(sizes), strict=True):
            q, k, v = part.view(3, bias.shape[0], bias.shape[2], -1).unbind(0)
            score = torch.baddbmm(bias.to(q.dtype), q, k.mT, alpha=q.shape[-1] ** -0.5)
            y.append((score.softmax(-1) @ v).flatten(0, 1))
        return Take.apply(y[0] if len(y) == 1 else torch.cat(y), self.place).view(n, -1)


def padded(obs: Observation) -> tuple[Entities, PaddedAttention]:
    """All rows of the arrays, empty ones too: shapes depend on the batch size alone."""
    names = ("units", "unit_wide", "spells", "spell_wide", "projectiles", "projectile_wide")
    row = torch.arange(obs["units"].shape[0], device=obs["units"].device)
    rows = torch.cat([row.repeat_interleave(obs[n].shape[1]) for n in names[::2]])
    on = torch.cat([obs["units"][..., 0] > 0, obs["spells"][..., 0] > 0], 1)
    bias = F.pad(torch.where(on, 0.0, -torch.inf), (FIXED, 0))
    return Entities._make([*(obs[n].flatten(0, 1) for n in names), rows]), PaddedAttention(bias)


def packed(obs: Observation, bucket_rows: int, heads: int) -> tuple[Entities, PackedAttention, Tensor]:
    """The entities that are there, and attention among the tokens: 6 fixed ones a row, then all units, all spells.

    Returns:
        entities; attention; int64 ``[B]``, the number of units and spells of each row.
    """
    rows, items, rank, count = [], [], [], []
    for name, wide in (("units", "unit_wide"), ("spells", "spell_wide"), ("projectiles", "projectile_wide")):
        on = obs[name][..., 0] > 0
        at = on.flatten().nonzero().squeeze(-1)
        rows.append(at // on.shape[1])
        items += [obs[name].flatten(0, 1).index_select(0, at), obs[wide].flatten(0, 1).index_select(0, at)]
        running = on.cumsum(1)
        rank.append(running.flatten().index_select(0, at) - 1)
        count.append(running[:, -1])
    b, (units, spells, _) = count[0].shape[0], count
    row = torch.cat([torch.arange(b).repeat_interleave(FIXED), rows[0], rows[1]])
    in_row = torch.cat([torch.arange(FIXED).repeat(b), rank[0] + FIXED, rank[1] + FIXED + units[rows[1]]])
    attention = _buckets(units + spells + FIXED, row, in_row, bucket_rows, heads)
    return Entities._make([*items, torch.cat(rows)]), attention, units + spells


def _buckets(length: Tensor, row: Tensor, in_row: Tensor, bucket_rows: int, heads: int) -> PackedAttention:
    """Sort rows by their ``length`` ``[B]``, cut them into buckets padded to their longest row, place the tokens."""
    order = length.argsort(stable=True)
    cut = order.tensor_split(max(1, round(length.shape[0] / bucket_rows)))
    # Sorted, so that the last row of a bucket is its longest.
    longest = length[torch.stack([c[-1] for c in cut])].tolist()
    biases, table, start = [], [], 0
    for rows, n in zip(cut, longest, strict=True):
        m, part = rows.shape[0], rows.shape[0] * heads * n
        bias = torch.where(torch.arange(n) < length[rows].unsqueeze(-1), 0.0, -torch.inf)
        biases.append(bias.repeat_interleave(heads, 0).unsqueeze(1))
        # Of each row: where its results start, where its queries start, from head to head, from query to key.
        first = torch.arange(m) * (heads * n)
        behind = [torch.full_like(first, n), first.new_full((m,), part)]
        table.append(torch.stack([first + start, first + 3 * start, *behind]))
        start += part
    of_row = torch.empty(4, length.shape[0], dtype=torch.int64).index_copy_(1, order, torch.cat(table, 1))
    result, query, head, part = of_row.index_select(1, row).unsqueeze(-1)
    at = in_row.unsqueeze(-1) + torch.arange(heads) * head
    qkv = torch.arange(3).unsqueeze(-1) * part.unsqueeze(-1)
    back = (query.unsqueeze(-1) + qkv + at.unsqueeze(1)).flatten()
    gather = torch.zeros(3 * start, dtype=torch.int64).index_copy_(0, back, torch.arange(back.shape[0]))
    return PackedAttention(biases, gather, back, (result + at).flatten())
