"""The source that a rank's settings ask for."""

from __future__ import annotations

from ..spec import BattleSpec
from .arena import ArenaSettings, default_threads
from .processes import ProcessSource
from .sources import InlineSource, RolloutSource


def default_kind(cores: int) -> str:
    """What ``auto`` means: threads of this process on few cores, workers where the interpreter's lock would bind."""
    return "inline" if cores <= 4 else "processes"


def make_source(
    spec: BattleSpec, first: int, battles: int, seed: int, forced_share: float, kind: str, workers: int | None,
    threads: int | None, cores: int | None = None, restarts: int = 20, timeout: float = 120.0,
) -> RolloutSource:
    """The source a rank's settings ask for.

    Args:
        first: global id of the rank's first battle.
        kind: ``auto``, ``inline`` or ``processes``.
        cores: cores this rank may use; unset, all the process may run on.
        restarts, timeout: see :class:`~royale_lightning.battle.steps.processes.ProcessSource`.
    """
    cores = cores or default_threads()
    if kind == "auto":
        kind = default_kind(cores)
    if kind == "inline":
        return InlineSource(spec, first, battles, ArenaSettings(seed, forced_share, threads or cores))
    return ProcessSource(
        spec, first, battles, ArenaSettings(seed, forced_share, threads or 1), min(battles, workers or cores),
        restarts=restarts, timeout=timeout,
    )
