"""A run as one page: what it reads, what it draws, and that a browser shows it without a complaint."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch import Trainer

from royale_lightning.bots.evaluate import PlannedGame
from royale_lightning.bots.plays import plays_file
from royale_lightning.bots.replays import write_replays
from royale_lightning.callbacks import Alarms
from royale_lightning.cli import console as cli
from royale_lightning.cli.trainer_defaults import complete
from royale_lightning.errors import UserError
from royale_lightning.ladder.gate.verdict import Condition, Verdict
from royale_lightning.metrics.declarations import undeclared
from royale_lightning.parts import part
from royale_lightning.report import page, strength, svg, write_report
from royale_lightning.report.read import read_run
from tests.support.bots import make_bot
from tests.support.tiny_run import PPOSettings, TinyData, TinyModule

CHROMIUM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


def train(folder: Path) -> None:
    """Logs by their real writers: an alarm that comes, one that goes, and a setting changed on the way."""

    class Calm(TinyModule):
        def iteration_metrics(self) -> dict[str, float]:
            return {"ppo/approx_kl": 0.9 if self.current_epoch < 3 else 0.01}

    def fit(epochs: int, learning_rate: float, ckpt_path: Path | None) -> None:
        alarms = Alarms([part("threshold", name="busy", key="rows", above=1, advice="<b>rest</b>")])
        trainer = Trainer(**complete({
            "callbacks": [alarms], "max_epochs": epochs, "accelerator": "cpu", "enable_progress_bar": False,
            "enable_model_summary": False,
        }, folder))
        module = Calm(ppo=PPOSettings(learning_rate=learning_rate))
        trainer.fit(module, datamodule=TinyData(), ckpt_path=ckpt_path)

    fit(2, 1e-3, None)
    fit(5, 2e-3, folder / "checkpoints" / "last.ckpt")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has everything a report can show, each a little."""
    folder = tmp_path_factory.mktemp("runs") / "<odd> & run-1"
    train(folder)
    rows = []
    for i in range(1, 41):
        rows.append({
            "iteration": i, "game_steps": 4000 * i, "ppo/approx_kl": 0.02 / i, "ppo/entropy_play": 0.6,
            "score/push": min(1.0, i / 30), "time/iteration": 5.0, "time/step": 3.0, "time/update": 1.5,
            "speed/game_steps_per_s": 700.0, "start/true/score": 0.5, "start/true/episodes": 3,
            "policy/plays_per_battle": 30.0,
        })
    rows[20] |= {"ladder/rating": 300.0, "ladder/rating_se": 60.0}
    rows[39] |= {"ladder/rating": 500.0, "ladder/rating_se": 50.0}
    # The last line of a run that is being written.
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"iteration": 41, "ga')
    results = []
    for k in range(120):
        results.append({
            "kind": "train", "blue": "learner", "red": "scripted:push", "seed": k, "winner": int(k < 60), "ticks": 900,
            "crowns": [1, 0], "iteration": 1 + k // 4, "game_step": 1000 * k,
        })
    for k in range(6):
        for a, b in (("live:40", "scripted:noop"), ("scripted:noop", "live:40"), ("snap-a", "live:40")):
            results.append({
                "kind": "eval", "blue": a, "red": b, "seed": 40 + k, "winner": int(b == "live:40"), "ticks": 900,
                "crowns": [1, 0], "iteration": 40, "game_step": 160_000,
            })
    (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results) + "not json\n{}\n")
    (folder / "ladder").mkdir()
    (folder / "ladder" / "ladder.json").write_text(json.dumps({
        "champion": "snap-a", "members": [{"snapshot": "snap-a", "role": "first", "iteration": 10, "game_steps": 1}],
    }))
    stage = Condition("champion", False, "it lost", 24, {"llr": -3.0})
    verdict = Verdict("rejected", "lost to <the> champion", "snap-b", "snap-a", 1, (stage,))
    (folder / "ladder" / "verdict-000001.json").write_text(json.dumps({**verdict.as_dict(), "iteration": 30}))
    (folder / "config.yaml").write_text("model:\n  ppo:\n    kl_limit: 0.03\n")
    one = {"games": 4, "wins": 3, "draws": 0, "losses": 1, "score": 0.75, "low": 0.5, "high": 1.0, "mean_ticks": 900.0}
    cell = {"games": 24, "seeds": 12, "score": 0.625, "low": 0.4, "high": 0.8}
    rare = {"games": 2, "seeds": 1, "score": 1.0, "low": None, "high": None}
    dealt = {
        "own": {"<hog>": cell, "bait": rare}, "enemy": {"bait": cell}, "enemy_cards": {},
        "own_cards": {f"card{i:02d}": cell for i in range(20)},
        "pairs": {"<hog>": {"bait": cell}, "bait": {"bait": rare}}, "least_seeds": 10,
    }
    (folder / "scores.json").write_text(json.dumps({
        "game_steps": 160_000, "seed": 1, "modes": {"sampled": {"opponents": {"push": one}, "mean_score": 0.75}},
        "by_deck": {"sampled": dealt},
    }))
    bot = make_bot(run="tiny")
    bot.save(folder / "bot")
    games = [PlannedGame("tiny", "scripted:push", 3), PlannedGame("scripted:random", "tiny", 4)]
    write_replays({"tiny": bot}, games, bot.spec, folder / "replays")
    return folder


