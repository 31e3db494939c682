"""A run's ladder: its snapshots, its pool, its results, and the battles that compare them. One object, one state.

Everything that is decided from it is a function of the state and of battles that are functions of their seeds, so a
resumed run decides what the unbroken one decided. With several ranks the first one acts and the others take over its
state (:meth:`Ladder.act`): all of them read the same ladder.

Files: ``RUN/results.jsonl``, ``RUN/snapshots/<id>/``, ``RUN/ladder/ladder.json`` (the state as a reader needs it) and
``RUN/ladder/verdict-<n>.json``.
"""

from __future__ import annotations

import hashlib
import json
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
from ..bots.evaluate import PlannedGame, Policy, Referee, is_decided
from ..bots.snapshots import FOLDER, LostSnapshot, SnapshotStore, UnreadableSnapshot
from ..errors import UserError
from ..parts import Part
from ..run.atomic import set_aside, write_atomic
from ..run.screen import say
from .context import context_of, of_context, recorded_context
from .matchmaker import OpponentTable, PfspSettings
from .pfsp import LearnerRecord, PfspTable, pfsp, predicted
from .pool import Member, Pool
from .price import PRICES, Prices
from .published import RESULTS, STATE, battles_of, rated_results, rater_of, read_state, write_state
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
        unpromoted: candidates in a row that a gate judged and did not promote, those taken in unpromoted counted.
        undecided: evaluated battles without a winner or a draw, which are in no result.
        failures: gates, ratings and writings for tools that were given up, because the disk was full or a snapshot
            could not be read.
        price: game steps that one of the ladder is charged as (:mod:`~.price`).
    """

    verdicts: int = 0
    gates: int = 0
    ratings: int = 0
    battles: int = 0
    rejections: int = 0
    newest: int | None = None
    admitted: int | None = None
    rated: int | None = None
    unpromoted: int = 0
    undecided: int = 0
    failures: int = 0
    price: int = 1


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
        seconds: wall time of evaluations and fits in this process. The price alone is decided from it (:mod:`~.price`).
        left_out: members that cannot be read at the moment; nobody meets them until they can.
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
        self.left_out: tuple[str, ...] = ()
        self._opened = time.monotonic()
        self._prices: Prices | None = None
        self.leads = True
        self.folder = Path()
        self.store = SnapshotStore(self.folder / FOLDER)
        self._verified: set[str] = set()
        self._failures = 0
        self._log: ResultsLog | None = None
        self._mark: LogMark | None = None
        self._referee: Referee | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._share: Callable[[Callable[[], Any]], Any] = _alone

    # ---- a run -----------------------------------------------------------------------------------------------
    def open(
        self, folder: Path | None, *, leads: bool = True, share: Callable[[Callable[[], Any]], Any] = _alone,
        source: Path | None = None, given: Sequence[str] = (), game_steps: int = 0,
    ) -> None:
        """Begin or continue, after :meth:`load_state_dict` if there is a state.

        Args:
            folder: the run folder; None for a trial that shall leave nothing behind.
            leads: whether this process plays and writes; one does.
            share: runs a function in the leading process and returns its result in all of them, or raises in all of
                them what was raised there.
            source: the run folder that a fork comes from; its log up to the checkpoint and its snapshots are taken
                over.
            given: bots that are in the pool from the start.
            game_steps: trained so far.
        """
        if folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="royale-ladder-")
            folder = Path(self._scratch.name)
        self.folder, self.leads, self._share = folder, leads, share
        self._opened, self.seconds = time.monotonic(), 0.0
        self.store = SnapshotStore(folder / FOLDER, sets_aside=leads)
        self._enter_context(source or folder)
        self.act(lambda: self._begin(source, given, game_steps))

    def _begin(self, source: Path | None, given: Sequence[str], game_steps: int) -> None:
        """Whatever :meth:`open` does to files, so that a failure of it reaches all processes."""
        if source is not None and source.resolve() != self.folder.resolve():
            self._take_over(source)
        self._log = ResultsLog(self.folder / RESULTS, self._mark, self.context, self.unmarked)
        self._prices = Prices(self.folder / PRICES, self._opened, self.spent.total(), game_steps)
        self._set_verdicts_aside()
        for path in given:
            snapshot = self.store.add_bot(path, self.spec)
            self.pool.admit(Member(snapshot, "given", 0, self.store.read(snapshot)[0].game_steps))

    @classmethod
    def copy_of(cls, run: Path) -> Ladder:
        """A ladder that stands where a finished or running run's does, in a folder of its own that goes with it.

        It plays the run's own battles, so that what the run has played already is of the same ones. Nothing is written
        to the run. Close it after use.

        Args:
            run: the run folder.

        Raises:
            UserError: the run has no ladder, or its battles are none of this installation's.
        """
        state = read_state(run)
        ladder = cls(battles_of(run, state))
        ladder.rater = rater_of(state)
        ladder.open(None)
        try:
            unmarked = recorded_context(run) or ladder.context
            results = of_context(rated_results(run / RESULTS).results, ladder.context, unmarked)
            ladder._note([msgspec.structs.replace(r, id=0) for r in results])
            ladder.pool.load_state_dict(state)
            theirs = SnapshotStore(run / FOLDER)
            for snapshot in ladder.pool.ids:
                ladder.store.add(*theirs.read(snapshot))
        except BaseException:
            ladder.close()
            raise
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
        self._verified, self.left_out = set(), ()

    def act(self, what: Callable[[], T]) -> T:
        """Do something to the ladder in the leading process; all processes return its result and hold its state.

        What goes wrong in the leading process is raised in all of them.
        """

        def lead() -> tuple[T, dict[str, Any]]:
            out = what()
            self._publish()
            return out, self._state()

        out, state = self._share(lead)
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

    def attempt(self, what: Callable[[], T], named: str, iteration: int, game_steps: int) -> T | None:
        """:meth:`act` on something that a run can do without: where the disk is full, or a snapshot cannot be read, the
        ladder stands as before, the failure is counted, and the result is None.

        Args:
            named: ``gate`` or ``rating``.
            iteration, game_steps: now.
        """

        def tried() -> T | None:
            before = self._state()
            try:
                out = what()
            except (OSError, UnreadableSnapshot) as failure:
                self._load(before)
                self._give_up(named, failure)
                return None
            assert self._prices is not None
            self.progress.price = self._prices.decide(
                self.progress.price, self.seconds, self.spent.total(), game_steps, iteration, named
            )
            return out

        return self.act(tried)

    def _give_up(self, what: str, failure: Exception) -> None:
        self.progress.failures += 1
        say(f"no {what} this time ({failure}); the run goes on")

    def _take_over(self, source: Path) -> None:
        log, mark = source / RESULTS, self._mark
        if mark is not None and log.is_file() and not (self.folder / RESULTS).exists():
            self.folder.mkdir(parents=True, exist_ok=True)  # a fork from Python may be into a folder to come
            with log.open("rb") as file:
                lines = file.read(mark.offset)
            if len(lines) < mark.offset or (mark.digest and hashlib.sha256(lines).hexdigest() != mark.digest):
                say(f"{log} is of another history than the checkpoint; the fork's results and ratings begin with it")
            elif lines:
                write_atomic(self.folder / RESULTS, lines)
        theirs = SnapshotStore(source / FOLDER)
        for snapshot in self.pool.ids:
            if snapshot in theirs and snapshot not in self.store:
                try:
                    self.store.add(*theirs.read(snapshot))
                except UserError as problem:  # the pool will find that it is missing here
                    say(problem)

    # ---- training --------------------------------------------------------------------------------------------
    def table(self) -> OpponentTable:
        """Whom the learner may meet in the coming iteration."""
        if self.progress.failures != self._failures:
            self._verified, self._failures = set(), self.progress.failures  # perhaps of a member that cannot be met
        unchecked = [s for s in self.pool.ids if s not in self._verified]
        if unchecked:
            self.left_out = tuple(self.act(lambda: self._unreadable(unchecked)))
        members = self.members
        self._verified = set(members)
        s = self.settings
        self.chances = pfsp(members, self.record, s.weighting, s.uniform_share, s.prior_games, predicted(self.ratings))
        return OpponentTable(self.chances.opponents, tuple(self.chances.probability.tolist()))

    @property
    def members(self) -> tuple[str, ...]:
        """Ids of the pool's members that can be read."""
        return tuple(s for s in self.pool.ids if s not in self.left_out)

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

    def _unreadable(self, snapshots: Sequence[str]) -> list[str]:
        """Those of these members that cannot be read now; what is damaged or gone leaves the pool."""
        found = []
        for snapshot in snapshots:
            try:
                self.store.load(snapshot)
            except UnreadableSnapshot as problem:
                if isinstance(problem, LostSnapshot):
                    say(f"{problem}; the pool goes on without it")
                    self.let_go([snapshot])
                    continue
                if snapshot not in self.left_out:
                    say(f"{problem}; nobody meets it until it can be")
                found.append(snapshot)
        return found

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
            self._note(results)

    def _note(self, results: Sequence[Result]) -> None:
        """Log results; every rating and verdict is made of them, so a run that cannot is at its end."""
        assert self._log is not None, "only the leading process writes"
        try:
            self._log.append(results)
        except OSError as failure:
            raise UserError(
                f"cannot write {self.folder / RESULTS} ({failure.strerror or failure}); make room and continue from "
                "the last checkpoint"
            ) from failure

    def standing(self) -> dict[str, float]:
        """Running totals, by the key of a row that tells what an iteration added to them."""
        p = self.progress
        return {"time/ladder": self.seconds, "ladder/undecided": p.undecided, "ladder/failures": p.failures}

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

        A battle that ends without a winner or a draw is no result: it is counted, and every pair that it belongs to is
        incomplete.

        Args:
            games: between scripted opponents, snapshots and players of ``live``.
            purpose: such as ``rating`` or ``gate:7``.
            iteration, game_steps: now.
            live: policies that are no snapshots, by player id.

        Returns:
            A result per decided game, in their order.
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
            self._note([
                Result(
                    kind="eval", blue=g.blue, red=g.red, seed=g.seed, winner=r.winner, ticks=r.ticks, crowns=r.crowns,
                    iteration=iteration, game_step=game_steps, purpose=purpose,
                )
                for g, r in zip(todo, records, strict=True) if is_decided(r)
            ])
            self.progress.battles += len(records)
            self.progress.undecided += sum(not is_decided(r) for r in records)
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
            self._referee = Referee(self.spec, battles, undecided=True)
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
        write_atomic(path, json.dumps(dict(verdict), indent=1, allow_nan=False).encode() + b"\n")
        return path

    def _verdict_path(self, number: int) -> Path:
        return (self.folder / STATE).with_name(f"verdict-{number:06d}.json")

    def _set_verdicts_aside(self) -> None:
        """Verdicts after the checkpoint will be reached again, from the same games."""
        number = self.progress.verdicts
        while (path := self._verdict_path(number := number + 1)).exists():
            set_aside(path)

    # ---- state -----------------------------------------------------------------------------------------------
    def _publish(self) -> None:
        """For tools: the state without what only a resume needs."""
        state = {
            **self.pool.state_dict(), "ratings": self.ratings, "record": self.record.state_dict(),
            "rater": self.rater_setting.as_dict(), "context": self.context, "unmarked": self.unmarked,
        }
        try:
            write_state(self.folder, self.spec, state)
        except OSError as failure:
            self._give_up(f"new {STATE}", failure)

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
