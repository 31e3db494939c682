"""The batched evaluation against RoyaleGym's own, battle for battle."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import royalegym
from royalegym.evaluate import play_one

from royale_lightning.battle.opponents import make_opponent
from royale_lightning.battle.players import is_scripted
from royale_lightning.battle.round import EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.evaluate import PlannedGame, Referee, paired_games, play_games
from royale_lightning.errors import UserError


def facts(records: list[EpisodeRecord]) -> list[tuple[Any, ...]]:
    return [(r.players, r.seed, r.winner, r.crowns, r.ticks, r.plays, r.choices) for r in records]


def test_pairs_play_each_seed_on_both_seats() -> None:
    games = paired_games("a", "b", 3, 10)
    assert games == [
        PlannedGame("a", "b", 10), PlannedGame("b", "a", 10), PlannedGame("a", "b", 11), PlannedGame("b", "a", 11)
    ]
    with pytest.raises(UserError, match="games is 0"):
        paired_games("a", "b", 0, 10)


def test_twenty_battles_agree_with_royalegym(entity_bot: Bot, bot: Bot, other: Bot) -> None:
    players = {"entity": entity_bot, "sharp": entity_bot.sharp(), "bot": bot, "quick": bot.sharp(), "other": other}
    games = [
        *paired_games("entity", "scripted:random", 2, 4),
        *paired_games("sharp", "scripted:push", 4, 4),
        *paired_games("entity", "other", 2, 2),
        *paired_games("quick", "scripted:defend", 2, 3),  # to the tiebreak
        *paired_games("bot", "scripted:random", 2, 4),
        *paired_games("bot", "scripted:push", 6, 2),
        *paired_games("bot", "other", 2, 4),
    ]
    ours = play_games(players, games, bot.spec, battles=8)
    env = bot.make_env(other)
    for game, record in zip(games, ours, strict=True):
        seats = [
            make_opponent(n) if is_scripted(n) else players[n] for n in (game.blue, game.red)
        ]
        winner, ticks, _ = play_one(env, seats[0], seats[1], game.seed)
        crowns = tuple(p.crowns for p in env.battle_state.players)
        assert (record.winner, record.ticks, record.crowns) == (winner, ticks, crowns), game
        assert record.players == (game.blue, game.red)
    assert len({r.ticks for r in ours}) > 5
    assert max(r.ticks for r in ours) > 6000


def test_royalegyms_evaluate_takes_a_bot_and_counts_the_same(bot: Bot) -> None:
    theirs = royalegym.evaluate(bot, make_opponent("push"), bot.make_env, games=4, seed=90)
    ours = play_games({"bot": bot}, paired_games("bot", "scripted:push", 4, 90), bot.spec)
    scores = [r.score(i % 2) for i, r in enumerate(ours)]
    assert [scores.count(x) for x in (1.0, 0.0, 0.5)] == [theirs.wins, theirs.losses, theirs.draws]
    assert np.mean([r.ticks for r in ours]) == theirs.mean_ticks


def test_neither_battles_in_flight_nor_threads_nor_the_arena_change_a_battle(bot: Bot) -> None:
    games = paired_games("bot", "scripted:push", 4, 5)
    seen: list[int] = []
    few = play_games({"bot": bot}, games, bot.spec, battles=2, threads=1, on_end=lambda r: seen.append(r.seed))
    assert sorted(seen) == [5, 5, 6, 6]
    many = play_games({"bot": bot}, games, bot.spec, battles=4, threads=3)
    assert facts(few) == facts(many)
    env = play_games({"bot": bot}, games[:2], replace(bot.spec, arena="env"), battles=2)
    assert facts(env) == facts(few[:2])


def test_a_referee_plays_again_and_closes_after_a_failure(bot: Bot) -> None:
    games = paired_games("bot", "scripted:noop", 2, 1)
    with Referee(bot.spec, battles=3) as referee:
        first = referee.play({"bot": bot}, games)
        again = referee.play({"bot": bot}, games[:1])
        assert facts(again) == facts(first[:1])

        class Broken:
            layout = bot.layout

            def choose(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            referee.play({"bot": Broken()}, games)
        with pytest.raises(RuntimeError, match="closed"):
            referee.play({"bot": bot}, games)


def test_players_are_checked_before_a_battle_starts(bot: Bot) -> None:
    with Referee(bot.spec, battles=1) as referee:
        with pytest.raises(UserError, match=r"no player is named 'bto'; did you mean 'bot'"):
            referee.play({"bot": bot}, [PlannedGame("bto", "bot", 1)])
        with pytest.raises(UserError, match="opponent 'psuh' is neither"):
            referee.play({"bot": bot}, [PlannedGame("scripted:psuh", "bot", 1)])
        stranger = replace_layout(bot)
        with pytest.raises(UserError, match="only bots of one observation"):
            referee.play({"bot": stranger}, [PlannedGame("bot", "bot", 1)])
    assert play_games({}, [], bot.spec) == []


def replace_layout(bot: Bot) -> Any:
    class Other:
        layout = replace(bot.layout, name="another")
        choose = staticmethod(bot.choose)

    return Other()


def test_an_undecided_battle_is_an_error(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    from royale_lightning.battle.steps.arena import Arena

    real = Arena._record
    monkeypatch.setattr(Arena, "_record", lambda self, e, game: replace(real(self, e, game), winner=-1))
    with pytest.raises(RuntimeError, match="ended undecided"):
        play_games({"bot": bot}, [PlannedGame("bot", "scripted:noop", 4)], bot.spec)


def test_limits_of_training_do_not_cut_an_evaluation(bot: Bot) -> None:
    spec = BattleSpec(max_ticks=200, reward="potential")
    (record,) = play_games({"bot": bot}, [PlannedGame("bot", "scripted:noop", 4)], spec)
    assert record.ticks > 200
    assert asdict(record)["commands"] == []
