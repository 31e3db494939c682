"""A run's ladder: its snapshots, its pool, its results, and the battles that compare them. One object, one state.

Everything that is decided from it is a function of the state and of battles that are functions of their seeds, so a
resumed run decides what the unbroken one decided. With several ranks the first one acts and the others take over its
state (:meth:`Ladder.act`): all of them read the same ladder.

Files: ``RUN/results.jsonl``, ``RUN/snapshots/<id>/``, ``RUN/ladder/ladder.json`` (the state as a reader needs it) and
``RUN/ladder/verdict-<n>.json``.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..battle.players import is_live, is_scripted
from ..battle.spec import BattleSpec
from ..bots.evaluate import PlannedGame, Policy, Referee
from ..bots.snapshots import FOLDER, SnapshotStore
from ..errors import UserError
from ..parts import Part
from ..run.atomic import write_atomic
from ..run.screen import say
from .context import context_of, of_context, recorded_context
from .matchmaker import OpponentTable, PfspSettings
from .pfsp import LearnerRecord, PfspTable, pfsp
from .pool import Member, Pool
from .published import RESULTS, STATE, rated_results, rater_of
from .published import read_state as read_state
from .ratings.rating import RATERS, DavidsonRater, Rater, Ratings
from .results import TRUE_START, LogMark, Result, ResultsLog

#: Ladder battles in flight at once: as many as a rating or a batch of a gate has.
BATTLES = 32
#: Ticks of a battle before one was played: three minutes.
_FULL_TICKS = 3600
_TICK_MS = 50

T = TypeVar("T")


def _alone(make: Callable[[], Any]) -> Any:
    return make()


@dataclass
class Progress:
    """What the ladder has done so far.

    Attributes:
        verdicts, gates, ratings: how many there were; they number files and blocks of seeds.
        battles: evaluated ones.
        rated: game steps of the run at its last rating; None before.
        rejections: candidates rejected in a row.
        newest: game steps of the learner when it was last taken as a candidate; None before.
        admitted: when one last came into the pool.
    """

    verdicts: int = 0
    gates: int = 0
    ratings: int = 0
    battles: int = 0
    rejections: int = 0
    newest: int | None = None
    admitted: int | None = None
    rated: int | None = None


class Ladder:
    """Made with the data module, opened when a run begins.

    Args:
        spec: the battles that are trained on; strength is measured on whole ones (``bot.full_battles``).
        seed: of the named streams.
        settings: whom of the pool the learner meets.

    Attributes:
        pool: the snapshots that may be met.
        record: how the live learner fares against each of them.
        chances: whom the running iteration meets; None before the first.
        rater: fits the ratings.
        rater_setting: the part it was made from, for readers of the run.
        context, unmarked: of the battles played now, and of lines of the log without one (:mod:`~.context`).
        ratings: last fit, player -> ``{"rating", "se", "games", "separable"}``; empty before one.
        progress: counters.
        spent: game steps of evaluated battles by purpose, without what follows a colon.
        seconds: wall time of evaluations and fits in this process. Logged, and read by no decision.
    """

    def __init__(self, spec: BattleSpec, seed: int = 1, settings: PfspSettings = PfspSettings()) -> None:  # noqa: B008
        self.spec = spec
        self.seed = seed
        self.settings = settings
        self.pool = Pool()
        self.record = LearnerRecord()
        self.chances: PfspTable | None = None
        self.rater: Rater = DavidsonRater()
        self.rater_setting = Part(RATERS["davidson"])
        self.context = self.unmarked = ""
        self._unmarked_state = False
        self.ratings: dict[str, dict[str, float]] = {}
        self.progress = Progress()
        self.spent: Counter[str] = Counter()
        self.seconds = 0.0
        self._opened = time.monotonic()
        self.leads = True
        self.folder = Path()
        self.store = SnapshotStore(self.folder / FOLDER)
        self._verified: set[str] = set()
        self._log: ResultsLog | None = None
        self._mark: LogMark | None = None
        self._referee: Referee | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._share: Callable[[Callable[[], Any]], Any] = _alone

    # ---- a run -----------------------------------------------------------------------------------------------
    def open(
        self, folder: Path | None, *, leads: bool = True, share: Callable[[Callable[[], Any]], Any] = _alone,
        source: Path | None = None, given: Sequence[str] = (),
    ) -> None:
        """Begin or continue, after :meth:`load_state_dict` if there is a state.

        Args:
            folder: the run folder; None for a trial that shall leave nothing behind.
            leads: whether this process plays and writes; one does.
            share: runs a function in the leading process and returns its result in all of them.
            source: the run folder that a fork comes from; its log up to the checkpoint and its snapshots are taken
                over.
            given: bots that are in the pool from the start.
        """
        if folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="royale-ladder-")
            folder = Path(self._scratch.name)
        self.folder, self.leads, self._share = folder, leads, share
        self._opened, self.seconds = time.monotonic(), 0.0
        self.store = SnapshotStore(folder / FOLDER)
        self._enter_context(source or folder)
        if leads:
            if source is not None and source.resolve() != folder.resolve():
                self._take_over(source)
            self._log = ResultsLog(folder / RESULTS, self._mark, self.context, self.unmarked)
            if self._log.set_aside is not None:
                say(f"results of iterations after the checkpoint moved to {self._log.set_aside}")
            self._set_verdicts_aside()
        self.act(lambda: self._admit_given(given))

    @classmethod
    def copy_of(cls, run: Path, spec: BattleSpec) -> Ladder:
        """A ladder that stands where a finished or running run's does, in a folder of its own that goes with it.

        Nothing is written to the run. Close it after use.

        Args:
            run: the run folder.
            spec: the battles to play.

        Raises:
            UserError: the run has no ladder.
        """
        state = read_state(run)
        ladder = cls(spec)
        ladder.rater = rater_of(state)
        ladder.open(None)
        unmarked = recorded_context(run) or ladder.context
        results = of_context(rated_results(run / RESULTS).results, ladder.context, unmarked)
        assert ladder._log is not None
        ladder._log.append(msgspec.structs.replace(r, id=0) for r in results)
        ladder.pool.load_state_dict(state)
        theirs = SnapshotStore(run / FOLDER)
        for snapshot in ladder.pool.ids:
            ladder.store.add(*theirs.read(snapshot))
        return ladder

    def close(self) -> None:
        """Give back what :meth:`open` and :meth:`play` took; the state stays. Idempotent."""
        if self._log is not None:
            self._mark = self._log.mark()
            self._log.close()
        if self._referee is not None:
            self._referee.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        self._log = self._referee = self._scratch = None
        self._verified = set()

    def act(self, what: Callable[[], T]) -> T:
        """Do something to the ladder in the leading process; all processes return its result and hold its state.

        Raises:
            UserError: what went wrong in the leading process, in all of them.
        """

        def lead() -> tuple[Any, dict[str, Any], str]:
            try:
                out = what()
            except UserError as problem:
                return None, {}, str(problem)
            self._publish()
            return out, self._state(), ""

        out, state, problem = self._share(lead)
        if problem:
            raise UserError(problem)
        if not self.leads:
            self._load(state)
        return out

    def _enter_context(self, recorded: Path) -> None:
        """Find out what is played now, and whether earlier results and ratings still speak of it.

        Lines without a context are of a run from before there were contexts: they count as played in what the run
        noted of itself then, and without a note as played in this one, since a resume refuses another by default.
        """
        now = context_of(self.spec)
        if self._unmarked_state:
            self.context = self.unmarked = recorded_context(recorded) or now
        before, self.context = self.context or now, now
        self.unmarked = self.unmarked or now
        if before != now:
            self.ratings = {}
            if self.leads:
                say("the battles have other decks, rules or another engine than before; their ratings begin anew")

    def _take_over(self, source: Path) -> None:
        log = source / RESULTS
        if self._mark is not None and log.is_file() and not (self.folder / RESULTS).exists():
            with log.open("rb") as file:
                write_atomic(self.folder / RESULTS, file.read(self._mark.offset))
        theirs = SnapshotStore(source / FOLDER)
        for snapshot in self.pool.ids:
            if snapshot in theirs and snapshot not in self.store:
                try:
                    self.store.add(*theirs.read(snapshot))
                except UserError as problem:  # the pool will find that it is missing here
                    say(problem)

    def _admit_given(self, given: Sequence[str]) -> None:
        for path in given:
            snapshot = self.store.add_bot(path, self.spec)
            self.pool.admit(Member(snapshot, "given", 0, self.store.read(snapshot)[0].game_steps))

    # ---- training --------------------------------------------------------------------------------------------
    def table(self) -> OpponentTable:
        """Whom the learner may meet in the coming iteration."""
        unchecked = [s for s in self.pool.ids if s not in self._verified]
        if unchecked:
            self.act(lambda: self._drop_damaged(unchecked))
        self._verified = set(self.pool.ids)
        s = self.settings
        self.chances = pfsp(self.pool.ids, self.record, s.weighting, s.uniform_share, s.prior_games)
        return OpponentTable(self.chances.opponents, tuple(self.chances.probability.tolist()))

    def table_metrics(self) -> dict[str, float]:
        """What the table of the running iteration rests on; empty for an empty pool.

        ``ladder/pfsp_fallback`` is 1 where the chances are uniform although another weighting was asked for.
        """
        t = self.chances
        if t is None or not t.opponents:
            return {}
        return {
            "ladder/pfsp_divergence": t.divergence, "ladder/pfsp_opponents": t.effective_opponents,
            "ladder/pfsp_evidence": t.evidence_share, "ladder/pfsp_fallback": float(t.fallback is not None),
        }

    def _drop_damaged(self, snapshots: Sequence[str]) -> None:
        for snapshot in snapshots:
            try:
                self.store.load(snapshot)
            except UserError as problem:
                say(f"{problem}; the pool goes on without it")
                self.let_go([snapshot])

    def let_go(self, snapshots: Sequence[str]) -> None:
        """Drop members from the pool; their files and results stay."""
        self.pool.drop(snapshots)
        self.record.keep(self.pool.ids)

    def note_training(self, results: Sequence[Result]) -> None:
        """Count and log an iteration's training battles; with several ranks all of them know all results."""
        for r in results:
            if r.start == TRUE_START and is_live(r.blue) != is_live(r.red):
                learner, other = (r.blue, r.red) if is_live(r.blue) else (r.red, r.blue)
                if other in self.pool:
                    self.record.add(other, r.score(learner))
        self.record.end_iteration()
        if self._log is not None:
            self._log.append(results)

    @property
    def time_share(self) -> float:
        """Share of the wall time since :meth:`open` that evaluations and fits took."""
        return self.seconds / max(time.monotonic() - self._opened, 1e-9)

    # ---- measuring -------------------------------------------------------------------------------------------
    @property
    def battle_steps(self) -> float:
        """Game steps of an evaluated battle: the mean of those played, or three minutes before the first."""
        if self.progress.battles:
            return self.spent.total() / self.progress.battles
        return _FULL_TICKS * _TICK_MS / self.spec.decision_ms

    def find(self, blue: str, red: str, seed: int) -> Result | None:
        """An evaluated battle of the log; only inside :meth:`act`, like all of this section."""
        assert self._log is not None, "only the leading process reads the log"
        return self._log.find(blue, red, seed)

    def play(
        self, games: Sequence[PlannedGame], purpose: str, iteration: int, game_steps: int,
        live: Mapping[str, Policy] | None = None,
    ) -> list[Result]:
        """Play games and log them as kind ``eval``; a game that is in the log is not played again.

        Args:
            games: between scripted opponents, snapshots and players of ``live``.
            purpose: such as ``rating`` or ``gate:7``.
            iteration, game_steps: now.
            live: policies that are no snapshots, by player id.

        Returns:
            A result per game, in their order.
        """
        assert self._log is not None, "only the leading process plays"
        started = time.monotonic()
        todo = [g for g in dict.fromkeys(games) if self._log.find(g.blue, g.red, g.seed) is None]
        if todo:
            players = dict(live or {})
            for name in {n for g in todo for n in (g.blue, g.red)}:
                if not is_scripted(name) and name not in players:
                    players[name] = self.store.load(name)
            records = self._referee_for(len(todo)).play(players, todo)
            self._log.append([
                Result(
                    kind="eval", blue=g.blue, red=g.red, seed=g.seed, winner=r.winner, ticks=r.ticks, crowns=r.crowns,
                    iteration=iteration, game_step=game_steps, purpose=purpose,
                )
                for g, r in zip(todo, records, strict=True)
            ])
            self.progress.battles += len(records)
            self.spent[purpose.split(":")[0]] += sum(r.game_steps for r in records)
        self.seconds += time.monotonic() - started
        found = [self._log.find(g.blue, g.red, g.seed) for g in games]
        return [r for r in found if r is not None]

    def _referee_for(self, games: int) -> Referee:
        """One with as many battles as there are games, up to :data:`BATTLES`; kept, as building one takes seconds."""
        battles = min(BATTLES, games)
        if self._referee is None or self._referee.battles < battles:
            if self._referee is not None:
                self._referee.close()
            self._referee = Referee(self.spec, battles)
        return self._referee

    def rate(self) -> Ratings:
        """Fit all rated results of the log, and keep what :attr:`ratings` holds of it."""
        assert self._log is not None, "only the leading process reads the log"
        started = time.monotonic()
        ratings = self.rater.rate(self._log.rated())
        self.ratings = {
            r.player: {"rating": r.elo, "se": r.se, "games": r.games, "separable": r.separable} for r in ratings.table
        }
        self.seconds += time.monotonic() - started
        return ratings

    # ---- verdicts --------------------------------------------------------------------------------------------
    def write_verdict(self, verdict: Mapping[str, Any]) -> Path:
        """Number and write one verdict; only inside :meth:`act`."""
        self.progress.verdicts += 1
        path = self._verdict_path(self.progress.verdicts)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(dict(verdict), indent=1, allow_nan=False).encode() + b"\n")
        return path

    def _verdict_path(self, number: int) -> Path:
        return (self.folder / STATE).with_name(f"verdict-{number:06d}.json")

    def _set_verdicts_aside(self) -> None:
        """Verdicts after the checkpoint will be reached again, from the same games."""
        number = self.progress.verdicts
        while (path := self._verdict_path(number := number + 1)).exists():
            n = 1
            while (aside := path.with_name(f"{path.name}.discarded-{n}")).exists():
                n += 1
            os.replace(path, aside)

    # ---- state -----------------------------------------------------------------------------------------------
    def _publish(self) -> None:
        """For tools: the state without what only a resume needs."""
        path = self.folder / STATE
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "schema": 1, **self.pool.state_dict(), "ratings": self.ratings, "record": self.record.state_dict(),
            "rater": self.rater_setting.as_dict(), "context": self.context, "unmarked": self.unmarked,
        }
        text = json.dumps(state, indent=1, allow_nan=False)
        write_atomic(path, text.encode() + b"\n")

    def _state(self) -> dict[str, Any]:
        return {
            "pool": self.pool.state_dict(), "ratings": self.ratings, "progress": asdict(self.progress),
            "spent": dict(self.spent), "record": self.record.state_dict(), "context": self.context,
            "unmarked": self.unmarked,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self.pool.load_state_dict(state["pool"])
        self.ratings = {k: dict(v) for k, v in state["ratings"].items()}
        self.progress = Progress(**state["progress"])
        self.spent = Counter(state["spent"])
        self.record.load_state_dict(state["record"])
        self.context, self.unmarked = state.get("context", ""), state.get("unmarked", "")

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers; every result it counts on is on disk."""
        if self._log is not None:
            self._mark = self._log.mark()
        return {**self._state(), "mark": list(self._mark) if self._mark is not None else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before :meth:`open`."""
        self._unmarked_state = "context" not in state
        self._load(state)
        self._mark = LogMark(*state["mark"]) if state["mark"] is not None else None
