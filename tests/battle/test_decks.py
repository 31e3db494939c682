"""How a battle's decks are drawn: settings by value, draws as a function of setting, seed and deal, and mistakes."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from gymnasium.utils import seeding
from hypothesis import given, settings
from hypothesis import strategies as st
from royalegym.protocol import MatchSetup
from royalegym.state_mutator import EVENT_CARDS, DefaultStateMutator

from royale_lightning.battle.decks import CardPool, Decks, by_value, shipped_decks
from royale_lightning.battle.engine.engine import new_battle, reset_battle, shared_engine
from royale_lightning.battle.players import own_seat
from royale_lightning.battle.prepare import prepare, validate
from royale_lightning.battle.round import Deal
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.errors import UserError
from royale_lightning.ladder.context import context_of

HOG = ["HogRider", "Musketeer", "Cannon", "IceGolemite", "Skeletons", "IceSpirits", "Fireball", "Log"]
BAIT = ["GoblinBarrel", "Princess", "Knight", "GoblinGang", "InfernoTower", "IceSpirits", "Rocket", "Log"]
GIANT = ["Giant", "Prince", "DarkPrince", "MegaMinion", "Musketeer", "IceSpirits", "Fireball", "Zap"]
TWENTY = [*dict.fromkeys([*HOG, *BAIT, *GIANT, "Bats", "Arrows", "Witch"])][:20]
WIDENING = {"own": {"widen": [[0, 16], [1000, 32], [2000, 64], [3000, "all"]]}}
#: One of every kind; own and enemy's, pools and mixtures.
KINDS: list[Any] = [
    "starter", "random", "mirrored", "shipped", "hog_cycle", HOG, [HOG, GIANT],
    {"own": {"hog": HOG, "bait": {"cards": BAIT, "weight": 3}}},
    {"own": {"hog": HOG, "bait": BAIT}, "enemy": {"giant": GIANT, "hog": HOG}},
    {"own": {"cards": TWENTY}, "mirrored": True}, WIDENING,
    [{"own": "random", "mirrored": True, "share": 0.5}, {"own": "random", "share": 0.3},
     {"own": "starter", "share": 0.2}],
]
SEEDS = st.integers(0, 2**63 - 1)
DEALS = st.builds(Deal, st.sampled_from([None, 0, 1]), st.one_of(st.none(), st.integers(0, 5000)))


def names(cards: tuple[int, ...]) -> list[str]:
    known = shared_engine().cards()
    return [known[i].name for i in cards]


# ---- draws -----------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), SEEDS, DEALS)
def test_every_draw_is_two_legal_decks_and_the_same_again(deck: Any, seed: int, deal: Deal) -> None:
    spec = BattleSpec(deck=deck)
    dealt = spec.dealt(seed, deal)
    assert dealt == spec.dealt(seed, deal)
    for one in dealt:
        assert len(set(one.cards)) == 8
        assert sum(bool(shared_engine().cards()[i].champion) for i in one.cards) <= 1
    start = spec.make_start()
    start.deal = deal  # type: ignore[attr-defined]
    rng, _ = seeding.np_random(seed)
    assert start.build(rng, shared_engine().cards()) == MatchSetup(decks=[list(d.cards) for d in dealt])


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_settings_of_before_draw_the_battles_of_before(seed: int) -> None:
    """RoyaleGym's own start is what ``starter``, ``random`` and lists were played with: decks, shuffle, engine seed."""
    for deck in ("starter", "random", HOG, [HOG, GIANT]):
        spec = BattleSpec(deck=deck)
        before = DefaultStateMutator(decks=None if spec.decks is None else [list(d) for d in spec.decks])
        ours, theirs = seeding.np_random(seed)[0], seeding.np_random(seed)[0]
        cards = shared_engine().cards()
        assert spec.make_start().build(ours, cards) == before.build(theirs, cards)
        assert ours.integers(0, 2**63 - 1) == theirs.integers(0, 2**63 - 1)


def test_the_settings_of_before_keep_their_value() -> None:
    for deck in ("starter", "random", HOG, [HOG, GIANT]):
        assert BattleSpec(deck=deck).as_dict()["deck"] == deck
    assert BattleSpec(deck=HOG).decks == (tuple(HOG), tuple(HOG))
    assert BattleSpec(deck="random").decks is None


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_mirrored_decks_are_the_same_eight_in_orders_of_their_own(seed: int) -> None:
    for deck in ("mirrored", {"own": "shipped", "mirrored": True}, {"own": {"cards": TWENTY}, "mirrored": True}):
        blue, red = BattleSpec(deck=deck).dealt(seed)
        assert blue == red
    assert BattleSpec(deck="mirrored").dealt(seed)[0] == BattleSpec(deck="random").dealt(seed)[0]


