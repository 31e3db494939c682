"""Run folders: where a run lives, who may write there, and which configuration it was started with.

::

    runs/self_play-3/
        config.yaml  config.1.yaml      as started, and as first resumed
        metrics.jsonl  results.jsonl    append-only logs
        checkpoints/  bot/

The folder is decided once, in the launching process; ranks that Lightning starts read it from the environment,
because "the next free number" would differ for each of them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserError
from ..parts import renamed
from .atomic import write_atomic

#: Carries the decision from the launching process to its child ranks.
RUN_DIR_ENV = "ROYALE_LIGHTNING_RUN_DIR"
CHECKPOINTS = "checkpoints"
#: Belong to one start of a run, not to its configuration.
_PER_START = ("config", "ckpt_path", "run_dir", "weights_only", "allow_drift", "allow_mid_iteration")


def is_rank_zero() -> bool:
    """Whether this process speaks for the run: no launcher gave it a rank, or gave it rank 0."""
    return all(int(os.environ.get(name, "0")) == 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def _launched_from_outside() -> bool:
    """Whether torchrun or SLURM started all ranks, so that none of ours could decide for the others."""
    if not is_rank_zero():
        return True  # and nobody passed the decision on
    slurm = "SLURM_PROCID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1
    return slurm or "TORCHELASTIC_RUN_ID" in os.environ


def is_occupied(folder: Path) -> bool:
    """Whether anything lies in a folder, so that a run would mix with it."""
    return folder.is_dir() and any(folder.iterdir())


def of_checkpoint(ckpt_path: Path) -> Path | None:
    """The run folder a checkpoint lies in, or ``None`` for a checkpoint kept elsewhere."""
    parent = ckpt_path.parent if ckpt_path.parent.name == CHECKPOINTS else ckpt_path.resolve().parent
    return parent.parent if parent.name == CHECKPOINTS else None


def find_checkpoint(ckpt_path: str) -> Path:
    """The file a user means: a checkpoint, or a run folder for its last one."""
    path = Path(ckpt_path)
    if path.is_dir():
        path = path / CHECKPOINTS / "last.ckpt"
    if not path.is_file():
        raise UserError(
            f"ckpt_path is {ckpt_path!r}, but there is no file {str(path)!r}; give a checkpoint or a run folder"
        )
    return path


def choose(run_dir: str | None, ckpt_path: Path | None, name: str, root: Path = Path("runs")) -> Path:
    """Decide the folder of a run and create it.

    Args:
        run_dir: what the user asked for, if anything.
        ckpt_path: the checkpoint to continue from. Without ``run_dir`` the run goes on in its own folder; with
            another ``run_dir`` it is a fork.
        name: stem of the default folder, ``<root>/<name>-<next free number>``.
    """
    if not is_rank_zero() and (decided := os.environ.get(RUN_DIR_ENV)):
        return Path(decided)
    own = of_checkpoint(ckpt_path) if ckpt_path else None
    if run_dir:
        folder = Path(run_dir)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"run_dir is {run_dir!r}, which is a file; give a folder")
        inside = ckpt_path is not None and ckpt_path.resolve().is_relative_to(folder.resolve())
        if is_rank_zero() and is_occupied(folder) and not inside:
            raise UserError(
                f"run_dir {run_dir!r} already holds a run; give another, or continue that run with "
                f"--ckpt_path {folder / CHECKPOINTS / 'last.ckpt'}"
            )
    elif own is not None:
        folder = own
    elif _launched_from_outside():
        raise UserError("give --run_dir when torchrun, SLURM or you start the ranks: each of them starts by itself")
    else:
        folder = _next_free(root, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise UserError(f"cannot make the run folder {str(folder)!r} ({exc.strerror}); give another --run_dir") from exc
    os.environ[RUN_DIR_ENV] = str(folder.resolve())
    return folder


def _next_free(root: Path, name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    taken = [int(m[1]) for p in root.iterdir() if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))]
    number = max(taken, default=0) + 1
    while True:
        folder = root / f"{name}-{number}"
        # Creating it is the claim: two runs started at once get two folders.
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
        number += 1


def drop_if_empty(folder: Path) -> None:
    """Remove a folder that nothing was written to, and the ``runs`` around it if that is empty as well."""
    for path in (folder, folder.parent):
        try:
            path.rmdir()
        except OSError:
            return


def config_name(config_paths: Sequence[str]) -> str:
    """The default stem of a run folder: the first configuration file's name, which the others refine."""
    return Path(config_paths[0]).stem if config_paths else "run"


def _numbered_configs(folder: Path) -> dict[int, Path]:
    """``config.yaml`` as 0 and each ``config.<n>.yaml`` as n."""
    found = {}
    for path in folder.glob("config*.yaml"):
        if match := re.fullmatch(r"config(?:\.(\d+))?\.yaml", path.name):
            found[int(match[1] or 0)] = path
    return found


def save_config(folder: Path, text: str, ckpt_path: str | None) -> Path:
    """Write ``config.yaml``, or ``config.<n>.yaml`` when the folder already has one.

    Without what belongs to this start alone, so that the file, given as ``--config``, starts another run like it.
    """
    text = "".join(x for x in text.splitlines(keepends=True) if x.split(":")[0] not in _PER_START)
    folder.mkdir(parents=True, exist_ok=True)
    number = max(_numbered_configs(folder), default=-1) + 1
    path = folder / ("config.yaml" if number == 0 else f"config.{number}.yaml")
    origin = f"# continued from {ckpt_path}\n" if ckpt_path else ""
    write_atomic(path, (origin + text).encode())
    return path


def change_config(folder: Path, key: str, value: Any) -> None:
    """Write the run's configuration once more with one dotted key changed; nothing where a run has none (Python)."""
    config = saved_config(folder)
    if config is None:
        return
    at = config
    *path, last = key.split(".")
    for name in path:
        at = at.setdefault(name, {})
    at[last] = value
    save_config(folder, f"# {key} changed while the run went on\n{yaml.safe_dump(config, sort_keys=False)}", None)


def saved_config(folder: Path) -> dict[str, Any] | None:
    """The configuration a run was last started with, or ``None`` when the folder holds none."""
    configs = _numbered_configs(folder)
    if not configs:
        return None
    config = yaml.safe_load(configs[max(configs)].read_text(encoding="utf-8"))
    return {k: renamed(v) for k, v in (config or {}).items() if k not in _PER_START}