def test_the_page_holds_every_part(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(run)]) == 0
    assert "report.html" in capsys.readouterr().out
    text = (run / "report.html").read_text()
    for said in (
        "&lt;odd&gt; &amp; run-1", "Wilson", "learner (40)", "champion", "lost to &lt;the&gt; champion", "kl_limit",
        "0.750  3-0-1", "Score holding each deck", "&lt;hog&gt;", "0.625  24 games", "card00", "card19",
        "1 decks and cards on fewer than 10 seeds", "game steps/s",
        "Where cards are played", "tiny (blue) - push (red)",
    ):
        assert said in text, said
    assert "card09" not in text, "neither among the best nor among the worst"
    assert 'title="24 games">62<' in text
    assert 'title="2 games"' not in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "nothing is fetched"
    assert "&lt;odd&gt;" in text
    assert "<odd>" not in text


def cells(text: str, section: str) -> list[list[str]]:
    """Of the section's tables, row by row, as they stand in the page."""
    inside = re.search(rf'<section id="{section}">(.*?)</section>', text, re.S)
    assert inside is not None
    return [re.findall(r"<td>(.*?)</td>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", inside[1], re.S)]


def test_alarms_are_told_by_the_fields_that_their_writer_gives_them(run: Path) -> None:
    log = [json.loads(x) for x in (run / "alarms.jsonl").read_text().splitlines()]
    assert {(e["alarm"], e["on"]) for e in log} >= {("busy", True), ("kl_high", True), ("kl_high", False)}
    found = [row for row in cells(page.render(read_run(run, 0)), "alarms") if row]
    assert len(found) == len(log)
    for row, e in zip(found[::-1], log, strict=True):
        assert row[:2] == [str(e["iteration"]), e["alarm"]]
        assert row[2] == (e["severity"] if e["on"] else "over")
        assert row[3:5] == [e["condition"], e["figures"]]
        assert (row[5] != "") is (e["on"] and e["advice"] != "")
    busy = next(row for row in found if row[1] == "busy")
    assert busy[5] == "&lt;b&gt;rest&lt;/b&gt;"
    assert "{" not in "".join(c for row in found for c in row), "no JSON is left for the reader"


def test_changes_on_the_way_and_verdicts_are_told_by_their_writers_fields(run: Path) -> None:
    text = page.render(read_run(run, 0))
    (change,) = [json.loads(x) for x in (run / "drift.jsonl").read_text().splitlines()]
    told = [row for row in cells(text, "config") if len(row) == 5]
    assert told == [[
        str(change["iteration"]),
        *(f"<code>{change[key]}</code>" for key in ("field", "before", "after", "kind")),
    ]]
    assert ["1", "snap-b", "rejected", "24", "30", "lost to &lt;the&gt; champion"] in cells(text, "ladder")


