"""Names of players, and that nobody else spells them."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import royale_lightning
from royale_lightning.battle.players import (
    LEARNER,
    LIVE,
    SCRIPTED,
    is_live,
    is_scripted,
    is_snapshot,
    live_player,
    scripted_player,
    short_name,
)


@given(st.from_regex(r"[a-z][a-z0-9.-]*", fullmatch=True))
def test_a_scripted_name_takes_its_prefix_once(name: str) -> None:
    player = scripted_player(name)
    assert scripted_player(player) == player
    assert short_name(player) == short_name(name) == name
    assert is_scripted(player)
    assert not is_snapshot(player)
    assert not is_live(player)


@given(st.integers(0, 10**9))
def test_a_live_player_is_not_scripted(iteration: int) -> None:
    player = live_player(iteration)
    assert is_live(player)
    assert int(player.removeprefix(LIVE)) == iteration
    assert not is_scripted(player)


def test_who_is_a_snapshot() -> None:
    assert [is_snapshot(p) for p in ("", LEARNER, "scripted:noop", "3f0a9c")] == [False, False, False, True]


def test_the_names_are_spelled_in_one_place() -> None:
    root = Path(royale_lightning.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # "learner" alone is an everyday word; as a prefix the two others are these names.
            if isinstance(node, ast.Constant) and node.value in (SCRIPTED, LIVE):
                found.add(path.name)
    assert found == {"players.py"}
