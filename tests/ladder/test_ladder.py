"""The ladder's state: what training teaches it, who leaves, and that all ranks hold the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.evaluate import PlannedGame
from royale_lightning.errors import UserError
from royale_lightning.ladder.admission import Cadence, Judges, consider
from royale_lightning.ladder.eviction import SpreadEviction
from royale_lightning.ladder.gate.gate import Judging, PromotionGate
from royale_lightning.ladder.gate.verdict import GateContext, Verdict
from royale_lightning.ladder.ladder import Ladder, read_state
from royale_lightning.ladder.pool import Member
from royale_lightning.ladder.results import Result
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
    """Two ranks in turn: what the leader made is handed to the follower, as a broadcast does."""
    made: list[Any] = []

    def leading(make: Callable[[], Any]) -> Any:
        made.append(make())
        return made[-1]

    a = opened(tmp_path, share=leading)
    b = Ladder(BattleSpec())
    b.open(tmp_path, leads=False, share=lambda make: made.pop(0))
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
