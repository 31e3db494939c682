"""The report's page: one section per question, each saying what is missing where nothing was measured."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...battle.round import START_KINDS, TRUE
from ...metrics.declarations import METRICS
from ...metrics.intervals import Z95
from . import strength, svg
from .read import Run
from .svg import Series, number

#: Parts of an iteration's time, in the order they are stacked. What is left of the whole is "rest".
TIME_PARTS = [
    name for m in METRICS if m.name.startswith("time/") and (name := m.name[5:]) not in ("iteration", "rest")
]


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def render(run: Run) -> str:
    """The whole document."""
    sections = [
        ("strength", "Strength", _strength(run)),
        ("ladder", "Ladder", _ladder(run)),
        ("learning", "Learning", _learning(run)),
        ("restarts", "Restarts", _restarts(run)),
        ("time", "Time", _time(run)),
        ("behaviour", "Behaviour", _behaviour(run)),
        ("replays", "Replays", _replays(run)),
        ("alarms", "Alarms", _alarms(run)),
        ("config", "Configuration and identity", _identity(run)),
    ]
    sections = [s for s in sections if s[2]]
    nav = "".join(f'<a href="#{key}">{title}</a>' for key, title, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{title}</h2>{text}</section>' for key, title, text in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{_t(run.name)} · Royale Lightning</title>\n<style>\n{_asset('report.css')}</style>\n</head>\n<body>\n"
        f"<header><h1>{_t(run.name)}</h1>{_tiles(run)}<nav>{nav}</nav></header>\n<main>\n{body}\n</main>\n"
        f'<div id="tip" role="status" hidden></div>\n<script>\n{_asset("report.js")}</script>\n</body>\n</html>\n'
    )


def _t(value: Any) -> str:
    return html.escape(str(value))


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already; the first column is text, the others numbers."""
    top = "".join(f"<th>{h}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in r) + "</tr>" for r in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


# ---- sections ----------------------------------------------------------------------------------------------------
def _tiles(run: Run) -> str:
    last = run.rows[-1]
    wall = sum(run.column("time/iteration")[1])
    steps = float(last.get("game_steps", 0))
    tiles = [("game steps", number(steps)), ("iterations", number(float(last.get("iteration", len(run.rows)))))]
    if wall:
        tiles += [("wall time", _clock(wall)), ("game steps/s", number(steps / wall))]
    if run.scores:
        mode: dict[str, Any] = next(iter(run.scores.get("modes", {}).values()), {})
        if "mean_score" in mode:
            tiles.append(("mean score", f"{mode['mean_score']:.3f}"))
    elif "score/scripted" in last:
        tiles.append(("score in training", f"{last['score/scripted']:.3f}"))
    if "ladder/rating" in {k for r in run.rows for k in r}:
        tiles.append(("rating", f"{run.column('ladder/rating')[1][-1]:.0f}"))
    tiles.append(("last row", f"{_clock(run.age)} ago"))
    items = "".join(f"<div><b>{v}</b><span>{_t(k)}</span></div>" for k, v in tiles)
    return f'<div class="tiles">{items}</div>'


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d} h"
    return f"{seconds / 86400:.0f} days"


def _strength(run: Run) -> str:
    curves, banded = strength.score_curves(run)
    out = []
    if run.scores:
        rows = strength.score_rows(run.scores, "sampled")
        out.append("<h3>Scored table</h3>" + svg.whiskers(rows, "score against each opponent with its 95 % interval"))
        out.append(_note(
            f"At {number(float(run.scores.get('game_steps', 0)))} game steps, paired seeds from "
            f"{run.scores.get('seed', '?')}, both seats; wins-draws-losses. The seed is the unit of the intervals."
        ))
        modes = run.scores.get("modes", {})
        table = [
            [_t(mode), _t(name), str(s["games"]), f"{s['wins']}-{s['draws']}-{s['losses']}", f"{s['score']:.3f}",
             f"{s['low']:.3f}–{s['high']:.3f}", f"{s['mean_ticks']:.0f}"]
            for mode, part in modes.items() for name, s in part["opponents"].items()
        ]
        out.append(_details("As a table", _table(
            ["acting", "opponent", "games", "W-D-L", "score", "95 %", "ticks"], table
        )))
    else:
        out.append(_note(
            "Not scored yet: <code>royale-lightning test --ckpt_path RUN/checkpoints/last.ckpt</code> plays the table."
        ))
    chart = svg.lines(curves, "score in training against each opponent over game steps", y=(0.0, 1.0))
    if chart:
        out.append("<h3>In training, over game steps</h3>" + chart)
        out.append(_note(
            "Training battles, ten or more to a point, with Wilson's 95 % intervals; the policy explores, so it scores "
            "less here than in the table." if banded else
            "Mean of the last 60 training battles against each; the log of single battles that intervals need is not "
            "in this run."
        ))
    return "".join(out)


