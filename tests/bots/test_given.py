"""What a run was given by path is what the path held when the run began."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from royale_lightning.bots.given import OPPONENTS, Given, bot_digest, file_digest, stores_of
from royale_lightning.errors import UserError
from royale_lightning.nn import actor_state_dict
from tests.support.bots import make_bot

REFERENCE = "model.auxiliary.near.bot"


@pytest.fixture
def path(tmp_path: Path) -> str:
    make_bot(1).save(tmp_path / "bot")
    return str(tmp_path / "bot")


def replace_bot(path: str, seed: int) -> None:
    shutil.rmtree(path)
    make_bot(seed).save(path)


def test_a_record_is_asked_before_the_path(path: str) -> None:
    first = Given()
    before = first.id_of(OPPONENTS, path)
    assert before == bot_digest(path)
    assert first.is_new(OPPONENTS, path)
    replace_bot(path, 2)
    resumed = Given()
    resumed.load_state_dict(first.state_dict())
    assert resumed.id_of(OPPONENTS, path) == before != bot_digest(path)
    assert not resumed.is_new(OPPONENTS, path), "what was changed does not enter"
    assert resumed.id_of("model.init_from", path) == bot_digest(path), "each setting has its own"
    shutil.rmtree(path)
    assert resumed.id_of(OPPONENTS, path) == before
    with pytest.raises(UserError, match=r"^model\.auxiliary\.x: there is no bot at"):
        resumed.id_of("model.auxiliary.x", path)


def test_what_moved_is_known_by_what_it_holds(path: str, tmp_path: Path) -> None:
    first = Given()
    first.id_of(OPPONENTS, path)
    resumed = Given()
    resumed.load_state_dict(first.state_dict())
    moved = str(Path(path).rename(tmp_path / "elsewhere"))
    assert resumed.id_of(OPPONENTS, moved) == first.id_of(OPPONENTS, path)
    assert not resumed.is_new(OPPONENTS, moved), "it was here, and may have been evicted"
    make_bot(3).save(tmp_path / "third")
    assert resumed.is_new(OPPONENTS, str(tmp_path / "third"))


def test_a_bot_comes_from_the_runs_copy(path: str, tmp_path: Path) -> None:
    run, fork = tmp_path / "run", tmp_path / "fork"
    first = Given()
    weights = actor_state_dict(first.bot(REFERENCE, path, stores_of([run])).network)
    (own,) = stores_of([run])
    first.keep(own)
    assert own.ids() == [first.id_of(REFERENCE, path)]
    replace_bot(path, 2)
    for folders in ([run, None], [fork, run], [fork]):
        resumed = Given()
        resumed.load_state_dict(first.state_dict())
        found = resumed.bot(REFERENCE, path, stores_of(folders))
        assert all((x == weights[k]).all() for k, x in actor_state_dict(found.network).items())
        resumed.keep(stores_of(folders)[0])
    shutil.rmtree(run / "given")
    resumed = Given()
    resumed.load_state_dict(first.state_dict())
    with pytest.raises(UserError, match=r"^model\.auxiliary\.near\.bot: .* is not the bot it was when the run began"):
        resumed.bot(REFERENCE, path, stores_of([run]))


def test_a_checkpoint_without_a_record_goes_by_the_path(path: str, tmp_path: Path) -> None:
    old = Given()
    old.load_state_dict(None)
    assert old.id_of(OPPONENTS, path) == path
    assert not old.is_new(OPPONENTS, path)
    assert old.state_dict() is None
    assert old.bot(REFERENCE, path, stores_of([tmp_path])).name == path
    assert old.id_of(OPPONENTS, "gone") == "gone"


def test_a_file_that_cannot_be_read_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "a.bank").write_bytes(b"1")
    (tmp_path / "b.bank").write_bytes(b"2")
    a, b = (file_digest(str(tmp_path / n)) for n in ("a.bank", "b.bank"))
    assert len({a, b, file_digest(str(tmp_path / "none.bank"))}) == 3
    assert file_digest(str(tmp_path / "none.bank")) == str(tmp_path / "none.bank")
