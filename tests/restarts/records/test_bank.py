"""Banks: what was written is read, and nothing else is."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.stamp import Stamp
from royale_lightning.errors import UserError
from royale_lightning.restarts.records import bank
from royale_lightning.restarts.records.points import RestartPoint, content_hash
from royale_lightning.restarts.records.route import pack_commands, unpack_commands
from tests.support.restarts import STAMP, point


def two_seats(n: int) -> list[RestartPoint]:
    """One moment, one point a seat."""
    blue = point(n, (1, 1, 2))
    return [blue, replace(blue, seat=1, key=(1, -1, -2), rank=(-1, -2))]


def test_a_bank_is_read_as_written(tmp_path: Path) -> None:
    points = [p for n in range(3) for p in two_seats(n)]
    bank.write_bank(tmp_path / "a.bank", points)
    read = bank.read_bank(tmp_path / "a.bank", STAMP)
    assert read == points
    assert [p.id for p in read] == [p.id for p in points]
    assert len({id(p.payload) for p in read}) == 3, "both seats of a moment share its bytes"
    assert not (tmp_path / "a.bank.part").exists()


def test_an_empty_bank_is_a_bank(tmp_path: Path) -> None:
    bank.write_bank(tmp_path / "a.bank", [])
    assert bank.read_bank(tmp_path / "a.bank", STAMP) == []


def test_flipped_bytes_and_cuts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bank"
    bank.write_bank(path, two_seats(0))
    whole = path.read_bytes()
    for i in [*range(48), *range(48, len(whole), 7)]:
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(UserError, match=r"a\.bank"):
            bank.read_bank(path, STAMP)
        path.write_bytes(whole[:i])
        with pytest.raises(UserError, match=r"a\.bank"):
            bank.read_bank(path, STAMP)


@pytest.mark.parametrize("name", [f.name for f in fields(Stamp)])
def test_a_bank_of_another_game_says_what_differs(tmp_path: Path, name: str) -> None:
    bank.write_bank(tmp_path / "a.bank", two_seats(0))
    other = replace(STAMP, **{name: 50 if isinstance(getattr(STAMP, name), int) else "other"})
    with pytest.raises(UserError, match=rf"2 restart points of another game \({name} is .* there and .* here\)"):
        bank.read_bank(tmp_path / "a.bank", other)


def test_ten_thousand_points(tmp_path: Path) -> None:
    points = [p for n in range(5_000) for p in two_seats(n)]
    bank.write_bank(tmp_path / "a.bank", points)
    read = bank.read_bank(tmp_path / "a.bank", STAMP)
    assert len(read) == 10_000
    assert read[-1] == points[-1]


def rewritten(path: Path, change: dict[str, object]) -> None:
    """A bank whose hash is right and whose content was made up."""
    body = msgspec.msgpack.encode({**bank.pack_points(two_seats(0)), **change})
    path.write_bytes(bank.MAGIC + hashlib.blake2b(body, digest_size=32).digest() + body)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 2}, "of schema 2"),
        ({"points": [[1, 2]]}, "no restart bank"),
        ({"extra": 1}, "no restart bank"),
        ({"blobs": {}}, "without its save state"),
        ({"blobs": {content_hash(b"state 0"): b"state 1"}}, "not what its hash says"),
        ({"stamp": None}, "names none"),
    ],
)
def test_made_up_content_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    rewritten(tmp_path / "a.bank", change)
    with pytest.raises(UserError, match=says):
        bank.read_bank(tmp_path / "a.bank", STAMP)


def test_a_missing_file_and_a_foreign_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        bank.read_bank(tmp_path / "none.bank", STAMP)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UserError, match="no restart bank"):
        bank.read_bank(tmp_path / "text", STAMP)


def test_points_of_two_games_are_no_bank() -> None:
    with pytest.raises(ValueError, match="several"):
        bank.pack_points([point(0), point(1, stamp=replace(STAMP, cards="x"))])


def test_a_point_is_named_by_all_it_holds() -> None:
    base = point(0)
    assert base.id == point(0).id
    others = [point(1), point(0, (1, 0, 0)), point(0, seat=1), point(0, tag="tower"), point(0, source=(3, 0))]
    assert len({p.id for p in [base, *others]}) == 6
    assert len({p.blob for p in [base, *others]}) == 2, "only the first of them has other bytes"


@given(st.lists(st.sampled_from([b"a", b"bb", b"ccc"]), max_size=30), st.data())
def test_shared_bytes_are_counted(users: list[bytes], data: st.DataObject) -> None:
    table = bank.BlobTable()
    for blob in users:
        assert table.retain(content_hash(blob), bytes(blob)) == blob
    assert table.unique_bytes == sum(map(len, set(users)))
    assert table.referenced_bytes == sum(map(len, users))
    for blob in data.draw(st.permutations(users)):
        table.release(content_hash(blob))
    assert len(table) == 0
    with pytest.raises(KeyError):
        table.release(content_hash(b"a"))


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 1), st.integers(0, 2304))))
def test_commands_survive_packing(commands: list[tuple[int, int, int]]) -> None:
    assert unpack_commands(pack_commands(commands)) == commands