def test_mirrored_hands_differ() -> None:
    spec, battle, cards = BattleSpec(deck="mirrored"), new_battle(), shared_engine().cards()
    hands = []
    for seed in range(12):
        rng, _ = seeding.np_random(seed)
        setup = spec.make_start().build(rng, cards)
        reset_battle(battle, seed, setup)
        players = json.loads(bytes(battle.state_json()))["players"]
        assert sorted(players[0]["deck"]) == sorted(players[1]["deck"])
        hands.append([p["hand"] for p in players])
    assert any(a != b for a, b in hands)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.one_of(st.none(), st.integers(0, 5000)))
def test_own_decks_follow_the_seat_and_a_pair_keeps_its_two(seed: int, game_steps: int | None) -> None:
    spec = BattleSpec(deck={"own": {"hog": HOG, "bait": BAIT}, "enemy": {"giant": GIANT, "hog": HOG}})
    blue, red = (spec.dealt(seed, Deal(own, game_steps)) for own in (0, 1))
    assert blue == red[::-1], "the two decks of a seed change seats with the player they belong to"
    assert blue[0].name in ("hog", "bait")
    assert blue[1].name in ("giant", "hog")
    assert spec.dealt(seed, Deal(None)) in (blue, red)
    tossed = {spec.dealt(s, Deal(None)) == spec.dealt(s, Deal(0)) for s in range(seed, seed + 40)}
    assert tossed == {True, False}, "between two policies a coin says whose seat is the own one"


def test_who_the_own_one_is() -> None:
    assert own_seat(("learner", "scripted:push")) == 0
    assert own_seat(("abc123", "learner")) == 1
    assert own_seat(("scripted:push", "bot")) == 1
    for players in (("learner", "learner"), ("a", "b"), ("scripted:push", "scripted:defend")):
        assert own_seat(players) is None


def test_weights_and_shares_are_frequencies() -> None:
    n = 2000
    spec = BattleSpec(deck={"own": {"hog": HOG, "bait": {"cards": BAIT, "weight": 3}}})
    drawn = Counter(d.name for seed in range(n) for d in spec.dealt(seed))
    # Four errors of 4,000 draws.
    assert abs(drawn["bait"] / (2 * n) - 0.75) < 4 * np.sqrt(0.75 * 0.25 / (2 * n))
    mixed = BattleSpec(deck=KINDS[-1])
    ways: Counter[str] = Counter()
    for seed in range(n):
        blue, red = mixed.dealt(seed)
        ways["starter" if blue.name == "starter" else "mirrored" if blue == red else "random"] += 1
    for way, share in (("mirrored", 0.5), ("random", 0.3), ("starter", 0.2)):
        assert abs(ways[way] / n - share) < 4 * np.sqrt(share * (1 - share) / n)


def test_the_two_seats_draw_apart() -> None:
    spec = BattleSpec(deck={"own": {"hog": HOG, "bait": BAIT}})
    drawn = Counter(tuple(d.name for d in spec.dealt(seed)) for seed in range(800))
    assert len(drawn) == 4
    assert max(drawn.values()) < 260


# ---- pools -----------------------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_pool_widens_with_the_run_and_ends_at_random(seed: int) -> None:
    spec = BattleSpec(deck=WIDENING)
    seen: list[set[int]] = []
    for steps, size in ((0, 16), (999, 16), (1000, 32), (2500, 64)):
        cards = {c for s in range(seed, seed + 60) for d in spec.dealt(s, Deal(None, steps)) for c in d.cards}
        assert len(cards) <= size
        seen.append(cards)
    assert seen[0] == seen[1]
    assert seen[0] <= seen[2] or len(seen[2]) < 32
    whole = BattleSpec(deck="random")
    for late in (3000, 10**9, None):  # no run: an evaluation
        assert spec.dealt(seed, Deal(None, late)) == whole.dealt(seed)


