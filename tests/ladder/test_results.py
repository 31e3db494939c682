"""The results log: what it refuses, what it survives, and how it is rewound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.battle.players import live_player
from royale_lightning.errors import UserError
from royale_lightning.ladder.results import LogMark, Result, ResultsLog, read_results


def result(blue: str = "a", red: str = "b", seed: int = 1, winner: int = 0, **more: Any) -> Result:
    plain: dict[str, Any] = {"kind": "eval", "ticks": 3600, "crowns": (1, 0), "iteration": 3, "game_step": 4096}
    return Result(blue=blue, red=red, seed=seed, winner=winner, **{**plain, **more})

Open = Callable[..., ResultsLog]


@pytest.fixture
def open_log() -> Iterator[Open]:
    opened: list[ResultsLog] = []

    def new(path: Path, mark: LogMark | None = None) -> ResultsLog:
        opened.append(ResultsLog(path, mark))
        return opened[-1]

    yield new
    for log in opened:
        log.close()


def test_what_is_written_is_read_back(tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "run" / "results.jsonl")
    given = [result(purpose="gate:2"), result(kind="train", start="cell:7", blue=live_player(3)), result(seed=2)]
    written = log.append(given)
    log.close()
    assert [r.id for r in written] == [1, 2, 3]
    assert list(read_results(log.path)) == written
    assert list(read_results(log.path, "train")) == written[1:2]
    assert open_log(log.path).rated() == [written[0], written[2]]
    assert list(read_results(tmp_path / "none.jsonl")) == []
    first = json.loads(log.path.read_text().splitlines()[0])
    assert first == {
        "kind": "eval", "blue": "a", "red": "b", "seed": 1, "winner": 0, "ticks": 3600, "crowns": [1, 0],
        "iteration": 3, "game_step": 4096, "purpose": "gate:2", "id": 1, "crc32": first["crc32"],
    }


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (result(start="cell:7"), "began from 'cell:7'"),
        (result(red="a"), "'a' on both seats"),
        (result(winner=-1), "only decided battles count"),
        (result(kind="rated"), "give one of eval, train, probe"),
        (result(id=4), "the log numbers results itself"),
        (result(), "already, as result 1"),
    ],
)
def test_a_refused_result_leaves_the_log_as_it_was(bad: Result, sentence: str, tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "results.jsonl")
    log.append([result()])
    before = log.mark()
    with pytest.raises(UserError, match=sentence):
        log.append([result(seed=9), bad])
    assert log.mark() == before
    assert log.find("a", "b", 9) is None
    assert log.append([result(seed=9)])[0].id == 2


def test_a_battle_is_rated_once(tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "results.jsonl")
    first = log.append([result(), result("b", "a"), result(seed=2)])
    with pytest.raises(UserError, match="on seed 7 is in the results log already, as result 4"):
        log.append([result(seed=7), result(seed=7)])
    log.close()
    again = open_log(log.path)
    assert again.find("b", "a", 1) == first[1]
    with pytest.raises(UserError, match="as result 2"):
        again.append([result("b", "a")])
    # A probe or a training battle is not rated, and says so by its kind.
    assert [r.id for r in again.append([result(kind="probe"), result(kind="train")])] == [4, 5]


def test_a_torn_last_line_is_left_out_and_set_aside(tmp_path: Path, open_log: Open) -> None:
    path = tmp_path / "results.jsonl"
    log = open_log(path)
    log.append([result(), result(seed=2)])
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [r.id for r in read_results(path)] == [1]
    log = open_log(path)
    assert log.append([result(seed=2)])[0].id == 2
    log.close()
    assert path.read_bytes() == whole
    assert len(list(tmp_path.glob("*.discarded-*"))) == 1


def test_a_line_that_is_no_result_is_named(tmp_path: Path, open_log: Open) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"kind": "eval"}\n')
    with pytest.raises(UserError, match="line 1 is not a result"):
        open_log(path)


def test_a_digit_that_became_another_is_seen(tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "results.jsonl")
    (written,) = log.append([result()])
    log.close()
    line = log.path.read_text()
    log.path.write_text(line.replace('"winner": 0', '"winner": 1'))
    with pytest.raises(UserError, match="its checksum does not fit"):
        list(read_results(log.path))
    # Without one, as somebody else may write it, a line is believed.
    log.path.write_text(line[: line.index(', "crc32"')] + "}\n")
    assert list(read_results(log.path)) == [written]


def test_rewound_to_a_checkpoint(tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "results.jsonl")
    log.append([result()])
    mark = log.mark()
    lost = log.append([result(seed=2), result(seed=3)])
    log.close()
    before = log.path.read_bytes()
    resumed, aside = open_log(log.path, LogMark(*mark)), log.path.with_name("results.jsonl.discarded-1")
    assert resumed.find("a", "b", 2) is None
    assert log.path.read_bytes() == before, "a start that is refused moves nothing"
    assert resumed.append([result(seed=2), result(seed=3)]) == lost, "the same battles under the same ids"
    resumed.close()
    assert list(read_results(aside)) == lost
    assert [r.id for r in read_results(log.path)] == [1, 2, 3]


def test_a_fork_continues_the_numbers(tmp_path: Path, open_log: Open) -> None:
    fork = open_log(tmp_path / "fork" / "results.jsonl", LogMark(1000, 12))
    assert fork.append([result()])[0].id == 13
    assert [p.name for p in fork.path.parent.iterdir()] == ["results.jsonl"]


def test_a_shortened_log_is_refused(tmp_path: Path, open_log: Open) -> None:
    log = open_log(tmp_path / "results.jsonl")
    log.append([result()])
    mark = log.mark()
    log.close()
    log.path.write_bytes(b"")
    with pytest.raises(UserError, match="it has 0 bytes of"):
        open_log(log.path, mark)


def test_scores() -> None:
    assert [result(winner=w).score("a") for w in (0, 1, 2)] == [1.0, 0.0, 0.5]
    assert [result(winner=w).score("b") for w in (0, 1, 2)] == [0.0, 1.0, 0.5]
    with pytest.raises(ValueError, match="'c' is not one"):
        result().score("c")
    with pytest.raises(ValueError, match="'a' is not one"):
        result(red="a").score("a")


_WRITER = """
import sys
from pathlib import Path
from royale_lightning.ladder.results import Result, ResultsLog
log = ResultsLog(Path(sys.argv[1]))
for seed in range(10**6):
    log.append([Result(kind="eval", blue="a", red="b", seed=seed, winner=0, ticks=1, crowns=(0, 0), iteration=0,
                       game_step=0)])
    if seed == 200:
        print("on the way", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_while_writing(tmp_path: Path, open_log: Open) -> None:
    path = tmp_path / "results.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"on the way\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    log = open_log(path)
    assert log.last_id > 200
    assert [r.id for r in log.rated()] == list(range(1, log.last_id + 1))
    assert log.append([result("b", "a")])[0].id == log.last_id
    log.close()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=30), st.integers(0, 30))
def test_no_history_holds_a_battle_twice(moves: list[tuple[int, int, bool]], cut: int) -> None:
    """Whatever is appended, refused and rewound, ids ascend and rated battles are distinct."""
    with tempfile.TemporaryDirectory() as folder:
        log = ResultsLog(Path(folder) / "results.jsonl")
        mark = log.mark()
        for step, (seed, winner, rated) in enumerate(moves):
            if step == cut:
                mark = log.mark()
            one = result(seed=seed, winner=winner, kind="eval" if rated else "train")
            known = rated and log.find("a", "b", seed) is not None
            if known:
                with pytest.raises(UserError):
                    log.append([one])
            else:
                log.append([one])
        log.close()
        log = ResultsLog(log.path, mark)
        log.append([result(seed=99)])
        log.close()
        read = list(read_results(log.path))
        ids = [r.id for r in read]
        assert ids == sorted(set(ids))
        keys = [r.key for r in read if r.kind == "eval"]
        assert len(keys) == len(set(keys))
