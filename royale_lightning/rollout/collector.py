"""Self-play rollouts: rounds of battles, one batched forward per policy and round, rows into the heap."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from ..battle.players import LEARNER, is_snapshot, own_seat
from ..battle.prepare import prepare
from ..battle.round import CHOICE, IDLE, RUNNING, TRUE_START, Assignment, Deal, EpisodeRecord, SavedBattle
from ..battle.spec import BattleSpec
from ..battle.steps.sources import RolloutSource
from ..battle.streams import generator, stream_seed, uniforms
from ..bots.frozen import FrozenActors
from ..errors import UserError
from ..ladder.matchmaker import Matchmaker, OpponentTable
from ..nn.critic import HIDDEN, Asymmetric
from ..nn.distribution import MaskedCategorical, widest_float
from ..nn.protocol import ActorCritic
from ..nn.rows import rows_to_tensor, unpack
from ..run.screen import say
from .advantage import Cells
from .frame_index import FrameIndex
from .lost_battles import Voids
from .minibatch import Staging
from .plan import StartAuthority

#: Longest random start of a battle, in game steps; most battles last 360.
STAGGER_STEPS = 300
#: How often a rollout may lose all its battles to dying workers before it gives up; the heap has room for their rows.
_MOST_VOIDS = 4
#: Rows of one forward where nothing but the values is wanted.
_CHUNK = 512


class Cancelled(Exception):
    """A collection that was told to end before its rollout was whole."""


@dataclass
class Rollout:
    """One iteration's experience, tensors on the device.

    Attributes:
        rows: uint8 ``[n, frame_bytes]``, a view of the heap: each row's newest frame.
        action, log_prob, value: ``[n]``.
        choice: bool ``[n]``, rows of the actor's loss.
        cells: the rectangle of scalars.
        cut_value: float32 ``[slots]``.
        episodes: finished in this iteration, staggered ones included, ascending by round and battle.
        ended_in: the round each of them ended in.
        game_steps: of this rank, the staggered ones left out.
        start_steps: the same by the kind of start of their episode.
        forced_share: share of the learner's decisions that were forced.
        seconds: wall time by phase: ``step``, ``inference``, ``other``.
        heap: uint8 ``[places, frame_bytes]``.
        offers: int16 ``[n, HAND]``, cards that could be played at each row, as in ``Round``; all -1 on forced ones.
        hidden: uint8 ``[n, HIDDEN_BYTES]``, what the critic may know beside each row.
        value_errors: per episode and seat, mean absolute advantage of the rows it left in this iteration, None without
            any; there once advantages are.
        history: int64 ``[n, frames]``, places of each row's frames in the heap, oldest first; None for one frame.
        battles_voided, rows_voided: lost with a worker since the rollout before; the rows are not among ``rows``.
        faults: workers lost since then, by way.
        lag: updates the learner has made since it was copied for this rollout.
        waited: seconds the learner waited for a rollout that another thread collected; None for its own.
    """

    rows: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    choice: Tensor
    cells: Cells
    cut_value: Tensor
    episodes: list[EpisodeRecord]
    ended_in: list[int]
    game_steps: int
    start_steps: dict[str, int]
    rounds: int
    forced_share: float
    seconds: dict[str, float]
    heap: Tensor
    offers: np.ndarray
    hidden: Tensor
    history: Tensor | None = None
    value_errors: list[tuple[float | None, float | None]] = field(default_factory=list)
    battles_voided: int = 0
    rows_voided: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    lag: int = 0
    waited: float | None = None

    def take(self, at: Tensor) -> Tensor:
        """Whole rows uint8 ``[B, row_bytes]``, the very bytes the policy acted on, by index int64 ``[B]``."""
        return self.rows[at] if self.history is None else self.heap[self.history[at]].flatten(1)


class Collector:
    """Plays one rank's battles on and on, and hands out rollouts.

    Args:
        source: the battles.
        spec: what they play.
        matchmaker: who plays them.
        seed: of every named stream.
        first: global id of the first battle.
        rows: rows a rollout must hold.
        max_rounds: rounds after which a rollout gives up.
        stagger: start each battle's first episode at a random moment.
        count_forced: whether forced rows count as the actor's rows.
        device: where the heap lies and the policies run.
        frozen: plays the snapshots that the matchmaker names; unset, there are none.
        starts: says which episodes begin in the middle of a battle; unset, none does.
        keep_commands: whether episodes keep both seats' commands, so that they can be replayed.
        precision: makes the context of every forward of the learner, the one it is trained under, in whichever thread
            collects; unset, none. Snapshots play in float32, as the ladder judges them.

    Attributes:
        table: the snapshots that new episodes may meet; set between two rollouts.
        game_steps: of the run, by which its pools of cards widen; set with it.
    """

    def __init__(
        self, source: RolloutSource, spec: BattleSpec, matchmaker: Matchmaker, *, seed: int, first: int, rows: int,
        max_rounds: int, stagger: bool, count_forced: bool, device: torch.device, frozen: FrozenActors | None = None,
        starts: StartAuthority | None = None, keep_commands: bool = False,
        precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.source = source
        self.layout = prepare(spec).row_layout
        self.actions = prepare(spec).action_layout
        self.matchmaker = matchmaker
        self.frozen = frozen
        self.starts = starts
        self.table = OpponentTable()
        self.game_steps = 0
        self.seed = seed
        self.first = first
        self.rows = rows
        self.max_rounds = max_rounds
        self.stagger = stagger
        self.count_forced = count_forced
        self.keep_commands = keep_commands
        self.precision = precision
        self.device = device
        battles = source.round.battles
        self.slots = 2 * battles
        self.ordinals = np.full(battles, -1, dtype=np.int64)
        self.players: list[tuple[str, str]] = [("", "")] * battles
        self.begun = [TRUE_START] * battles
        self.ended = np.ones(battles, dtype=bool)
        self._collecting = False
        #: Set from another thread to end :meth:`collect` at its next round.
        self.cancelled = False
        self._staging = Staging(self.slots, self.layout.row_bytes, device)
        # Lost since the last rollout ended: at a checkpoint, or while nobody asked.
        self._voided = 0
        self._faults_told = dict(source.faults)
        capacity = rows + (1 + _MOST_VOIDS) * self.slots
        self._capacity = capacity
        self._frames = FrameIndex(self.layout, self.slots, capacity) if self.layout.frames > 1 else None
        if self._frames is not None:
            capacity += self._frames.places
        self._frame_bytes = self.layout.single.row_bytes
        self._heap = torch.zeros((capacity, self._frame_bytes), dtype=torch.uint8, device=device)

    # ---- assignments -----------------------------------------------------------------------------------------
    def _assign(self) -> list[Assignment]:
        """Assignments for the battles that ended, ascending by battle."""
        out = []
        for b in np.flatnonzero(self.ended & ~self.source.down):
            self.ordinals[b] += 1
            battle, ordinal = self.first + int(b), int(self.ordinals[b])
            players, start = self.matchmaker.players(battle, ordinal, self.table), TRUE_START
            stagger = 0
            if self.stagger and ordinal == 0:
                stagger = int(generator(self.seed, "stagger/length", battle).integers(STAGGER_STEPS))
            elif self.starts is not None:
                players, start = self.starts.begin(battle, ordinal, players)
            self.players[b], self.begun[b] = players, start
            # 63 bits: RoyaleGym seeds its generators with non-negative integers.
            seed = stream_seed(self.seed, "battle", battle, ordinal) >> 1
            keep = self.keep_commands or self.starts is not None
            deal = Deal(own_seat(players), self.game_steps)
            out.append(Assignment(battle, ordinal, players, seed, stagger, keep, start, deal))
        if self.frozen is not None:
            self.frozen.require({p for pair in self.players for p in pair if is_snapshot(p)})
        return out

    def _names(self) -> np.ndarray:
        return np.array([p for pair in self.players for p in pair], dtype=object)

    def _uniforms(self, slots: np.ndarray) -> Tensor:
        """Draws of these slots' decisions: a hash of (seed, battle, ordinal, game step, seat)."""
        r = self.source.round
        b = slots // 2
        at = (self.first + b, r.ordinal[b], r.game_step[b], slots % 2)
        both = np.stack([uniforms(self.seed, "act/choice", *at), uniforms(self.seed, "act/tile", *at)], axis=1)
        return torch.from_numpy(both).to(widest_float(self.device)).to(self.device)

    # ---- collection ------------------------------------------------------------------------------------------
    @torch.no_grad()
    def collect(self, policy: ActorCritic, gamma: float = 1.0) -> Rollout:
        """Play rounds until the heap holds the rows of an iteration.

        Args:
            policy: the learner; its values come last, of all rows at once, where its critic stands apart.
            gamma: discount per game step, for the rewards inside a round.
        """
        r = self.source.round
        self._collecting = True
        self.source.revive()
        self.source.set_gamma(gamma)
        self._void_between()
        voids = Voids(battles=self._voided)
        self._voided = 0
        heap, n = self._heap, 0
        action, log_prob, value, choice = [], [], [], []
        history: list[np.ndarray] = []
        offers: list[np.ndarray] = []
        hidden: list[np.ndarray] = []
        if self._frames is not None:
            self._frames.begin()
        cells: list[tuple[np.ndarray, ...]] = []
        finals: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
        episodes: list[EpisodeRecord] = []
        ended_in: list[int] = []
        seconds = dict.fromkeys(("step", "inference", "other"), 0.0)
        start_steps: Counter[str] = Counter()
        decisions = chosen = 0
        names = self._names()
        learner = names == LEARNER
        mark = time.perf_counter()

        def spent(phase: str) -> None:
            nonlocal mark
            now = time.perf_counter()
            seconds[phase] += now - mark
            mark = now

        while True:
            if self.cancelled:
                raise Cancelled
            if n - len(voids.rows) >= self.rows:
                self._observe_cut(learner)
                lost = self.source.take_voided()
                # One that came to its end in this round lost nothing.
                if not len(lost := lost[~self.ended[lost]]):
                    break
                self._void(voids, cells, lost)
                continue
            if n + self.slots > self._capacity:
                raise UserError(
                    f"{voids.battles} battles were lost with their workers in one iteration; see why workers fail, or "
                    "set rollout.source to inline"
                )
            if self.source.down.all():
                self.source.revive()
            if len(cells) >= self.max_rounds:
                raise UserError(
                    f"a rollout took {self.max_rounds} rounds and holds {n} of {self.rows} rows; lower "
                    "rollout.rows_per_iteration, or raise rollout.max_rounds if battles are meant to be this quiet"
                )
            if self.ended.any():
                fresh = self._assign()
                names = self._names()
                learner = names == LEARNER
            else:
                fresh = []
            row_of = np.full(self.slots, -1, dtype=np.int64)
            mine = np.flatnonzero(learner & (r.kind > 0))
            spent("other")
            if len(mine):
                k = len(mine)
                row_of[mine] = np.arange(n, n + k)
                rows = self._staging.put(r.rows, mine)
                if self._frames is not None:
                    heap = self._heap = self._frames.roomy(heap, mine)
                heap[n : n + k] = rows[:, -self._frame_bytes :]
                a, lp, v = self._act(policy, rows, mine)
                is_choice = r.kind[mine] == CHOICE
                if self._frames is not None:
                    history.append(self._frames.add(heap, r.rows[mine], mine, is_choice, n))
                r.action[mine] = a.cpu().numpy()
                offers.append(np.where(is_choice[:, None], r.offers[mine], -1))
                hidden.append(r.hidden[mine])
                action.append(a)
                log_prob.append(lp)
                value.append(v)
                choice.append(is_choice)
                chosen += int(is_choice.sum())
                n += k
            self._others(names, learner)
            spent("inference")
            self.source.advance(fresh)
            spent("step")
            for start, steps in zip(self.begun, r.duration.tolist(), strict=True):
                start_steps[start.kind] += steps
            decisions += int((np.repeat(r.duration, 2) * learner).sum())
            cells.append((row_of, r.reward.copy(), np.repeat(r.duration, 2), np.repeat(r.end, 2), learner))
            if r.final.any():
                at = np.flatnonzero(r.final & learner)
                finals.append((len(cells) - 1, at, r.final_rows[at].copy(), r.final_hidden[at].copy()))
            episodes += map(self._with_state, r.episodes)
            ended_in += [len(cells) - 1] * len(r.episodes)
            self.ended = r.end != RUNNING
            self._void(voids, cells, self.source.take_voided())
            spent("other")

        rounds = len(cells)
        final_value = self._final_values(policy, finals, rounds)
        cut_value = self._cut_values(policy, learner)
        beside = torch.from_numpy(np.concatenate(hidden)).to(self.device)
        frames = torch.from_numpy(np.concatenate(history)).to(self.device) if history else None
        values = torch.cat(value)
        if isinstance(policy, Asymmetric):  # all rows at once: the actor had no use for them on the way
            values = self._values(policy, heap[:n] if frames is None else heap[frames].flatten(1), beside)
        voids.put_final_values(final_value, values)
        kept, new = voids.kept(n)
        if voids.rows:
            cells = [(new[row], *rest) for row, *rest in cells]
        stays = torch.from_numpy(kept).to(self.device)
        spent("inference")
        stack = [torch.from_numpy(np.stack([c[i] for c in cells])).to(self.device) for i in range(5)]
        out = Rollout(
            rows=heap[stays] if voids.rows else heap[:n],
            action=torch.cat(action)[stays],
            log_prob=torch.cat(log_prob)[stays],
            value=values[stays],
            choice=torch.from_numpy(np.concatenate(choice)[kept] | self.count_forced).to(self.device),
            cells=Cells(stack[0], stack[1], stack[2], stack[3], final_value, stack[4].bool()),
            cut_value=cut_value,
            episodes=episodes,
            ended_in=ended_in,
            game_steps=start_steps.total(),
            start_steps=dict(start_steps),
            rounds=rounds,
            forced_share=1.0 - chosen / max(1, decisions),
            seconds=seconds,
            heap=heap,
            offers=np.concatenate(offers)[kept],
            hidden=beside[stays],
            history=None if frames is None else frames[stays],
            battles_voided=voids.battles,
            rows_voided=len(voids.rows),
            faults={k: v - self._faults_told[k] for k, v in self.source.faults.items()},
        )
        self._faults_told = dict(self.source.faults)
        self._collecting = False
        spent("other")
        return out

    def _with_state(self, record: EpisodeRecord) -> EpisodeRecord:
        """A record with the bytes of the save state it began from; they did not come back from the worker."""
        if record.from_true_start:
            return record
        return replace(record, start=self.begun[record.battle - self.first])

    def _void(self, voids: Voids, cells: list[tuple[np.ndarray, ...]], lost: np.ndarray) -> None:
        """Cut battles lost since the round just closed began; they begin anew once their worker is back."""
        voids.cut(cells, lost)
        self.ended[lost] = True
        if self._frames is not None:
            self._frames.end(np.repeat(self.ended, 2))

    def _void_between(self) -> None:
        """Note battles lost between two rollouts; one that had ended, or had not begun, lost nothing."""
        lost = self.source.take_voided()
        self._voided += int((~self.ended[lost]).sum())
        self.ended[lost] = True

    def _act(
        self, policy: ActorCritic, rows: Tensor, slots: np.ndarray
    ) -> tuple[Tensor, Tensor, Tensor]:
        obs = unpack(rows, self.layout)
        with self.precision():
            logits, value = policy(obs)
            # Inside: tiles may be computed only now.
            dist = MaskedCategorical(logits, obs["action_mask"], self.actions)
            return *dist.sample_with_log_prob(self._uniforms(slots)), value.float()

    def _others(self, names: np.ndarray, learner: np.ndarray) -> None:
        """Actions of the snapshots."""
        r = self.source.round
        slots = np.flatnonzero((r.kind == CHOICE) & ~learner)
        if len(slots):
            assert self.frozen is not None, "somebody who is not scripted has a choice"
            rows = self._staging.put(r.rows, slots)
            r.action[slots] = self.frozen.act(names[slots], rows, self._uniforms(slots)).cpu().numpy()

    def _values(self, policy: ActorCritic, rows: Tensor, hidden: Tensor) -> Tensor:
        """float32 ``[n]`` of rows and what lies beside them, on the device."""
        parts = []
        with self.precision():
            for i in range(0, len(rows), _CHUNK):
                obs = unpack(rows[i : i + _CHUNK], self.layout)
                if isinstance(policy, Asymmetric):
                    obs[HIDDEN] = hidden[i : i + _CHUNK]
                parts.append(policy.value(obs).float())
        return torch.cat(parts)

    def _put(self, rows: np.ndarray) -> Tensor:
        return rows_to_tensor(rows, self.device)

    def _final_values(
        self, policy: ActorCritic, finals: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]], rounds: int
    ) -> Tensor:
        out = torch.zeros((rounds, self.slots), dtype=torch.float32, device=self.device)
        if finals:
            t = np.concatenate([np.full(len(at), k) for k, at, *_ in finals])
            s, rows, hidden = (np.concatenate([f[i] for f in finals]) for i in (1, 2, 3))
            if len(s):
                values = self._values(policy, self._put(rows), self._put(hidden))
                out[torch.from_numpy(t).to(self.device), torch.from_numpy(s).to(self.device)] = values
        return out

    def _observe_cut(self, learner: np.ndarray) -> None:
        """Have the running battles' forced learner slots encoded as well, for their values at the cut."""
        at = np.flatnonzero(learner & ~np.repeat(self.ended, 2))
        self.source.observe(at[self.source.round.kind[at] == IDLE])

    def _cut_values(self, policy: ActorCritic, learner: np.ndarray) -> Tensor:
        """V of every learner slot's current observation; 0 where the battle just ended."""
        r = self.source.round
        out = torch.zeros(self.slots, dtype=torch.float32, device=self.device)
        at = np.flatnonzero(learner & ~np.repeat(self.ended, 2))
        if len(at):
            values = self._values(policy, self._put(r.rows[at]), self._put(r.hidden[at]))
            out[torch.from_numpy(at).to(self.device)] = values
        return out

    # ---- state -----------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists; between two rollouts.

        Inside one (an interrupt) the battles stand in the middle of a round, and the state has them begin anew.
        """
        if self._collecting:
            return {"ordinals": self.ordinals.tolist(), "ended": [True] * len(self.ended), "voided": 0, "battles": []}
        saved = self.source.save()
        self._void_between()
        return {
            "ordinals": self.ordinals.tolist(),
            "ended": self.ended.tolist(),
            "voided": self._voided,
            "battles": msgspec.to_builtins(saved),  # a start's bytes as text: torch loads none safely
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the battles in flight where they stood, before the first rollout.

        Raises:
            UserError: the state is of another number of battles, or a battle does not replay to its saved state.
        """
        if len(state["ordinals"]) != len(self.ordinals):
            raise UserError(
                f"the checkpoint has {len(state['ordinals'])} battles in flight and rollout.battles is "
                f"{len(self.ordinals)}; resume with the same number"
            )
        self.ordinals[:] = state["ordinals"]
        self.ended[:] = state["ended"]
        self._voided = state["voided"]
        saved = [msgspec.convert(s, SavedBattle) for s in state["battles"]]
        self.source.restore([s for s in saved if self._seat_players(s.assignment)])

    def _seat_players(self, assignment: Assignment) -> bool:
        """Seat the players of a battle in flight; False for one whose snapshot is lost, which then begins anew."""
        b = assignment.battle - self.first
        snapshots = [p for p in assignment.players if is_snapshot(p)]
        try:
            if self.frozen is not None:
                self.frozen.require(snapshots)
        except UserError as lost:
            say(f"{lost}; battle {assignment.battle} begins anew without it")
            self.ended[b] = True
            return False
        self.players[b], self.begun[b] = assignment.players, assignment.start
        return True
