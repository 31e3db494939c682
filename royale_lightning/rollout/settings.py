"""How a rollout is collected: sizes, forced rows, where battles step."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..battle.opponents import ACTING
from ..errors import UserError
from ..ladder.matchmaker import MATCHMAKERS, Matchmaker, PfspSettings
from ..parts import Part, PartLike

FORCED_ROWS = ("skip", "critic", "all")
SOURCES = ("auto", "inline", "processes")


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of collection.

    Args:
        battles: battles in flight on one rank. 48 give the network batches of some 40 rows a round and keep an
            iteration's rows spread over many moments of a battle.
        rows_per_iteration: rows one rank collects before it learns. Small rollouts learned as well as large ones
            per game step and keep the policy fresh.
        minibatch_rows: rows of one optimizer step.
        forced_rows: ``skip`` neither runs nor stores decisions with one legal action, but for
            ``forced_value_share``; ``critic`` stores all of them for the critic; ``all`` also counts them in the
            actor's means, as a trainer that does not know of them would.
        forced_value_share: share of forced decisions stored as value-only rows, so that the critic is trained where
            cuts and truncations ask for it.
        stagger: start every battle's first episode at a random moment, so that battles do not stay in one phase.
        source: where battles step; ``auto`` picks threads of this process on up to 4 cores and worker processes
            beyond, where the interpreter's lock would hold threads back.
        workers: worker processes; unset, one per core this rank may use.
        threads: stepping threads per process; unset, one per core inline and 1 in a worker.
        worker_restarts: lost worker processes a start of the run replaces before it ends; enough for an hourly crash
            through two nights, and a part that fails in every battle still ends the run within minutes.
        worker_timeout_s: seconds after which a worker that does not answer counts as hung; a round takes some tens
            of milliseconds, and a machine that swaps may take a thousand times that. Time in which the whole run was
            stopped (Ctrl-Z, a closed laptop) does not count.
        overlap: collect the next rollout with a frozen copy of the policy while the update runs. It pays where the
            update leaves the cores alone, so on a GPU; two CPU cores gained 4 to 17 %, before each row was run forward
            once more. Off, because the policy that acts is one update old, and the rows are held twice. The update
            stays near the policy it begins with, as always, and weighs each row by how likely that one was to act so
            (decoupled PPO, Hilton et al. 2022; ``ppo/behaviour_weight``). Before there were weights one seed of 200,000
            game steps scored 0.870 with and 0.890 without an overlap; with them nothing has been measured.
        max_rounds: a rollout that needs more halts with one sentence; 20,000 rounds are hours of battle.
    """

    battles: int = 48
    rows_per_iteration: int = 4096
    minibatch_rows: int = 512
    forced_rows: str = "skip"
    forced_value_share: float = 0.05
    stagger: bool = True
    source: str = "auto"
    workers: int | None = None
    threads: int | None = None
    worker_restarts: int = 20
    worker_timeout_s: float = 120.0
    overlap: bool = False
    max_rounds: int = 20_000

    def __post_init__(self) -> None:
        for name in ("battles", "rows_per_iteration", "minibatch_rows", "max_rounds", "workers", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"rollout.{name} is {value}; give at least 1")
        if self.worker_restarts < 0:
            raise UserError(f"rollout.worker_restarts is {self.worker_restarts}; give 0 or more")
        if not 0 < self.worker_timeout_s < float("inf"):
            raise UserError(f"rollout.worker_timeout_s is {self.worker_timeout_s}; give a number of seconds above 0")
        if self.rows_per_iteration < self.minibatch_rows:
            raise UserError(
                f"rollout.rows_per_iteration is {self.rows_per_iteration}, less than one minibatch "
                f"(rollout.minibatch_rows {self.minibatch_rows}); raise the first or lower the second"
            )
        if self.forced_rows not in FORCED_ROWS:
            raise UserError(f"rollout.forced_rows is {self.forced_rows!r}; give one of {', '.join(FORCED_ROWS)}")
        if not 0.0 <= self.forced_value_share <= 1.0:
            raise UserError(f"rollout.forced_value_share is {self.forced_value_share}; give a share from 0 to 1")
        if self.source not in SOURCES:
            raise UserError(f"rollout.source is {self.source!r}; give one of {', '.join(SOURCES)}")

    @property
    def forced_share(self) -> float:
        """Share of forced decisions that become rows."""
        return self.forced_value_share if self.forced_rows == "skip" else 1.0

    @property
    def minibatches(self) -> int:
        """Minibatches of one PPO epoch."""
        return self.rows_per_iteration // self.minibatch_rows


@dataclass(frozen=True)
class OpponentShares:
    """Who the learner plays: shares of the battles in flight, made exact by rounding.

    Args:
        mirror: both seats are the learner, both are stored.
        pool: one seat is a snapshot, drawn anew each episode; played as mirror while there is none.
        scripted: one seat is a scripted opponent, drawn anew each episode.
        scripted_opponents: their names; the five acting rungs of RoyaleGym's ladder.
        snapshots: bots (folders, checkpoints, runs) that are in the pool from the start and stay.
        pfsp: whom of the pool.
        matchmaker: who meets whom, with these shares; ``mix`` or a ``Matchmaker`` of your own.
    """

    mirror: float = 0.5
    pool: float = 0.0
    scripted: float = 0.5
    scripted_opponents: list[str] = field(default_factory=lambda: list(ACTING))
    snapshots: list[str] = field(default_factory=list)
    pfsp: PfspSettings = field(default_factory=PfspSettings)
    matchmaker: PartLike = "mix"

    def __post_init__(self) -> None:
        for name in ("mirror", "pool", "scripted"):
            if getattr(self, name) < 0:
                raise UserError(f"opponents.{name} is {getattr(self, name)}; give a share of 0 or more")
        if self.mirror + self.pool + self.scripted <= 0:
            raise UserError("opponents: all shares are 0; give at least one of mirror, pool and scripted a share")
        if self.scripted > 0 and not self.scripted_opponents:
            raise UserError("opponents.scripted is above 0 and opponents.scripted_opponents is empty; name some")

    def build(self, seed: int, battles: int) -> Matchmaker:
        """The matchmaker of a run with this many battles over all ranks."""
        where = "opponents.matchmaker"
        shares = (self.mirror, self.pool, self.scripted)
        matchmaker = Part.of(self.matchmaker, where, MATCHMAKERS)
        made: Matchmaker = matchmaker.build(
            where, seed, battles, *shares, tuple(self.scripted_opponents), kind=Matchmaker
        )
        return made
