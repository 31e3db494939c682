"""The ladder's state: what training teaches it, who leaves, and that all ranks hold the same."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.battle.steps.arena import Arena
from royale_lightning.bots.evaluate import PlannedGame
from royale_lightning.errors import UserError
from royale_lightning.ladder.admission import Cadence, Judges, consider
from royale_lightning.ladder.eviction import SpreadEviction
from royale_lightning.ladder.gate.field_checks import too_many_dropped
from royale_lightning.ladder.gate.gate import Judging, PromotionGate
from royale_lightning.ladder.gate.pairs import PairRequest, PairTable
from royale_lightning.ladder.gate.verdict import Condition, GateContext, Verdict
from royale_lightning.ladder.ladder import Ladder
from royale_lightning.ladder.pool import Member
from royale_lightning.ladder.price import LEAST_SECONDS, SLACK, next_price
from royale_lightning.ladder.published import read_state
from royale_lightning.ladder.results import Result
from royale_lightning.ladder.schedule import affordable
from royale_lightning.nn import actor_state_dict
from tests.support.bots import make_bot


class Strict(PromotionGate):
    """Rejects everybody without a battle."""

    def judge(self, context: GateContext) -> Judging:
        yield from ()
        return Verdict.of(context, "rejected", "nobody is good enough")


def opened(folder: Path, members: int = 0, **kwargs: Any) -> Ladder:
    ladder = Ladder(BattleSpec())
    ladder.open(folder, **kwargs)
    for i in range(members):
        bot = make_bot(seed=i)
        snapshot = ladder.store.add(bot.record, actor_state_dict(bot.network))
        ladder.pool.admit(Member(snapshot, "cadence", i, 100 * i))
    return ladder


def trained(blue: str, red: str, winner: int, seed: int, start: str = "true") -> Result:
    return Result(
        kind="train", blue=blue, red=red, seed=seed, winner=winner, ticks=3600, crowns=(1, 0), iteration=1, game_step=9,
        start=start,
    )


def test_the_learner_meets_whom_it_loses_to_and_says_when_it_knows_nothing(tmp_path: Path) -> None:
    ladder = opened(tmp_path, 3)
    weak, strong, unmet = ladder.pool.ids
    table = ladder.table()
    assert table.probabilities == pytest.approx([1 / 3] * 3)
    assert ladder.table_metrics()["ladder/pfsp_fallback"] == 1.0
    games = [trained("live:0", weak, 0, s) for s in range(30)]
    games += [trained(strong, "live:0", 0, 99 + s) for s in range(30)]
    # None of these says how the learner fares against a member.
    noise = [
        trained("live:0", "live:0", 1, 500), trained("live:0", "scripted:push", 1, 501),
        trained("live:0", unmet, 0, 502, "pool"), trained(unmet, "live:0", 1, 503, "staggered"),
    ]
    ladder.note_training([*games, *noise])
    table = ladder.table()
    chance = dict(zip(table.snapshots, table.probabilities, strict=True))
    assert chance[strong] > chance[unmet] > chance[weak] >= 0.2 / 3 - 1e-12
    metrics = ladder.table_metrics()
    assert metrics["ladder/pfsp_fallback"] == 0.0
    ladder.close()
    again = Ladder(BattleSpec())
    again.load_state_dict(json.loads(json.dumps(ladder.state_dict())))
    again.open(tmp_path)
    assert again.table() == table
    again.close()


def test_a_full_pool_lets_somebody_go_and_forgets_the_record(tmp_path: Path) -> None:
    ladder = opened(tmp_path, 3)
    judges = Judges(Strict(), SpreadEviction(capacity=3), ())
    ladder.note_training([trained("live:0", m, 0, i) for i, m in enumerate(ladder.pool.ids)])
    before = ladder.pool.ids
    verdict = ladder.act(lambda: consider(ladder, make_bot(seed=7), judges, "cadence", 5, 500))
    assert verdict["admitted"]
    (gone,) = verdict["evicted"]
    assert gone in before[1:], "the first stays"
    assert gone not in ladder.pool
    assert gone not in ladder.record.games
    assert gone in ladder.store, "its file stays"
    assert read_state(tmp_path)["members"] == [m.__dict__ for m in ladder.pool.members]
    ladder.close()


def test_rejections_are_counted_and_weights_in_the_pool_are_no_candidates(tmp_path: Path) -> None:
    ladder = opened(tmp_path, 1)
    judges = Judges(Strict(), SpreadEviction(), ())
    for i in (1, 2):
        verdict = ladder.act(lambda i=i: consider(ladder, make_bot(seed=i), judges, "gate", i, 100 * i))  # type: ignore[misc]
        assert (verdict["outcome"], verdict["admitted"]) == ("rejected", False)
        assert ladder.progress.rejections == i
    same = ladder.act(lambda: consider(ladder, make_bot(seed=0), judges, "gate", 3, 300))
    assert (same["outcome"], same["admitted"]) == ("skipped", False)
    starved = ladder.act(lambda: consider(ladder, make_bot(seed=2), judges, "starved", 4, 400))
    assert starved["admitted"]
    assert ladder.progress.rejections == 0
    assert [p.name for p in sorted((tmp_path / "ladder").glob("verdict*"))] == [
        f"verdict-{n:06d}.json" for n in (1, 2, 3, 4)
    ]
    ladder.close()


def test_a_rule_follows_from_what_is_paid_for(tmp_path: Path) -> None:
    cadence = Cadence(first_game_steps=1000, growth=0.25, share=0.1, gate_battles=10)
    ladder = opened(tmp_path)
    assert cadence.rule(ladder, 999) is None
    assert cadence.rule(ladder, 1000) == "first"
    ladder.pool.admit(Member("a", "first", 1, 1000))
    ladder.progress.newest = ladder.progress.admitted = 1000
    assert cadence.rule(ladder, 1100) is None
    assert cadence.rule(ladder, 1250) == "cadence"
    each = ladder.battle_steps
    ladder.progress.newest = 1000
    assert cadence.rule(ladder, int(100 * each)) == "gate", "a tenth pays for ten battles"
    ladder.spent["gate"] = int(10 * each)
    ladder.progress.battles = 10
    ladder.progress.admitted = int(90 * each)
    assert cadence.rule(ladder, int(150 * each)) is None, "earned fifteen, spent ten"
    assert cadence.rule(ladder, int(180 * each)) == "starved"
    assert cadence.rule(ladder, int(200 * each)) == "gate"
    ladder.close()


def test_ranks_that_follow_hold_the_leaders_state(tmp_path: Path) -> None:
    """Two ranks in turn: what the leader made or raised is handed to the follower, as ``Ranks.from_rank_zero`` does."""
    made: list[Any] = []

    def leading(make: Callable[[], Any]) -> Any:
        try:
            made.append(make())
        except Exception as failure:
            made.append(failure)
            raise
        return made[-1]

    def following(make: Callable[[], Any]) -> Any:
        got = made.pop(0)
        if isinstance(got, Exception):
            raise got
        return got

    a = opened(tmp_path, share=leading)
    b = Ladder(BattleSpec())
    b.open(tmp_path, leads=False, share=following)
    judges = Judges(Strict(), SpreadEviction(), ())
    a.act(lambda: consider(a, make_bot(), judges, "first", 1, 100))
    b.act(lambda: pytest.fail("a follower does nothing itself"))
    assert b.pool.members == a.pool.members
    assert b.progress == a.progress

    def wrong() -> None:
        raise UserError("no")

    for rank in (a, b):
        with pytest.raises(UserError, match="no"):
            rank.act(wrong)
    assert a.table() == b.table()
    a.close()
    b.close()
    # What goes wrong while files are opened is no other, or the follower would wait for ever.
    (tmp_path / "results.jsonl").write_text("no result\n")
    a, b = Ladder(BattleSpec()), Ladder(BattleSpec())
    with pytest.raises(UserError, match="line 1 is not a result"):
        a.open(tmp_path, share=leading)
    with pytest.raises(UserError, match="line 1 is not a result"):
        b.open(tmp_path, leads=False, share=following)


def test_a_battle_is_played_and_paid_for_once(tmp_path: Path) -> None:
    ladder = opened(tmp_path)
    games = [PlannedGame("scripted:push", "scripted:random", 5), PlannedGame("scripted:random", "scripted:push", 5)]
    first = ladder.play(games, "rating", 1, 100)
    spent = ladder.spent["rating"]
    assert spent == ladder.battle_steps * 2 > 0
    assert ladder.play([games[1], games[0], games[0]], "gate:3", 2, 200) == [first[1], first[0], first[0]]
    assert ladder.spent == {"rating": spent}
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2
    ladder.close()


# ---- what a run can do without -----------------------------------------------------------------------------------
class SixPairs(PromotionGate):
    """Rejects whoever it meets, and judges nobody whose battles were not finished."""

    def judge(self, context: GateContext) -> Judging:
        (scores,) = yield (PairRequest(context.candidate, context.champion or "", range(6)),)
        lost = too_many_dropped([PairTable.of(scores)])
        met = Condition("champion", False, lost or "met", 12, {}, judged=lost is None)
        return Verdict.of(context, "rejected", met.why, (met,))


def test_a_battle_without_an_end_is_counted_and_judges_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = opened(tmp_path, 1)
    real = Arena._record

    def cut(arena: Arena, event: Any, game: Any) -> Any:
        record = real(arena, event, game)
        return replace(record, winner=-1) if record.seed == 4 else record

    monkeypatch.setattr(Arena, "_record", cut)
    judges = Judges(SixPairs(), SpreadEviction(), ())
    verdict = ladder.attempt(
        lambda: consider(ladder, make_bot(seed=1), judges, "gate", 1, 100), "gate", 1, 100
    )
    assert verdict is not None
    assert verdict["why"] == "1 of 6 pairs were not finished"
    p = ladder.progress
    assert (p.undecided, p.battles, p.failures) == (2, 12, 0)
    assert (p.rejections, p.unpromoted) == (0, 0), "nothing was said about the candidate"
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 10
    ladder.close()


@contextmanager
def no_room() -> Iterator[None]:
    """The system refuses every write, as on a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_costs_a_verdict_and_leaves_the_ladder_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ladder = opened(tmp_path, 2)
    ladder.table()
    judges = Judges(Strict(), SpreadEviction(), ())
    before = ladder.state_dict()

    def act(steps: int) -> Any:
        return ladder.attempt(lambda: consider(ladder, make_bot(seed=9), judges, "cadence", 1, steps), "gate", 1, steps)

    with no_room():
        assert act(100) is None
    assert "no gate this time" in capsys.readouterr().out
    after = ladder.state_dict()
    # The snapshot, and the state for tools.
    assert after.pop("progress") == {**before.pop("progress"), "failures": 2}
    assert after == before
    assert ladder.table().snapshots == ladder.pool.ids
    assert act(200)["admitted"]
    with no_room(), pytest.raises(UserError, match=r"cannot write .*results.jsonl .*; make room and continue"):
        ladder.note_training([trained("live:0", ladder.pool.ids[0], 0, 1)])
    ladder.close()