def test_nothing_but_charts_and_assets_is_let_through_unescaped() -> None:
    """The template escapes; a filter that says otherwise would let a name or a message write the page."""
    text = Path(page.__file__).with_name("report.html").read_text()
    assert "safe" not in re.findall(r"\|\s*(\w+)", text)
    assert "autoescape" not in text
    assert page._template().environment.autoescape is True


def test_the_limit_in_the_chart_is_the_configurations(run: Path) -> None:
    made = read_run(run, 0)
    for text, limit in (
        ("other: {kl_limit: 0.5}\nmodel: {ppo: {kl_limit: 0.03}}", 0.03),
        ("model: {ppo: {kl_limit: {linear: [1, 0]}}}", None), ("# kl_limit: 3", None), ("model: [", None),
    ):
        (run / "config.yaml").write_text(text)
        made = read_run(run, 0)
        assert page._number(made.settings, "model", "ppo", "kl_limit") == limit
        assert made.config == text
    (run / "config.yaml").write_text("model:\n  ppo:\n    kl_limit: 0.03\n")


def test_a_bare_log_is_enough(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "game_steps": 5}\n')
    text = write_report(tmp_path, tmp_path / "deep" / "page.html").read_text()
    assert "Not scored yet" in text
    assert "No ladder" in text
    with pytest.raises(UserError, match="holds no run to report"):
        write_report(tmp_path / "nowhere")


def test_scores_have_the_intervals_of_their_battles(run: Path) -> None:
    curves, banded = strength.score_curves(read_run(run, 0))
    (push,) = curves
    assert banded
    assert list(push.y) == [0.0] * 6 + [1.0] * 6, "120 battles, the first half lost, ten to a point"
    assert push.low is not None
    assert push.high is not None
    assert push.low[0] == pytest.approx(0.0, abs=1e-12)
    assert push.high[0] == pytest.approx(0.2775, abs=1e-3), "Wilson's for 0 of 10"
    assert push.low[-1] == pytest.approx(1 - push.high[0]), "won and lost are mirror images"


def test_the_rating_band_is_the_distance_to_the_champion_where_it_was_measured(run: Path) -> None:
    made = read_run(run, 0)
    (learner,) = strength.rating_curve(made)
    assert learner.low == pytest.approx([300 - 1.96 * 60, 500 - 1.96 * 50], abs=0.1), "without a champion its own"
    made.rows[39] |= {"ladder/over_champion_se": 20.0, "ladder/champion_rating": 450.0}
    learner, champion = strength.rating_curve(made)
    assert learner.low == pytest.approx([300 - 1.96 * 60, 500 - 1.96 * 20], abs=0.1)
    assert list(champion.y) == [450.0]


def test_every_figure_that_the_page_asks_for_is_one_that_runs_write() -> None:
    """A renamed metric would leave its chart out of every report, and nobody would miss it."""
    folder = Path(page.__file__).parent
    groups = ("ppo", "time", "speed", "ladder", "policy", "battle", "restarts", "curriculum", "start")
    asked = {
        key for file in folder.glob("*.py")
        for key in re.findall(rf'"((?:{"|".join(groups)})/[a-z_/]+)"', file.read_text())
    }
    asked |= {k for _, keys, _ in (*page._LEARNING, *page._RESTARTS) for k in keys}
    asked |= {f"time/{p}" for p in page.TIME_PARTS}
    assert len(asked) > 25
    assert undeclared(asked) == []


def test_a_run_that_restarted_battles_shows_what_came_of_it(run: Path) -> None:
    made = read_run(run, 0)
    assert 'id="restarts"' not in page.render(made)
    for i, row in enumerate(made.rows):
        row |= {"start/curriculum/score": 0.4, "start/curriculum/episodes": 2, "curriculum/front_steps_left": 40.0 + i}
    text = page.render(made)
    assert 'id="restarts"' in text
    assert 'href="#restarts"' in text
    assert "fronts: game steps left to play, mean" in text
    assert "points in the pool" not in text, "it has no pool"


