"""The batched evaluation against RoyaleGym's own, battle for battle."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import royalegym
from royalegym.evaluate import play_one

from royale_lightning.battle.decks import shipped_decks
from royale_lightning.battle.opponents import make_opponent
from royale_lightning.battle.players import is_scripted
from royale_lightning.battle.round import EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.evaluate import PlannedGame, Referee, paired_games, play_games
from royale_lightning.bots.replays import replay_record
from royale_lightning.errors import UserError
from royale_lightning.parts import Part


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


OWN, ENEMY = ({name: shipped_decks()[name] for name in names} for names in (("hog_cycle", "log_bait"), ("lava_loon",)))


@pytest.mark.parametrize("deck", ["mirrored", {"own": "shipped"}, {"own": {"widen": [[0, 12], [9, "all"]]}}])
def test_drawn_decks_agree_with_royalegym_and_pair_up(bot: Bot, deck: Any) -> None:
    spec = replace(bot.spec, deck=deck)
    games = [*paired_games("bot", "scripted:push", 4, 7), *paired_games("bot", "bot", 2, 9)]
    env = Bot.of(bot.network, Part("tests.support.bots.Reflex"), spec).make_env()
    records = play_games({"bot": bot}, games, spec, battles=6)
    for game, record in zip(games, records, strict=True):
        seats = [make_opponent(n) if is_scripted(n) else bot for n in (game.blue, game.red)]
        winner, ticks, _ = play_one(env, seats[0], seats[1], game.seed)
        assert (record.winner, record.ticks) == (winner, ticks)
        # No run is asked how far it is: a pool is as wide as it gets.
        assert [sorted(p.deck) for p in env.battle_state.players] == [
            sorted(d.cards) for d in spec.dealt(game.seed, record.deal)
        ]
        assert record.deal.game_steps is None
    # The players change seats and the decks stay, so each holds both.
    assert spec.dealt(7, records[0].deal) == spec.dealt(7, records[1].deal)


def test_own_decks_change_seats_with_their_bot(bot: Bot, other: Bot) -> None:
    spec = replace(bot.spec, deck={"own": OWN, "enemy": ENEMY})
    first, second = play_games({"bot": bot}, paired_games("bot", "scripted:push", 2, 7), spec)
    assert spec.dealt(7, first.deal) == spec.dealt(7, second.deal)[::-1]
    assert spec.dealt(7, first.deal)[1].name == "lava_loon"
    # Of two bots neither is more the own one: decks stay, so that each holds both.
    pair = play_games({"bot": bot, "other": other}, paired_games("bot", "other", 2, 7), spec)
    assert spec.dealt(7, pair[0].deal) == spec.dealt(7, pair[1].deal)


def test_a_replay_has_the_decks_of_its_battle(bot: Bot) -> None:
    spec = replace(bot.spec, deck={"own": OWN, "enemy": ENEMY})
    games = paired_games("bot", "scripted:push", 2, 3)
    for record in play_games({"bot": bot}, games, spec, keep_commands=True):
        replay_record(record, spec)  # raises where it ends otherwise