def test_who_cannot_be_read_is_left_out_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pytest.importorskip("resource")
    ladder = opened(tmp_path, 3)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    monkeypatch.setattr(ladder, "_publish", lambda: None)  # which needs a file too
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        assert ladder.table().snapshots == ()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(ladder.left_out) == len(ladder.pool) == 3
    assert capsys.readouterr().out.count("nobody meets it until it can be") == 3
    assert ladder.table().snapshots == ladder.pool.ids
    assert ladder.left_out == ()
    # One that is met in the middle of a gate costs the gate, and leaves at the next table.
    lost = ladder.pool.ids[2]
    file = ladder.store.path(lost) / "actor.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    games = [PlannedGame(lost, "scripted:noop", 1)]
    assert ladder.attempt(lambda: ladder.play(games, "gate:1", 1, 100), "gate", 1, 100) is None
    assert ladder.progress.failures == 1
    assert lost in ladder.pool
    assert lost not in ladder.table().snapshots
    assert lost not in ladder.pool
    ladder.close()


def test_candidates_in_a_row_that_no_gate_promoted(tmp_path: Path) -> None:
    """Being taken in after five rejections ends the row of rejections, and not that nobody was better."""

    class Admits(PromotionGate):
        def judge(self, context: GateContext) -> Judging:
            yield from ()
            return Verdict.of(context, "admitted" if context.rejections == 4 else "rejected", "as it goes")

    class Promotes(PromotionGate):
        def judge(self, context: GateContext) -> Judging:
            yield from ()
            return Verdict.of(context, "promoted", "better")

    ladder = opened(tmp_path, 1)
    seen = []
    for i in range(1, 8):
        gate = Promotes() if i == 7 else Admits()
        judges = Judges(gate, SpreadEviction(), ())
        ladder.act(lambda i=i, j=judges: consider(ladder, make_bot(seed=i), j, "gate", i, 100 * i))  # type: ignore[misc]
        seen.append((ladder.progress.rejections, ladder.progress.unpromoted))
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4), (0, 5), (1, 6), (0, 0)]
    ladder.close()