def _ladder(run: Run) -> str:
    out = []
    curve = svg.lines(strength.rating_curve(run), "rating over game steps", unit="")
    if curve:
        out.append("<h3>Rating over game steps</h3>" + curve)
        out.append(_note(
            "Elo points above the scripted opponent patient. The band is the 95 % interval of the distance to the "
            "champion, where there is one: whom all of them beat says little about which of them is stronger."
        ))
    ratings = strength.ratings_of(run)
    if ratings is not None:
        roles = {m["snapshot"]: m for m in (run.ladder or {}).get("members", []) if "snapshot" in m}
        champion = (run.ladder or {}).get("champion")
        rows = []
        for r in strength.rating_rows(ratings):
            role = str(roles.get(r.player, {}).get("role", ""))
            role += (", " if role else "") + "champion" if r.player == champion else ""
            over = ratings.difference(r.player, champion or "")
            # Without a champion there is nobody to be compared with, and the rating's own error is all there is.
            told = f"± {Z95 * r.se:.0f}" if over is None else f"{over.elo:+.0f} ± {Z95 * over.se:.0f}"
            told = "" if r.player == champion or r.separable else told.replace(" ", "&nbsp;")
            rating = f"about&nbsp;{r.elo:.0f}" if r.separable else f"{r.elo:.0f}"
            rows.append([_t(strength.short(r.player)), rating, told, str(r.games), _t(role)])
        column = "over the champion" if champion in ratings else "± 95 %"
        out.append("<h3>Ratings</h3>" + _table(["player", "rating", column, "games", "role"], rows))
        out.append(_note(
            "Elo points, with 95 % intervals; a distance to the champion has an interval of its own. Who won all or "
            "lost all has a number that is the prior's choice, and no interval."
        ))
        out.append("<h3>Who beats whom</h3>" + _payoff(ratings))
    if run.verdicts:
        rows = [
            [str(i + 1), _t(v.get("candidate", "")), _t(v.get("outcome", "")),
             _t(v.get("battles", "")), _t(v.get("iteration", ""))]
            for i, v in enumerate(run.verdicts)
        ]
        out.append("<h3>Verdicts of the gate</h3>" + _table(
            ["verdict", "candidate", "outcome", "battles", "iteration"], rows
        ))
    return "".join(out) or _note(
        "No ladder: no battle between this run's players was rated. <code>SnapshotPromotion</code> and "
        "<code>RatingUpdate</code> among <code>trainer.callbacks</code> make one."
    )


def _payoff(ratings: Any) -> str:
    names, table = strength.payoff(ratings)
    head = "".join(f'<th scope="col"><span>{_t(strength.short(n))}</span></th>' for n in names)
    rows = []
    for name, cells in zip(names, table, strict=True):
        line = []
        for score, games in cells:
            if not games:
                line.append('<td class="none">·</td>')
                continue
            side = "win" if score >= 0.5 else "loss"
            share = abs(score - 0.5) * 1.6
            line.append(
                f'<td class="{side}" style="--share:{share:.2f}" title="{games} games">{100 * score:.0f}</td>'
            )
        rows.append(f'<tr><th scope="row">{_t(strength.short(name))}</th>{"".join(line)}</tr>')
    return (
        f'<div class="wide"><table class="payoff"><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(rows)}'
        "</tbody></table></div>"
    ) + _note(
        f"Score of the row against the column, in per cent; a dot where they never met. The {len(names)} strongest of "
        f"{len(strength.rating_rows(ratings))}."
    )


