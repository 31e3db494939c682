"""What the dashboard says, and that it fits whatever terminal it is shown in."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from royale_lightning.report.dashboard import (
    LEAST_HEIGHT,
    LEAST_WIDTH,
    View,
    alarms_on,
    dashboard,
    latest,
    time_shares,
)

ROWS = [
    {"time/iteration": 4.0, "time/step": 2.0, "time/update": 1.5, "ladder/rating": 300.0, "ladder/rating_se": 50.0},
    {
        "time/iteration": 6.0, "time/step": 3.0, "time/update": 1.0, "time/collect_other": 0.01,
        "ppo/approx_kl": 0.0123, "speed/game_steps_per_s": 1031.4, "alarm/kl_high": 1.0, "alarm/b": 1.0,
    },
]


def shown(view: View, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(dashboard(view, width))
    return out.getvalue()


def test_shares_are_of_the_iterations_that_were_timed() -> None:
    shares = dict(time_shares([*ROWS, {"game_steps": 1.0}]))
    assert shares["step"] == pytest.approx(0.5)
    assert shares["update"] == pytest.approx(0.25)
    assert time_shares(ROWS)[0][0] == "step", "the largest first"
    assert time_shares([]) == []


def test_figures_that_not_every_row_has() -> None:
    assert latest(ROWS, "ladder/rating") == 300.0
    assert latest(ROWS, "ladder/champion_rating") is None
    assert alarms_on(ROWS) == ["b", "kl_high"]
    assert alarms_on(ROWS[:1]) == alarms_on([]) == []


def test_what_it_says() -> None:
    scores = [("push", 40, 0.985), ("noop", 2, 0.5)]
    text = shown(View("self_play-1", "iteration 2  1,000 game steps", 0.5, ROWS, scores))
    for said in (
        "self_play-1", "iteration 2", "step", "50", "1,031", "push", "0.98", "40", "KL 0.0123", "rating 300 ± 98 Elo",
        "alarms: b, kl_high",
    ):
        assert said in text, said
    assert "collect other" not in text, "under half a per cent"
    assert text.index("push") < text.index("noop"), "those met most first"
    rows = [*ROWS, {"ladder/over_champion": 77.0, "ladder/over_champion_se": 100.0}]
    assert "rating 300 Elo, +77 ± 196 over the champion" in shown(View(rows=rows))
    assert "no alarms" in shown(View())


@given(
    st.integers(LEAST_WIDTH, 140), st.text("äb c", max_size=60),
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=40), st.integers(1, 10**6), st.floats(0, 1)), max_size=30),
    st.one_of(st.none(), st.floats(0, 2)),
)
def test_it_fits_its_terminal(width: int, line: str, scores: list[tuple[str, int, float]], done: float | None) -> None:
    lines = shown(View("run", line, done, ROWS, scores), width).splitlines()
    assert all(len(x) == width for x in lines)
    assert len(lines) < LEAST_HEIGHT
    assert lines[0].startswith("╭─ run ")
    assert lines[-1].startswith("╰")
