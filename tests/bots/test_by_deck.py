"""Scores by deck and card: against a count by hand, and what is shown of few battles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from royale_lightning.battle.decks import shipped_decks
from royale_lightning.battle.engine.engine import shared_engine
from royale_lightning.battle.players import own_seat
from royale_lightning.battle.round import Deal, EpisodeRecord
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.by_deck import LEAST_SEEDS, Cell, DeckScores
from royale_lightning.bots.scores import run_test
from royale_lightning.metrics.intervals import share_interval
from royale_lightning.parts import Part

FOUR = {name: shipped_decks()[name] for name in ("hog_cycle", "log_bait", "lava_loon", "xbow_cycle")}


def ended(seed: int, seat: int, winner: int) -> EpisodeRecord:
    none: Any = (0, 0)
    players = ("bot", "scripted:push") if seat == 0 else ("scripted:push", "bot")
    head = (0, 0, players, seed, winner, False, 1000, 100)
    return EpisodeRecord(*head, *[none] * 7, deal=Deal(own_seat(players)))


def pairs(outcomes: list[tuple[int, int]], first: int = 0) -> list[tuple[EpisodeRecord, int]]:
    """Winners of each seed's two games, the bot blue in the first."""
    return [(ended(first + k, seat, won[seat]), seat) for k, won in enumerate(outcomes) for seat in (0, 1)]


OUTCOMES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)


@settings(max_examples=30, deadline=None)
@given(OUTCOMES, st.sampled_from([{"own": FOUR}, {"own": FOUR, "enemy": "shipped"}, "random", "mirrored"]))
def test_every_battle_is_counted_where_it_belongs(outcomes: list[tuple[int, int]], deck: Any) -> None:
    spec = BattleSpec(deck=deck)
    games = pairs(outcomes, 100)
    found = DeckScores.of(games, spec)
    names = [c.name for c in shared_engine().cards()]
    held: dict[str, list[float]] = {}
    by_card: dict[str, list[float]] = {}
    for record, seat in games:
        dealt = spec.dealt(record.seed, record.deal)
        score = record.score(seat)
        assert score is not None
        held.setdefault(dealt[seat].name, []).append(score)
        for card in dealt[1 - seat].cards:
            by_card.setdefault(names[card], []).append(score)
    held.pop("", None)
    assert {k: (c.games, c.score) for k, c in found.own.items()} == {
        k: (len(v), pytest.approx(np.mean(v))) for k, v in held.items()
    }
    assert {k: (c.games, c.score) for k, c in found.enemy_cards.items()} == {
        k: (len(v), pytest.approx(np.mean(v))) for k, v in by_card.items()
    }
    for side in (found.own_cards, found.enemy_cards):
        assert sum(c.games for c in side.values()) == 8 * len(games)
    met = [c.games for row in found.pairs.values() for c in row.values()]
    assert sum(met) == sum(c.games for c in found.own.values())
    if isinstance(deck, str):
        assert not found.own
        assert not found.pairs
    if deck == "mirrored":
        assert found.own_cards == found.enemy_cards


@pytest.mark.parametrize(("seeds", "shown"), [(LEAST_SEEDS - 1, False), (LEAST_SEEDS, True)])
def test_few_seeds_have_no_interval_however_many_games(seeds: int, shown: bool) -> None:
    cell = Cell.of([(k % seeds, float(k % 2)) for k in range(12 * seeds)])
    assert (cell.games, cell.seeds, cell.shown) == (12 * seeds, seeds, shown)
    assert (cell.low is None) == (cell.high is None) == (not shown)


def test_the_seed_is_the_unit() -> None:
    """Twelve battles of one seed that all go its way are one observation."""
    whole = Cell.of([(k, float(k % 2)) for k in range(20) for _ in range(12)])
    one = Cell.of([(k, float(k % 2)) for k in range(20)])
    assert (whole.score, whole.low, whole.high) == (one.score, pytest.approx(one.low), pytest.approx(one.high))
    points, games = np.array([3.0, 0.5]), np.array([4, 1])
    assert share_interval(points, games).score == 3.5 / 5


def shown(found: DeckScores, width: int = 80) -> str:
    with open("/dev/null", "w") as sink:
        console = Console(record=True, width=width, file=sink)
        for table in found.tables("sampled"):
            console.print(table)
        return console.export_text()


def test_the_tables_fit_a_screen_and_hide_what_is_rare() -> None:
    spec = BattleSpec(deck="shipped")
    rng = np.random.default_rng(0)
    many = DeckScores.of(pairs([(int(a), int(b)) for a, b in rng.integers(0, 2, (600, 2))]), spec)
    text = shown(many)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 75, "three screens: decks, deck against deck, cards"
    for name in shipped_decks():
        assert text.count(name) >= 3, "in the table of decks, and as row and column of deck against deck"
    rare = [(a, b) for a, row in many.pairs.items() for b, c in row.items() if not c.shown]
    assert rare
    assert f"{len(rare)} scores on fewer than {LEAST_SEEDS} seeds" in " ".join(text.split())
    assert "…" not in text, "nothing is cut"
    few = shown(DeckScores.of(pairs([(0, 1)] * 3), spec))
    assert f"on fewer than {LEAST_SEEDS} seeds are left out; play more --games" in " ".join(few.split())
    assert "1.00" not in few
    assert "deck against deck" not in few
    # Where no deck has a name, cards are all there is to tell.
    cards = shown(DeckScores.of(pairs([(0, 1)] * 60), BattleSpec(deck="random")))
    assert "by card" in cards
    assert "deck against deck" not in cards


def test_a_test_by_deck_says_so_in_its_file(bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("royale_lightning.bots.scores.LADDER", ("push",))
    spec = replace(bot.spec, deck="shipped")
    mine = Bot.of(bot.network, Part("tests.support.bots.Reflex"), spec)
    with open("/dev/null", "w") as sink:
        console = Console(record=True, width=120, file=sink)
        file = run_test(mine, 2, 7, tmp_path, console=console, by_deck=True)
        text = console.export_text()
    held = json.loads(file.read_text())
    assert set(held["by_deck"]) == {"sampled", "sharp"}
    sampled = held["by_deck"]["sampled"]
    assert set(sampled) == {"own", "enemy", "pairs", "own_cards", "enemy_cards", "least_seeds"}
    # One seed: its two decks, both ways round.
    first, second = (d.name for d in spec.dealt(7))
    assert {k: c["games"] for k, c in sampled["own"].items()} == {first: 1, second: 1}
    assert sampled["own"][first]["low"] is None
    assert sampled["pairs"][first][second]["games"] == 1
    total = sum(s["wins"] + s["draws"] / 2 for s in held["modes"]["sampled"]["opponents"].values())
    assert sum(c["games"] * c["score"] for c in sampled["own"].values()) == pytest.approx(total)
    assert "by deck, sampled" in text
    assert "by deck, sharp" not in text
    plain = json.loads(run_test(bot, 2, 7, tmp_path, console=Console(quiet=True)).read_text())
    assert set(plain) == set(held) - {"by_deck"}