#: Small charts of the learning section: title, keys, whether 0 is the floor.
_LEARNING: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("KL to the policy that acted (nats)", ("ppo/approx_kl",), True),
    ("clipped share", ("ppo/clip_fraction",), True),
    ("entropy (nats)", ("ppo/entropy_play", "ppo/entropy_choice", "ppo/entropy_tile"), True),
    ("policy loss", ("ppo/policy_loss",), False),
    ("value loss", ("ppo/value_loss_choice", "ppo/value_loss_forced"), True),
    ("explained variance", ("ppo/explained_variance",), False),
    ("learning rate", ("ppo/learning_rate",), True),
    ("PPO epochs done", ("ppo/ppo_epochs_done",), True),
    ("return of a battle", ("battle/return",), False),
    ("length of a battle (ticks)", ("battle/ticks",), True),
)


def _learning(run: Run) -> str:
    return _grid(run, _LEARNING)


#: Of the section on restarts.
_RESTARTS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("score by kind of start", tuple(f"start/{k}/score" for k in START_KINDS), True),
    ("share of the game steps by kind of start", tuple(f"start/{k}/step_share" for k in START_KINDS), True),
    ("points in the pool", ("restarts/points",), True),
    ("fronts: game steps left to play, mean", ("curriculum/front_steps_left",), True),
    ("fronts that still walk", ("curriculum/walking",), True),
    ("won from the fronts", ("curriculum/rate",), True),
)


def _restarts(run: Run) -> str:
    """Empty for a run in which every battle began at its beginning."""
    kinds = [k for k in START_KINDS if k != TRUE]
    began = any(f"start/{k}/episodes" in r for r in run.rows for k in kinds)
    return _grid(run, _RESTARTS) if began else ""


def _grid(run: Run, charts: Sequence[tuple[str, tuple[str, ...], bool]]) -> str:
    out = []
    for title, keys, floor in charts:
        # "true" of start/true/score, "entropy play" of ppo/entropy_play.
        series = [Series(k.split("/")[1].replace("_", " "), *run.column(k)) for k in keys]
        mark = None
        if keys == ("ppo/approx_kl",) and (limit := _setting(run.config, "kl_limit")):
            mark = (limit, "kl_limit")
        chart = svg.lines(
            [x for x in series if len(x.x)], title, width=400, height=190, y=(0.0 if floor else None, None), mark=mark,
        )
        if chart:
            out.append(f"<figure><figcaption>{title}</figcaption>{chart}</figure>")
    return f'<div class="grid">{"".join(out)}</div>'


def _setting(config: str, name: str) -> float | None:
    """A number of the configuration's text, by its last name."""
    for line in config.splitlines():
        key, _, value = line.strip().partition(":")
        if key == name:
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _time(run: Run) -> str:
    rows = [r for r in run.rows if "time/iteration" in r and "game_steps" in r]
    parts: dict[str, list[float]] = {}
    for name in TIME_PARTS:
        column = [float(r.get(f"time/{name}", 0.0)) for r in rows]
        if any(column):
            parts[name.replace("_", " ")] = column
    whole = [float(r["time/iteration"]) for r in rows]
    known = [sum(c) for c in zip(*parts.values(), strict=True)] if parts else [0.0] * len(rows)
    parts["rest"] = [max(0.0, a - b) for a, b in zip(whole, known, strict=True)]
    total = sum(sum(v) for v in parts.values()) or 1.0
    shares = sorted(((k, sum(v)) for k, v in parts.items()), key=lambda p: -p[1])
    chart = svg.stacked([float(r["game_steps"]) for r in rows], parts, "seconds of an iteration by phase")
    bars = svg.bars([(k, v, f"{100 * v / total:.1f} %, {_clock(v)}") for k, v in shares], "share of the time by phase")
    x, speed = run.column("speed/game_steps_per_s")
    fast = svg.lines([Series("game steps/s", x, speed)], "game steps per second", height=160, y=(0.0, None))
    return (
        "<h3>Share of the run</h3>" + bars + "<h3>Seconds of an iteration</h3>" + chart
        + ("<h3>Game steps per second</h3>" + fast if fast else "")
    )