# ---- what it costs -----------------------------------------------------------------------------------------------
@given(st.floats(1e-3, 1e3), st.sampled_from([1, 2, 4, 8, 64]))
def test_a_price_covers_what_was_measured_and_noise_does_not_move_it(measured: float, price: int) -> None:
    found = next_price(price, measured)
    assert measured <= SLACK * found
    assert found == 1 or measured > found / 10, "no dearer than it must be"
    assert next_price(found, measured) == found
    if found != price:
        assert next_price(found, measured / 3 if found > price else measured * 3) == found, "a change is not taken back"


class Clock:
    """A machine on which a game step of training takes a millisecond and one of the ladder ``dear`` times as much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dear: float) -> None:
        self.now, self.dear = 0.0, dear
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(Ladder, "_publish", lambda self: None)  # a thousand synced files say nothing here

    def trains(self, steps: int) -> None:
        self.now += steps / 1000

    def plays(self, ladder: Ladder, steps: int) -> None:
        self.now += self.dear * steps / 1000
        ladder.seconds += self.dear * steps / 1000
        ladder.spent["rating"] += steps
        ladder.progress.battles += 1


def priced(ladder: Ladder, clock: Clock, first: int, last: int, share: float = 0.1) -> list[int]:
    """The price after each of these iterations of 20,000 game steps, a share of which pays for the ladder."""
    found = []
    for i in range(first, last + 1):
        clock.trains(20_000)
        steps = affordable(share, 20_000 * i, ladder.spent["rating"], 1.0, ladder.progress.price)
        if steps > 0:
            ladder.attempt(lambda n=steps: clock.plays(ladder, n), "rating", i, 20_000 * i)  # type: ignore[misc]
        found.append(ladder.progress.price)
    return found


def test_a_dear_ladder_keeps_to_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half as dear again as training, and asked for little: the tenth is kept, and no clock decides anything.
    for dear, share, least in ((0.5, 0.1, 1), (1.2, 0.1, 1), (1.7, 0.04, 1), (1.7, 0.1, 2), (6.0, 0.1, 8)):
        clock = Clock(monkeypatch, dear)
        ladder = opened(tmp_path / f"{dear}-{share}")
        prices = priced(ladder, clock, 1, 1000, share)
        assert prices[-1] == least
        assert max(prices) == least
        assert ladder.time_share < 0.13
        assert (ladder.folder / "ladder/prices.jsonl").exists() == (least > 1)
        assert clock.dear * ladder.spent.total() > 1000 * LEAST_SECONDS
        ladder.close()


def test_a_resumed_run_pays_what_the_unbroken_one_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a decision and continued from before it, where the clock would say otherwise."""
    clock = Clock(monkeypatch, 6.0)
    ladder = opened(tmp_path)
    prices = priced(ladder, clock, 1, 4)
    state = json.loads(json.dumps(ladder.state_dict()))
    prices += priced(ladder, clock, 5, 12)
    assert prices[:4] == [1] * 4
    assert prices[4:] == [8] * 8, "decided after the checkpoint"
    spent = ladder.spent.total()
    ladder.close()
    clock = Clock(monkeypatch, 0.1)
    again = Ladder(BattleSpec())
    again.load_state_dict(state)
    again.open(tmp_path, game_steps=80_000)
    assert priced(again, clock, 5, 12) == prices[4:]
    assert again.spent.total() == spent
    again.close()
    other = Ladder(BattleSpec())
    other.load_state_dict(state)
    other.open(tmp_path / "elsewhere", game_steps=80_000)
    assert priced(other, clock, 5, 12) != prices[4:], "a fork is a run of its own"
    other.close()
