"""Which cards are alike: of the same kind, near in size, and every one has somebody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from royalegym import STARTER_DECK
from royalegym.protocol import card_is_spell

from royale_lightning.battle.engine.engine import shared_engine
from royale_lightning.battle.kin import card_of_type, kin, type_kin

CARDS = list(shared_engine().cards())
TYPES = [str(t) for t in shared_engine().unit_types() or ()]
BY_NAME = {c.name: c for c in CARDS}
STARTER = {BY_NAME[n].card_id for n in STARTER_DECK}


@pytest.mark.parametrize(("card", "like"), [
    ("Wizard", "Musketeer"), ("Golem", "Giant"), ("Valkyrie", "Knight"), ("Bats", "Minions"), ("Skeletons", "Archer"),
    ("Tesla", "Cannon"), ("Rocket", "Fireball"), ("Log", "Zap"), ("LavaHound", "Giant"),
])
def test_of_the_starter_deck(card: str, like: str) -> None:
    assert kin(CARDS, STARTER)[BY_NAME[card].card_id] == BY_NAME[like].card_id


@given(st.sets(st.sampled_from([c.card_id for c in CARDS]), min_size=1))
def test_every_unknown_card_has_a_known_one(known: set[int]) -> None:
    found = kin(CARDS, known)
    assert set(found) == {c.card_id for c in CARDS} - known
    assert set(found.values()) <= known
    spells = {c.card_id for c in CARDS if card_is_spell(c)}
    if known & spells and known - spells:
        assert all((new in spells) == (old in spells) for new, old in found.items())


def test_units_follow_the_card_that_makes_them() -> None:
    made = {"Minion": "Minions", "Skeleton": "Skeletons", "Wizard": "Wizard", "AngryBarbarian": "AngryBarbarians"}
    for unit, card in made.items():
        assert card_of_type(unit, CARDS) == BY_NAME[card]
    assert card_of_type("KingTower", CARDS) is None
    found = type_kin(TYPES, CARDS, kin(CARDS, STARTER))
    names = {TYPES[new]: TYPES[old] for new, old in found.items()}
    like = {"Wizard": "Musketeer", "Bat": "Minion", "Goblin": "Archer", "Golem": "Giant"}
    assert {n: names[n] for n in like} == like
    assert "Knight" not in names
    assert "KingTower" not in names
    assert len(found) > len(TYPES) / 2