def test_payoff_and_ratings(run: Path) -> None:
    ratings = strength.ratings_of(read_run(run, 0))
    assert ratings is not None
    assert [r.player for r in strength.rating_rows(ratings)] == ["live:40", "snap-a", "scripted:noop"]
    names, table = strength.payoff(ratings)
    of = {(a, b): table[i][j] for i, a in enumerate(names) for j, b in enumerate(names)}
    assert of["live:40", "scripted:noop"] == (1.0, 12), "both seats counted"
    assert of["snap-a", "scripted:noop"][1] == 0, "never met"


def test_ratings_are_distances_to_the_champion_or_have_their_own_errors(run: Path) -> None:
    made = read_run(run, 0)
    ratings = strength.ratings_of(made)
    assert ratings is not None
    over, own = ratings.difference("live:40", "snap-a"), ratings.of("live:40")
    assert over is not None
    assert own is not None
    text = page.render(made)
    assert "<th>over the champion</th>" in text
    assert f"{over.elo:+.0f}\xa0±\xa0{1.96 * over.se:.0f}" in text
    made.ladder = {**(made.ladder or {}), "champion": None}
    text = page.render(made)
    assert "<th>± 95 %</th>" in text
    assert f"<td>±\xa0{1.96 * own.se:.0f}</td>" in text


def test_behaviour_counts_what_the_traces_say(run: Path) -> None:
    from royalegym import load_trace

    found = read_run(run, 0).behaviour
    assert found is not None
    assert found.battles == 2, "the bot's seat of each, not the scripted one's"
    plays = 0
    for path in (run / "replays").glob("*.msgpack"):
        seat = 0 if path.stem.startswith("tiny") else 1
        for step in load_trace(path).steps:
            plays += sum(c.team == seat and s == 0 for c, s in zip(step.commands, step.statuses, strict=True))
    assert sum(found.cards.values()) == sum(found.tiles.values()) == sum(found.elixir.values()) == plays
    # Whatever its colour, a seat plays troops on its own half, at the bottom; only spells reach beyond.
    spells = {"Fireball", "Zap"}
    assert all(y <= 20 for c, tiles in found.card_tiles.items() if c not in spells for _, y in tiles)
    assert (found.board.width, found.board.height, len(found.board.towers)) == (18, 32, 6)


def test_replays_of_an_older_version_are_shown_and_not_counted(run: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run, old, ignore=shutil.ignore_patterns("checkpoints"))
    pages = sorted((old / "replays").glob("*.html"))
    plays_file(pages[0]).unlink()
    plays_file(pages[1]).write_text('{"schema": 2}')  # nor those of a newer one
    made = read_run(old, 9)
    assert made.behaviour is None
    assert {r.label for r in made.replays} == {p.stem for p in pages}
    assert [r.title for r in made.replays] == ["", ""]
    text = page.render(made)
    assert "Cards and placements are counted over the data beside saved battles, and none is here" in text
    assert "Where cards are played" not in text
    packed = re.findall(r'<script type="text/plain" id="replay-\d">(.*?)</script>', text)
    assert {gzip.decompress(base64.b64decode(x)).decode() for x in packed} == {p.read_text() for p in pages}


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_round_and_inside(low: float, span: float) -> None:
    found = svg.ticks(low, low + span)
    assert all(low - span * 1e-6 - 1e-9 <= t <= low + span * (1 + 1e-6) + 1e-9 for t in found)
    assert len(found) <= 6
    steps = {round(b - a, 9) for a, b in pairwise(found)}
    assert len(steps) <= 1 or max(steps) - min(steps) < 1e-6 * max(map(abs, found))