def test_the_order_is_a_named_stream_or_the_users_list() -> None:
    def firsts(pool: dict[str, Any]) -> set[int]:
        spec = BattleSpec(deck={"own": pool})
        return {c for s in range(200) for d in spec.dealt(s, Deal(None, 0)) for c in d.cards}

    widen = [[0, 16], [1000, "all"]]
    one, two = firsts({"widen": widen}), firsts({"widen": widen, "order": 2})
    assert len(one) == len(two) == 16
    assert one != two
    assert firsts({"widen": widen, "order": 1}) == one
    mine = firsts({"cards": TWENTY, "widen": [[0, 10], [1000, "all"]]})
    assert {shared_engine().cards()[i].name for i in mine} == set(TWENTY[:10])
    every = firsts({"widen": [[0, "all"]]})
    assert not {shared_engine().cards()[i].name for i in every} & EVENT_CARDS


# ---- by value --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("deck", KINDS)
def test_a_setting_is_plain_and_read_once(deck: Any) -> None:
    spec = BattleSpec(deck=deck)
    again = BattleSpec(deck=json.loads(json.dumps(spec.as_dict()["deck"])))
    assert again.deck == spec.deck
    assert prepare(again).digest == prepare(spec).digest
    assert again.dealt(5) == spec.dealt(5)


def test_each_setting_is_a_context_of_its_own() -> None:
    assert len({context_of(BattleSpec(deck=deck)) for deck in KINDS}) == len(KINDS)


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
def test_a_file_counts_by_what_it_holds(name: str, tmp_path: Path) -> None:
    decks = {"hog": HOG, "bait": {"cards": BAIT, "weight": 2}}
    file = tmp_path / name
    file.write_text(json.dumps(decks))
    spec = BattleSpec(deck=str(file))
    assert spec.deck == {"own": {"hog": HOG, "bait": {"cards": BAIT, "weight": 2.0}}}
    assert spec == BattleSpec(deck={"own": decks})
    both = BattleSpec(deck={"own": "starter", "enemy": str(file)})
    file.unlink()
    assert replace(spec, decision_ms=1000).dealt(1) == spec.dealt(1)
    assert {both.dealt(s, Deal(0))[1].name for s in range(30)} == {"hog", "bait"}


def test_from_python_it_is_a_dataclass() -> None:
    mine = Decks(own=CardPool(cards=TWENTY, widen=[[0, 10], [5, "all"]]), mirrored=True)
    spec = BattleSpec(deck=mine)
    assert spec.deck == {"own": {"cards": TWENTY, "widen": [[0, 10], [5, "all"]]}, "mirrored": True}
    assert BattleSpec(deck=[Decks(share=2), Decks("starter")]).deck == [  # type: ignore[arg-type]
        {"own": "random", "share": 2}, {"own": "starter"}
    ]


