"""JSON lines are read as they were written, by one reader, also while somebody writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.run.jsonl import JsonLines, Mark, OtherHistory, complete_lines, read_rows

_SCALARS = (st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
_VALUES = st.one_of(*_SCALARS)


@settings(deadline=None)  # it waits for the disk
@given(rows=st.lists(st.dictionaries(st.text(), _VALUES, max_size=3), max_size=4), cut=st.integers(0, 400))
def test_what_is_read_of_a_log_that_was_cut_anywhere_are_its_first_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    log = JsonLines(path)
    ends = [0]
    for row in rows:
        log.append(row)
        ends.append(log.offset)
    log.close()
    assert list(read_rows(path)) == rows
    assert path.exists() == bool(rows), "a log is made at its first line"
    path.touch()
    path.write_bytes(path.read_bytes()[:cut])
    whole = sum(end <= cut for end in ends) - 1
    assert list(read_rows(path)) == rows[:whole]
    assert b"".join(complete_lines(path)) == path.read_bytes()[: ends[whole]]


@pytest.mark.parametrize(
    ("line", "told"), [(b'{"a": 1', "line 2"), (b"[1]", "it holds list"), (b"", "line 2"), (b"\xff\xfe{}", "line 2")]
)
def test_a_damaged_line_is_named_or_left_out(tmp_path: Path, line: bytes, told: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    with pytest.raises(UserError, match=told):
        list(read_rows(path))
    assert list(read_rows(path, skip_damaged=True)) == [{"a": 1}, {"a": 2}]


def test_no_log_has_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(tmp_path / "none")) == []


def test_a_log_of_another_history_is_noticed_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = JsonLines(path)
    log.append({"n": 1})
    first = log.mark()
    log.append({"n": 2})
    second = log.mark()
    log.close()
    rewound = JsonLines(path, first)
    rewound.append({"n": 9})
    rewound.append({"n": 10})
    rewound.close()
    assert list(read_rows(path)) == [{"n": 1}, {"n": 9}, {"n": 10}]
    assert list(read_rows(path.with_name("log.jsonl.discarded-1"))) == [{"n": 2}]
    before = path.read_bytes()
    with pytest.raises(OtherHistory, match="it holds other lines"):
        JsonLines(path, second)
    with pytest.raises(OtherHistory, match=f"it has {len(before)} bytes of 500"):
        JsonLines(path, Mark(500))
    assert path.read_bytes() == before
    # A checkpoint from before there were digests has the length alone.
    assert JsonLines(path, Mark(second.offset)).offset == second.offset


def test_a_mark_follows_a_resume_and_reopened_logs(tmp_path: Path) -> None:
    one, two = JsonLines(tmp_path / "one"), JsonLines(tmp_path / "two")
    assert one.mark() == two.mark()
    assert not list(tmp_path.iterdir()), "nothing is made before the first line"
    for n in range(4):
        one.append({"n": n})
        two.append({"n": n})
        two.close()
        two = JsonLines(tmp_path / "two", two.mark()) if n % 2 else JsonLines(tmp_path / "two")
        assert one.mark() == two.mark()
    one.close()
    two.close()