def test_a_long_line_is_thinned_to_means() -> None:
    x = [float(i) for i in range(3600)]
    thin = svg.thinned(svg.Series("s", x, [2 * v for v in x]))
    assert len(thin.x) == svg.POINTS
    assert thin.x[0] == pytest.approx(4.5)
    assert all(math.isclose(b, 2 * a) for a, b in zip(thin.x, thin.y, strict=True))
    assert svg.lines([], "nothing") == ""


def test_a_flat_line_keeps_the_floor_it_was_given() -> None:
    """A share that was 0 throughout had an axis from -0.5."""
    text = svg.lines([svg.Series("share", [1.0, 2.0], [0.0, 0.0])], "share", y=(0.0, None), mark=(0.0, "limit"))
    assert "-0." not in re.sub(r'<(?:svg|polyline|line)[^>]*>', "", text)


def test_a_chart_escapes_what_it_is_given() -> None:
    evil = "<script>&"
    line = svg.Series(evil, [1.0], [2.0])
    for chart in (
        svg.lines([line, line], evil, mark=(1.0, evil)), svg.bars([(evil, 1.0, evil)], evil),
        svg.whiskers([(evil, 0.5, 0.4, 0.6, evil)], evil), svg.stacked([1.0, 2.0], {evil: [1.0, 2.0]}, evil),
    ):
        assert "<script>" not in chart
        assert "&lt;script&gt;&amp;" in chart


def test_layers_of_time_have_a_colour_each(run: Path) -> None:
    made = read_run(run, 0)
    for row in made.rows:
        row |= {f"time/{name}": 0.1 + i / 10 for i, name in enumerate(page.TIME_PARTS)}
        row["time/iteration"] = 60.0
    found = page._time(made)
    assert len(page.TIME_PARTS) > svg.COLOURS
    assert str(found["parts"]).count("<polygon") == svg.COLOURS
    assert str(found["shares"]).count("<rect") == len(page.TIME_PARTS) + 1, "the bars name them all"


_DRIVER = """
<script>
window.addEventListener("load", function () {
  var out = {}, buttons = document.querySelectorAll("button[data-replay]"), i = 0;
  var chart = document.querySelector("svg[data-chart]");
  chart.focus();
  chart.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
  out.tip = document.getElementById("tip").textContent;
  out.tabbable = document.querySelectorAll("a[href],button,svg[tabindex='0'],summary").length;
  out.played = [];
  function next() {
    if (i === buttons.length) {
      var pre = document.createElement("pre");
      pre.id = "driven"; pre.textContent = JSON.stringify(out);
      document.body.appendChild(pre);
      return;
    }
    buttons[i].click();
    (function wait() {
      var frame = document.getElementById("player");
      if (frame.dataset.shown !== String(i)) { setTimeout(wait, 20); return; }
      var inside = frame.contentDocument, scrub = inside.getElementById("scrub");
      scrub.value = scrub.max; scrub.dispatchEvent(new Event("input"));
      setTimeout(function () {
        var thought = inside.querySelector(".thought");
        out.played.push([inside.getElementById("result").textContent, thought ? thought.textContent : ""]);
        i += 1; next();
      }, 50);
    })();
  }
  next();
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("window", ["1200,900", "400,800"])
def test_a_browser_shows_it(run: Path, tmp_path: Path, window: str) -> None:
    """Read a chart by key, click through the replays, and find nothing on the console."""
    assert CHROMIUM is not None
    page = write_report(run, tmp_path / "page.html")
    page.write_text(page.read_text().replace("</head>", _DRIVER + "</head>", 1))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={window}", "--enable-logging=stderr",
            "--virtual-time-budget=20000", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert not [x for x in done.stderr.splitlines() if "CONSOLE" in x], done.stderr
    driven = re.search(r'<pre id="driven">(.*?)</pre>', done.stdout, re.S)
    assert driven is not None, done.stdout[-2000:]
    out = json.loads(driven[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert "game steps" in out["tip"]
    assert "push" in out["tip"]
    assert out["tabbable"] > 15
    assert len(out["played"]) == 2
    for result, thought in out["played"]:
        assert "wins" in result or "Draw" in result
        assert "tiny" in thought
        assert "wait" in thought