def _behaviour(run: Run) -> str:
    out = []
    for title, keys in (
        ("plays of a battle", ("policy/plays_per_battle",)),
        ("share of game steps at a full bar", ("policy/leak_share",)),
    ):
        series = [Series(k, *run.column(k)) for k in keys]
        chart = svg.lines(series, title, width=400, height=160, y=(0.0, None))
        if chart:
            out.append(f"<figure><figcaption>{title}</figcaption>{chart}</figure>")
    found = [f'<div class="grid">{"".join(out)}</div>'] if out else []
    b = run.behaviour
    if b is None or b.arena is None:
        found.append(_note(
            "Cards and placements are counted over saved battles, and none is here: "
            "<code>royale-lightning predict --ckpt_path RUN/checkpoints/last.ckpt</code> plays some, and "
            "<code>BattleReplays</code> among <code>trainer.callbacks</code> keeps some of the training's."
        ))
        return "".join(found)
    plays = sum(b.cards.values())
    cards = [
        (c, n / b.battles, f"{n / b.battles:.1f} a battle, {100 * n / plays:.0f} %") for c, n in b.cards.most_common()
    ]
    elixir = [(str(e), float(b.elixir[e]), f"{100 * b.elixir[e] / plays:.0f} %") for e in range(11)]
    found.append(
        '<div class="grid"><figure><figcaption>cards played</figcaption>' + svg.bars(cards, "cards played")
        + "</figure><figure><figcaption>elixir in the bar before a play</figcaption>"
        + svg.bars(elixir, "elixir before a play") + "</figure></div>"
    )
    maps = [("all cards", dict(b.tiles))] + [(c, dict(b.card_tiles[c])) for c, n in b.cards.most_common() if n]
    found.append("<h3>Where cards are played</h3><div class=\"maps\">" + "".join(
        f"<figure><figcaption>{_t(name)}, {sum(tiles.values())} plays</figcaption>"
        f"{svg.heat(b.arena, tiles, f'placements of {name}')}</figure>" for name, tiles in maps
    ) + "</div>")
    found.append(_note(
        f"{plays:,} plays of the policy in {b.battles} seats of saved battles ({b.minutes:.0f} minutes), from its own "
        "side: its king is at the bottom. Saved battles are chosen, so rates are those of battles worth watching."
    ))
    return "".join(found)


def _replays(run: Run) -> str:
    if not run.replays:
        return _note("None saved yet; see Behaviour for how to get some.")
    items, data = [], []
    for i, r in enumerate(run.replays):
        items.append(
            f'<li><button type="button" data-replay="{i}"><b>{_t(r.label)}</b><span>{r.title}</span></button></li>'
        )
        packed = base64.b64encode(gzip.compress(r.html.encode(), mtime=0)).decode()
        data.append(f'<script type="text/plain" id="replay-{i}">{packed}</script>')
    return (
        f'<ul class="replays">{"".join(items)}</ul><p id="replay-title" class="note" aria-live="polite"></p>'
        f'<iframe id="player" title="replay" hidden></iframe>{"".join(data)}'
    )


def _alarms(run: Run) -> str:
    if not run.alarms:
        return _note("None was raised." if any("alarm" in k for r in run.rows for k in r) else
                     "None was raised, or none was watching.")
    rows = []
    for a in run.alarms[-200:][::-1]:
        rest = {k: v for k, v in a.items() if k not in ("iteration", "severity", "level", "alarm", "name", "message")}
        rows.append([
            _t(a.get("iteration", "")), _t(a.get("severity", a.get("level", ""))),
            _t(a.get("alarm", a.get("name", ""))), _t(a.get("message", json.dumps(rest))),
        ])
    return _table(["iteration", "severity", "alarm", "what it saw"], rows)


def _identity(run: Run) -> str:
    out = []
    if run.bot:
        engine = run.bot.get("engine", {})
        facts = {
            "network": (run.bot.get("network") or {}).get("class_path", ""), "battle": run.bot.get("battle_digest", ""),
            "row layout": run.bot.get("row_layout", ""), "catalogue": run.bot.get("catalogue", ""), **engine,
        }
        out.append(_table(["", ""], [[_t(k), f"<code>{_t(v)}</code>"] for k, v in facts.items()]))
    if run.drift:
        out.append("<h3>Changes on the way</h3>" + _table(
            ["", ""], [[_t(d.get("iteration", "")), f"<code>{_t(json.dumps(d))}</code>"] for d in run.drift]
        ))
    if run.config:
        out.append(_details("config.yaml", f"<pre>{_t(run.config)}</pre>"))
    return "".join(out) or _note("No configuration was saved.")
