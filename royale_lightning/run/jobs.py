"""Which process speaks for a run, who started it, and whether a cluster's job is started again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .atomic import write_atomic

#: In a run folder: the job and the command line that its run belongs to.
JOB_FILE = "job.json"
#: SLURM jobs of these names are a person's shell, which starts no ranks: Lightning's own rule.
_INTERACTIVE = ("bash", "interactive")


def in_slurm_job(env: Mapping[str, str] = os.environ) -> bool:
    """Whether Lightning takes this process for one that SLURM started, and not for one of an interactive shell."""
    return "SLURM_NTASKS" in env and env.get("SLURM_JOB_NAME") not in _INTERACTIVE


def is_rank_zero(env: Mapping[str, str] = os.environ) -> bool:
    """Whether this process speaks for the run: no launcher gave it a rank, or gave it rank 0."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", *(["SLURM_PROCID"] if in_slurm_job(env) else []))
    return all(int(env.get(name, "0")) == 0 for name in names)


def launched_from_outside(env: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun or SLURM started all ranks, so that none of ours could decide for the others."""
    if not is_rank_zero(env):
        return True  # and nobody passed the decision on
    slurm = in_slurm_job(env) and "SLURM_PROCID" in env and int(env["SLURM_NTASKS"]) > 1
    return slurm or "TORCHELASTIC_RUN_ID" in env


@dataclass(frozen=True)
class Job:
    """A command line inside a SLURM job.

    A job that is put back into the queue keeps its number and runs its script anew. Number and command line together
    say which run a line goes on with: a script may start several. The count of restarts has to be above 0 as well, or
    a script that names one folder twice would have its second run go on with the first.
    """

    number: str
    command: tuple[str, ...]
    restarted: bool = False

    @classmethod
    def of(cls, command: Sequence[str], env: Mapping[str, str] = os.environ) -> Job | None:
        """This process's; None outside of one."""
        if not in_slurm_job(env) or "SLURM_JOB_ID" not in env:
            return None
        return cls(env["SLURM_JOB_ID"], tuple(command), int(env.get("SLURM_RESTART_COUNT") or 0) > 0)

    def began(self, folder: Path) -> bool:
        """Whether an earlier start of this job and line began the run in a folder."""
        try:
            told = json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))
            return (told["slurm_job"], tuple(told["command"])) == (self.number, self.command)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def record(self, folder: Path) -> None:
        """Write down that the run in a folder is this job's."""
        if not self.began(folder):
            told = {"schema": 1, "slurm_job": self.number, "command": self.command}
            write_atomic(folder / JOB_FILE, json.dumps(told, indent=1).encode() + b"\n")
