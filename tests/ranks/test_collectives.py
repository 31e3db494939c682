"""Every collective of ours, by one process alone and by two real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from royale_lightning.run.ranks import Ranks

_RANK = """
import json, sys, torch
from royale_lightning.run.ranks import Ranks
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
ranks, made = Ranks(rank, 2), []
out = {
    "leads": ranks.leads, "alone": ranks.alone,
    "sum": ranks.sum(torch.tensor([1.0, 10.0]) * (rank + 1)).tolist(),
    "largest": ranks.largest(torch.tensor([1.0, -float(rank)])).tolist(),
    "total": ranks.total(2**52), "any": [ranks.any(rank == 1), ranks.any(False)],
    "gather": ranks.gather({"rank": rank}), "joined": ranks.joined([rank] * (rank + 1)),
    "from_rank_zero": ranks.from_rank_zero(lambda: made.append(rank) or "made"), "made": made,
}
ranks.wait()
json.dump(out, open(f"{folder}/{rank}.json", "w"))
torch.distributed.destroy_process_group()
"""


def test_two_ranks_tell_each_other(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", _RANK, str(r), str(tmp_path)]) for r in (0, 1)]
    assert [p.wait(60) for p in ranks] == [0, 0]
    both = {
        "alone": False, "sum": [3.0, 30.0], "largest": [1.0, 0.0], "total": 2**53, "any": [True, False],
        "gather": [{"rank": 0}, {"rank": 1}], "joined": [0, 1, 1], "from_rank_zero": "made",
    }
    assert json.loads((tmp_path / "0.json").read_text()) == {**both, "leads": True, "made": [0]}
    assert json.loads((tmp_path / "1.json").read_text()) == {**both, "leads": False, "made": []}


def test_one_alone_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_reduce", "all_gather_object", "broadcast_object_list", "barrier"):
        monkeypatch.setattr(torch.distributed, name, None)
    ranks = Ranks.of(None)
    x = torch.tensor([1.0])
    assert (ranks.leads, ranks.alone, ranks.sum(x) is x, ranks.largest(x) is x) == (True, True, True, True)
    assert (ranks.total(7), ranks.any(True), ranks.any(False)) == (7, True, False)
    assert (ranks.gather(3), ranks.joined([3]), ranks.from_rank_zero(lambda: 3)) == ([3], [3], 3)
    ranks.wait()


def test_nobody_else_calls_a_collective() -> None:
    import royale_lightning

    root = Path(royale_lightning.__file__).parent
    users = {p.name for p in root.rglob("*.py") if "torch.distributed." in p.read_text(encoding="utf-8")}
    users |= {p.name for p in root.rglob("*.py") if "reduce_boolean_decision" in p.read_text(encoding="utf-8")}
    assert users == {"ranks.py"}
