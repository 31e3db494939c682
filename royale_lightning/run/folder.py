"""Run folders: where a run lives, who may write there, and which configuration it was started with.

::

    runs/self_play-3/
        config.yaml  config.1.yaml      as started, and as first resumed
        metrics.jsonl  results.jsonl    append-only logs
        checkpoints/  bot/

The folder is decided once, in the launching process; ranks that Lightning starts read it from the environment,
because "the next free number" would differ for each of them. One process writes it at a time: rank 0 holds a lock on it
while it trains, which the system takes back from a process that dies.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
import yaml

from ..errors import UserError
from ..parts import renamed
from .atomic import make_folder, write_atomic
from .checkpoints import LAST, newest
from .jobs import JOB_FILE, is_rank_zero, launched_from_outside
from .screen import say, shown

#: Carries the decision from the launching process to its child ranks.
RUN_DIR_ENV = "ROYALE_LIGHTNING_RUN_DIR"
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
#: What a run leaves from its first iteration on; any of them says that a folder holds one. A config.yaml may be a
#: user's own.
_OF_A_RUN = (CHECKPOINTS, "metrics.jsonl", "results.jsonl", "snapshots")
#: What a start leaves that was killed before it.
_OF_A_START = (LOCK, JOB_FILE)
#: Folders that this process made, and may remove again.
_made: set[Path] = set()
#: Belong to one start of a run, not to its configuration.
_PER_START = ("config", "ckpt_path", "run_dir", "weights_only", "allow_drift", "allow_mid_iteration")


def resolved(path: str | Path) -> Path:
    """A folder as everything that follows names it: whole, so that no later change of the working folder moves it."""
    return Path(path).expanduser().resolve()


def is_occupied(folder: Path) -> bool:
    """Whether anything lies in a folder, so that a run would mix with it."""
    return folder.is_dir() and any(p.name not in _OF_A_START for p in folder.iterdir())


def holds_run(folder: Path) -> bool:
    """Whether a run lies in a folder, beside whatever else."""
    return any((folder / name).exists() for name in _OF_A_RUN)


def already_holds(folder: Path, named: str | Path) -> str:
    """Why a folder is refused, and what helps; ``named`` is what its user calls it."""
    go_on = newest(folder / CHECKPOINTS)
    if go_on is None and holds_run(folder):
        return f"{str(named)!r} holds what is left of a run without a checkpoint; give another run_dir, or remove it"
    if go_on is None:
        return f"{str(named)!r} is not empty, and a run has a folder of its own; give another run_dir"
    path = Path(named) / CHECKPOINTS / go_on.name
    return f"{str(named)!r} already holds a run; give another run_dir, or continue that run with ckpt_path {path}"


def of_checkpoint(ckpt_path: Path) -> Path | None:
    """The run folder a checkpoint lies in, or ``None`` for a checkpoint kept elsewhere."""
    parent = ckpt_path.parent if ckpt_path.parent.name == CHECKPOINTS else ckpt_path.resolve().parent
    return parent.parent if parent.name == CHECKPOINTS else None


def find_checkpoint(ckpt_path: str) -> Path:
    """The file a user means: a checkpoint, or a run folder for its last one."""
    path = Path(ckpt_path).expanduser()
    if path.is_dir():
        path = newest(path / CHECKPOINTS) or path / CHECKPOINTS / LAST
    if not path.is_file():
        raise UserError(
            f"ckpt_path is {ckpt_path!r}, but there is no file {str(path)!r}; give a checkpoint or a run folder"
        )
    return path


def choose(
    run_dir: str | None, ckpt_path: Path | None, name: str, root: Path = Path("runs"), *, own: bool = False
) -> Path:
    """Decide the folder of a run and create it.

    Args:
        run_dir: what the user asked for, if anything.
        ckpt_path: the checkpoint to continue from. Without ``run_dir`` the run goes on in its own folder; with
            another ``run_dir`` it is a fork.
        name: stem of the default folder, ``<root>/<name>-<next free number>``.
        own: whether ``run_dir`` is known to be this run's, so that it may hold something.

    Returns:
        It, :func:`resolved`.
    """
    if not is_rank_zero() and (decided := os.environ.get(RUN_DIR_ENV)):
        return Path(decided)
    beside = of_checkpoint(ckpt_path) if ckpt_path else None
    if run_dir:
        folder = resolved(run_dir)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"run_dir is {run_dir!r}, which is a file; give a folder")
        inside = own or (ckpt_path is not None and resolved(ckpt_path).is_relative_to(folder))
        if is_rank_zero() and is_occupied(folder) and not inside:
            raise UserError(f"run_dir {already_holds(folder, run_dir)}")
    elif beside is not None:
        folder = resolved(beside)
    elif launched_from_outside():
        raise UserError("give --run_dir when torchrun, SLURM or you start the ranks: each of them starts by itself")
    else:
        folder = _next_free(resolved(root), name)
    try:
        _made.update(make_folder(folder))
    except OSError as exc:
        raise UserError(f"cannot make the run folder {str(folder)!r} ({exc.strerror}); give another --run_dir") from exc
    os.environ[RUN_DIR_ENV] = str(folder)
    return folder


def numbered(name: str, root: Path = Path("runs")) -> dict[int, Path]:
    """The default folders of a stem, ``<root>/<name>-<n>``, by number, ascending."""
    if not root.is_dir():
        return {}
    found = {int(m[1]): p for p in root.iterdir() if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))}
    return dict(sorted(found.items()))


def _next_free(root: Path, name: str) -> Path:
    _made.update(make_folder(root))
    number = max(numbered(name, root), default=0) + 1
    while True:
        folder = root / f"{name}-{number}"
        # Creating it is the claim: two runs started at once get two folders.
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            _made.add(folder)
            return folder
        number += 1


def drop_if_empty(folder: Path) -> None:
    """Remove a folder that this process made and nothing was written to, and those around it that it made as well."""
    folder = resolved(folder)
    if folder in _made and not is_occupied(folder):
        for name in _OF_A_START:
            (folder / name).unlink(missing_ok=True)
    for path in (folder, *folder.parents):
        if path not in _made:
            return
        try:
            path.rmdir()
        except OSError:
            return
        _made.discard(path)


class RunLock:
    """The right to write a run folder, held by one process until it lets go or dies.

    Raises:
        UserError: another process has it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        _made.update(make_folder(folder))
        # Not by thread: a run may be ended from another one than it was begun in.
        self._lock = filelock.FileLock(self.path, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise UserError(
                f"another process is training in {str(shown(folder))!r}; wait until it has ended, or give another "
                "run_dir"
            ) from None
        except (OSError, NotImplementedError) as failure:
            say(f"{shown(folder)} is on a file system without locks ({failure}): let no other run write there")

    def release(self) -> None:
        """Idempotent."""
        if self._lock.is_locked:
            # While it is held: whoever waits for the old file notices that it is gone.
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._lock.release()


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


def save_config(folder: Path, config: Mapping[str, Any], *notes: str) -> Path:
    """Write ``config.yaml``, or ``config.<n>.yaml`` when the folder already has one.

    Without what belongs to this start alone, so that the file, given as ``--config``, starts another run like it.

    Args:
        config: plain values.
        notes: lines of comment above it.
    """
    kept = {k: v for k, v in config.items() if k not in _PER_START}
    notes = (*notes, f"royale_lightning=={importlib.metadata.version('royale_lightning')}")
    # A path may hold what ends a comment, or what YAML refuses in one.
    head = "".join(f"# {''.join(c if c.isprintable() else ' ' for c in note)}\n" for note in notes)
    number = max(_numbered_configs(folder), default=-1) + 1
    path = folder / ("config.yaml" if number == 0 else f"config.{number}.yaml")
    write_atomic(path, (head + yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)).encode())
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
    save_config(folder, config, f"{key} changed while the run went on")


def saved_config(folder: Path) -> dict[str, Any] | None:
    """The configuration a run was last started with, or ``None`` when the folder holds none.

    Raises:
        UserError: the file holds no YAML.
    """
    configs = _numbered_configs(folder)
    if not configs:
        return None
    path = configs[max(configs)]
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return {k: renamed(v) for k, v in config.items() if k not in _PER_START}
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError) as exc:
        raise UserError(
            f"{path} is no configuration ({' '.join(str(exc).split())}); mend it, or give one with --config"
        ) from exc