@pytest.mark.parametrize(
    ("deck", "sentence"),
    [
        ("mirored", "battle.deck is 'mirored'; give .* did you mean 'mirrored'"),
        ("hog_cycel", "did you mean 'hog_cycle'"),
        ("none.yaml", "battle.deck is 'none.yaml', and that deck file cannot be read .*; check the path"),
        ({"owns": "random"}, "unknown key 'owns'; it takes own, enemy, mirrored, share; did you mean 'own'"),
        ({"hog": HOG}, r"unknown key 'hog'.*named decks and pools of cards stand below own"),
        ({"own": {"hog": HOG[:7]}}, "battle.deck.own: hog has 7 cards"),
        ({"own": {"hog": [*HOG[:7], "HogRider"]}}, "battle.deck.own: hog holds 'HogRider' twice"),
        ({"own": {"hog": {"cards": HOG, "weight": 0}}}, "hog has weight 0; give a number above 0"),
        ({"own": {"hog": {"cards": HOG, "wieght": 2}}}, "unknown key 'wieght'; a deck takes cards and weight"),
        ({"own": {"hog": "Knight"}}, "hog is 'Knight'; give a list of card names"),
        ({"own": {}}, "battle.deck.own holds no deck"),
        ({"own": {3: HOG}}, "names a deck 3"),
        ({"own": 3}, "battle.deck.own is 3; give random"),
        ({"own": "mirrored"}, "write mirrored: true beside own"),
        ({"own": "random", "enemy": "starter", "mirrored": True}, "has an enemy and is mirrored"),
        ({"mirrored": "yes"}, "battle.deck.mirrored is 'yes'; give true or false"),
        ([{"own": "random", "share": -1}], "battle.deck.share is -1; give a number above 0"),
        ([{"own": "random"}, "starter"], r"holds 'starter' in a list of ways.*write \{own: 'starter'\}"),
        ({"own": {"cards": HOG[:5]}}, "battle.deck.own.cards has 5 cards; a pool needs"),
        ({"own": {"widen": [[0, 4]]}}, "battle.deck.own.widen is .*at least 8 cards"),
        ({"own": {"widen": [[5, 16]]}}, "begin at game step 0"),
        ({"own": {"widen": [[0, "all"], [9, 16]]}}, "let both numbers rise"),
        ({"own": {"cards": TWENTY, "order": 2}}, "order is 2; .*leave it out where cards are listed"),
        ([], "battle.deck takes starter"),
        ([3, 4], "battle.deck takes starter"),
    ],
)
def test_a_mistake_is_named_at_once(deck: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        BattleSpec(deck=deck)


@pytest.mark.parametrize(
    ("deck", "sentence"),
    [
        ({"own": {"hog": [*HOG[:7], "Hogrider"]}}, "'Hogrider'.*did you mean 'HogRider'"),
        ({"own": {"cards": [*TWENTY, "Knigth"]}}, "did you mean 'Knight'"),
        ({"own": {"cards": [*TWENTY, TWENTY[0]]}}, "battle.deck.own.cards holds 'HogRider' twice"),
        ({"own": {"cards": TWENTY, "widen": [[0, 21]]}}, "widen has 21 cards and the pool 20"),
        (
            {"own": {"cards": ["MightyMiner", "SkeletonKing", "ArcherQueen", "GoldenKnight", "Monk", *HOG[:4]]}},
            "has 4 cards that are no champions",
        ),
        (
            {"own": {"kings": ["MightyMiner", "SkeletonKing", "ArcherQueen", "GoldenKnight", *HOG[:4]]}},
            "the engine refuses the deck 'kings'.*ability buttons.*give it other cards",
        ),
    ],
)
def test_what_the_engine_does_not_take_is_named_before_training(deck: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        validate(BattleSpec(deck=deck))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2", "neither YAML nor JSON"), ("- Knight", "holds no named decks"), ("hog: [Knight]", "hog has 1 cards"),
        ("", "holds no named decks"),
    ],
)
def test_a_file_that_holds_no_decks_is_named(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        by_value(str(tmp_path / "bad.yaml"))


def test_what_the_readme_says_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    file, ways = re.findall(r"^```yaml\n(.*?)^```", text.split("## Decks")[1].split("\n## ")[0], flags=re.M | re.S)
    monkeypatch.chdir(tmp_path)
    Path("my_decks.yaml").write_text(file)
    for line in ways.splitlines():
        validate(BattleSpec(**yaml.safe_load(line)))
    assert len(ways.splitlines()) == 3


# ---- the decks that come with the package ------------------------------------------------------------------------
#: Cards that hit what flies, and cards that go for towers, of this engine's.
AIR = {
    "Archer", "BabyDragon", "Bats", "DartBarrell", "EliteArcher", "ElectroWizard", "Firecracker", "GoblinGang",
    "Hunter", "IceWizard", "InfernoDragon", "InfernoTower", "MegaMinion", "MiniSparkys", "Minions", "Musketeer",
    "Princess", "SpearGoblins", "Tesla",
}
WINS = {
    "Balloon", "BattleRam", "ElectroGiant", "Giant", "GoblinBarrel", "GoblinDrill", "Golem", "Graveyard", "HogRider",
    "LavaHound", "MegaKnight", "Miner", "Mortar", "RoyalGiant", "RoyalHogs", "Xbow",
}


def test_the_shipped_decks_are_a_dozen_or_more() -> None:
    assert 12 <= len(shipped_decks()) <= 16
    assert len({frozenset(d) for d in shipped_decks().values()}) == len(shipped_decks())
    spec = BattleSpec(deck="shipped")
    assert {d.name for seed in range(400) for d in spec.dealt(seed)} == set(shipped_decks())


@pytest.mark.parametrize("name", sorted(shipped_decks()))
def test_a_shipped_deck_is_sensible_and_legal(name: str) -> None:
    spec = BattleSpec(deck=name)
    validate(spec)
    deck = shipped_decks()[name]
    kinds = {c.name: c.card_kind for c in shared_engine().cards()}
    assert [d.name for d in spec.dealt(1)] == [name, name]
    assert names(spec.dealt(1)[0].cards) == deck
    assert any(kinds[c] == "SPELL" and c not in WINS for c in deck)
    assert set(deck) & WINS
    assert set(deck) & AIR
