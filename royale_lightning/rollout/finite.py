"""What a rollout or an update must never hold: a value that is no number."""

from __future__ import annotations

import torch
from torch import Tensor

from ..battle.rows.layout import RowLayout
from ..errors import UserError
from ..nn.rows import unpack
from .collector import Rollout

#: Rows of a bundle; enough to see a pattern, few enough to read.
MOST_ROWS = 256


class NotFinite(UserError):
    """Training met NaN or infinity and stops.

    Args:
        text: one sentence that names where.
        tensors: what it was met in, for a bundle.
    """

    def __init__(self, text: str, tensors: dict[str, Tensor]) -> None:
        super().__init__(text)
        self.tensors = tensors


def check_rollout(r: Rollout, layout: RowLayout) -> None:
    """Refuse a rollout that no update may see; waits for the device once.

    Raises:
        NotFinite: a reward, an observation, a value or a log-probability is no finite number.
    """
    cells = r.cells
    reward = torch.where(cells.learner, cells.reward, 0.0)
    row_sums = r.value + r.log_prob
    ends = torch.cat([cells.final_value.flatten(), r.cut_value])
    fine = torch.stack([torch.isfinite(x).all() for x in (reward, row_sums, ends)]).tolist()
    if all(fine):
        return
    if not fine[0]:
        t, slot = (int(x) for x in torch.nonzero(~torch.isfinite(reward))[0])
        raise NotFinite(
            f"battle.reward paid {float(reward[t, slot])} to seat {slot % 2} of battle {slot // 2}; a reward must be a "
            "finite number", {"reward": reward},
        )
    at = torch.nonzero(~torch.isfinite(row_sums)).flatten()[:MOST_ROWS]
    if not len(at):
        raise NotFinite(
            "the network gave a value that is no finite number at the end of a rollout", {"value": ends}
        )
    rows = r.take(at)
    tensors = {"rows": rows, "action": r.action[at], "log_prob": r.log_prob[at], "value": r.value[at]}
    obs = unpack(rows, layout)
    for name, x in obs.items():
        if x.dtype.is_floating_point:
            tensors[f"observation.{name}"] = x
            if not bool(torch.isfinite(x).all()):
                raise NotFinite(f"the observation's field {name!r} holds a value that is no finite number", tensors)
    raise NotFinite(
        f"the network gave a value or a log-probability that is no finite number for {len(at)} of {len(r.value)} rows, "
        "whose observations are finite", tensors,
    )
