"""What the report's page shows, as plain values and charts; ``report.html`` lays it out and escapes it.

One function per section; what was not measured is None or empty, and the template says how to get it.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from ..battle.round import START_KINDS, TRUE
from ..metrics.declarations import METRICS
from ..metrics.intervals import Z95
from . import strength, svg
from .read import Run
from .svg import Series, number

if TYPE_CHECKING:
    from ..ladder.ratings.rating import Ratings

#: Parts of an iteration's time, in the order they are stacked. What is left of the whole is "rest".
TIME_PARTS = [
    name for m in METRICS if m.name.startswith("time/") and (name := m.name[5:]) not in ("iteration", "rest")
]
#: Alarms that are shown, the newest ones.
_ALARMS = 200
#: Cards that are shown, so many of the best and of the worst.
_CARDS = 8
#: Does not break where a table's column is narrow.
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Chart:
    """A chart with what stands above it."""

    title: str
    svg: Markup


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return made.get_template("report.html")


@cache
def _asset(name: str) -> Markup:
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def render(run: Run) -> str:
    """The whole document."""
    return _template().render(
        name=run.name, style=_asset("report.css"), script=_asset("report.js"), tiles=_tiles(run),
        strength=_strength(run), decks=_decks(run), ladder=_ladder(run), learning=_charts(run, _LEARNING),
        restarts=_restarts(run), time=_time(run), behaviour=_behaviour(run), replays=_replays(run),
        alarms=_alarms(run), watched=any("alarm" in key for row in run.rows for key in row), identity=_identity(run),
    )


# ---- sections ----------------------------------------------------------------------------------------------------
def _tiles(run: Run) -> list[tuple[str, str]]:
    last = run.rows[-1]
    wall = sum(run.column("time/iteration")[1])
    steps = float(last.get("game_steps", 0))
    tiles = [(number(steps), "game steps"), (number(float(last.get("iteration", len(run.rows)))), "iterations")]
    if wall:
        tiles += [(_clock(wall), "wall time"), (number(steps / wall), "game steps/s")]
    if run.scores:
        mode: dict[str, Any] = next(iter(run.scores.get("modes", {}).values()), {})
        if "mean_score" in mode:
            tiles.append((f"{mode['mean_score']:.3f}", "mean score"))
    elif "score/scripted" in last:
        tiles.append((f"{last['score/scripted']:.3f}", "score in training"))
    if rating := run.column("ladder/rating")[1]:
        tiles.append((f"{rating[-1]:.0f}", "rating"))
    return [*tiles, (f"{_clock(run.age)} ago", "last row")]


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d} h"
    return f"{seconds / 86400:.0f} days"


def _strength(run: Run) -> dict[str, Any]:
    curves, banded = strength.score_curves(run)
    scores = run.scores or {}
    rows = strength.score_rows(scores, "sampled")
    return {
        "scored": svg.whiskers(rows, "score against each opponent with its 95 % interval"),
        "game_steps": number(float(scores.get("game_steps", 0))),
        "seed": scores.get("seed", "?"),
        "table": [
            [mode, name, s["games"], f"{s['wins']}-{s['draws']}-{s['losses']}", f"{s['score']:.3f}",
             f"{s['low']:.3f}–{s['high']:.3f}", f"{s['mean_ticks']:.0f}"]
            for mode, part in scores.get("modes", {}).items() for name, s in part["opponents"].items()
        ],
        "curve": svg.lines(curves, "score in training against each opponent over game steps", y=(0.0, 1.0)),
        "banded": banded,
    }


def _decks(run: Run) -> dict[str, Any] | None:
    """Of the scores by deck; None where none were asked for."""
    found = strength.deck_scores(run.scores or {}, "sampled")
    if found is None:
        return None
    rows = {kind: strength.cell_rows(found[kind]) for kind in ("own", "enemy", "own_cards", "enemy_cards")}
    cards = [_best_and_worst(rows[kind]) for kind in ("own_cards", "enemy_cards")]
    return {
        "least": found["least_seeds"],
        "hidden": sum(len(found[kind]) - len(rows[kind]) for kind in rows),
        "charts": [
            Chart(title, svg.whiskers(drawn, title)) for title, drawn in (
                ("holding each deck", rows["own"]), ("against each deck", rows["enemy"]),
                ("holding a card: the best and the worst", cards[0]),
                ("against a card: the best and the worst", cards[1]),
            ) if drawn
        ],
        **_deck_pairs(found["pairs"]),
    }


def _best_and_worst(rows: list[Any]) -> list[Any]:
    return rows if len(rows) <= 2 * _CARDS else rows[:_CARDS] + rows[-_CARDS:]


def _deck_pairs(pairs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    columns = sorted({name for row in pairs.values() for name in row})
    cells = {
        mine: [
            _cell(c["score"], c["games"]) if (c := row.get(other)) and c["low"] is not None else _cell(0.5, 0)
            for other in columns
        ]
        for mine, row in sorted(pairs.items())
    }
    known = any(c["games"] for row in cells.values() for c in row)
    return {"names": columns if known else [], "pairs": list(cells.items()) if known else []}


def _ladder(run: Run) -> dict[str, Any]:
    ratings = strength.ratings_of(run)
    champion = (run.ladder or {}).get("champion")
    return {
        "curve": svg.lines(strength.rating_curve(run), "rating over game steps", unit=""),
        "compared": "over the champion" if ratings is not None and champion in ratings else "± 95 %",
        "ratings": [] if ratings is None else _rating_table(run, ratings, champion),
        "verdicts": [
            [i + 1, *(v.get(key, "") for key in ("candidate", "outcome", "battles", "iteration", "why"))]
            for i, v in enumerate(run.verdicts)
        ],
        **_payoff(ratings),
    }


def _rating_table(run: Run, ratings: Ratings, champion: str | None) -> list[list[Any]]:
    roles = {m["snapshot"]: m for m in (run.ladder or {}).get("members", []) if "snapshot" in m}
    rows = []
    for r in strength.rating_rows(ratings):
        role = str(roles.get(r.player, {}).get("role", ""))
        role += (", " if role else "") + "champion" if r.player == champion else ""
        over = ratings.difference(r.player, champion or "")
        # Without a champion there is nobody to be compared with, and the rating's own error is all there is.
        told = f"± {Z95 * r.se:.0f}" if over is None else f"{over.elo:+.0f} ± {Z95 * over.se:.0f}"
        told = "" if r.player == champion or r.separable else told.replace(" ", _SPACE)
        rating = f"about{_SPACE}{r.elo:.0f}" if r.separable else f"{r.elo:.0f}"
        rows.append([strength.short(r.player), rating, told, r.games, role])
    return rows


def _payoff(ratings: Ratings | None) -> dict[str, Any]:
    names, table = ([], []) if ratings is None else strength.payoff(ratings)
    short = [strength.short(n) for n in names]
    cells = [[_cell(score, games) for score, games in row] for row in table]
    return {"names": short, "payoff": list(zip(short, cells, strict=True))}


def _cell(score: float, games: int) -> dict[str, Any]:
    """Of a table of scores, shaded by how far it is from even; a dot without games."""
    return {
        "games": games, "score": f"{100 * score:.0f}", "side": "win" if score >= 0.5 else "loss",
        "share": f"{abs(score - 0.5) * 1.6:.2f}",
    }


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

#: Of the section on restarts.
_RESTARTS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("score by kind of start", tuple(f"start/{k}/score" for k in START_KINDS), True),
    ("share of the game steps by kind of start", tuple(f"start/{k}/step_share" for k in START_KINDS), True),
    ("points in the pool", ("restarts/points",), True),
    ("fronts: game steps left to play, mean", ("curriculum/front_steps_left",), True),
    ("fronts that still walk", ("curriculum/walking",), True),
    ("won from the fronts", ("curriculum/rate",), True),
)

#: Of the section on behaviour, where no battle was saved too.
_BEHAVIOUR: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("plays of a battle", ("policy/plays_per_battle",), True),
    ("share of game steps at a full bar", ("policy/leak_share",), True),
)


def _restarts(run: Run) -> list[Chart]:
    """Empty for a run in which every battle began at its beginning."""
    kinds = [k for k in START_KINDS if k != TRUE]
    began = any(f"start/{k}/episodes" in r for r in run.rows for k in kinds)
    return _charts(run, _RESTARTS) if began else []


def _charts(run: Run, charts: Sequence[tuple[str, tuple[str, ...], bool]]) -> list[Chart]:
    out = []
    for title, keys, floor in charts:
        # "true" of start/true/score, "entropy play" of ppo/entropy_play.
        series = [Series(k.split("/")[1].replace("_", " "), *run.column(k)) for k in keys]
        mark = None
        if keys == ("ppo/approx_kl",) and (limit := _number(run.settings, "model", "ppo", "kl_limit")):
            mark = (limit, "kl_limit")
        drawn = [x for x in series if len(x.x)]
        chart = svg.lines(drawn, title, width=400, height=190, y=(0.0 if floor else None, None), mark=mark)
        if chart:
            out.append(Chart(title, chart))
    return out


def _number(settings: Any, *path: str) -> float | None:
    """A setting that is a number; None where it is not there, or a schedule."""
    for key in path:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return float(settings) if isinstance(settings, int | float) else None


def _time(run: Run) -> dict[str, Markup]:
    rows = [r for r in run.rows if "time/iteration" in r and "game_steps" in r]
    parts: dict[str, list[float]] = {}
    for name in TIME_PARTS:
        column = [float(r.get(f"time/{name}", 0.0)) for r in rows]
        if any(column):
            parts[name.replace("_", " ")] = column
    whole = [float(r["time/iteration"]) for r in rows]
    largest = sorted(parts, key=lambda k: -sum(parts[k]))[: svg.COLOURS - 1]
    layers = _with_rest({k: v for k, v in parts.items() if k in largest}, whole)
    parts = _with_rest(parts, whole)
    total = sum(sum(v) for v in parts.values()) or 1.0
    shares = sorted(((k, sum(v)) for k, v in parts.items()), key=lambda p: -p[1])
    bars = [(k, v, f"{100 * v / total:.1f} %, {_clock(v)}") for k, v in shares]
    speed = Series("game steps/s", *run.column("speed/game_steps_per_s"))
    return {
        "shares": svg.bars(bars, "share of the time by phase"),
        "parts": svg.stacked([float(r["game_steps"]) for r in rows], layers, "seconds of an iteration by phase"),
        "speed": svg.lines([speed], "game steps per second", height=160, y=(0.0, None)),
    }


def _with_rest(parts: dict[str, list[float]], whole: list[float]) -> dict[str, list[float]]:
    """The parts and what they leave of the whole, row by row."""
    known = [sum(c) for c in zip(*parts.values(), strict=True)] if parts else [0.0] * len(whole)
    return parts | {"rest": [max(0.0, a - b) for a, b in zip(whole, known, strict=True)]}


def _behaviour(run: Run) -> dict[str, Any]:
    out: dict[str, Any] = {"charts": _charts(run, _BEHAVIOUR), "counted": "", "bars": [], "maps": []}
    b = run.behaviour
    if b is None:
        return out
    plays = b.cards.total()
    share = 100 / max(1, plays)
    cards = [(c, n / b.battles, f"{n / b.battles:.1f} a battle, {share * n:.0f} %") for c, n in b.cards.most_common()]
    elixir = [(str(e), float(b.elixir[e]), f"{share * b.elixir[e]:.0f} %") for e in range(11)]
    maps = [("all cards", b.tiles)] + [(c, b.card_tiles[c]) for c, n in b.cards.most_common() if n]
    return out | {
        "counted": f"{plays:,} plays of the policy in {b.battles} seats of saved battles ({b.minutes:.0f} minutes)",
        "bars": [
            Chart("cards played", svg.bars(cards, "cards played")),
            Chart("elixir in the bar before a play", svg.bars(elixir, "elixir before a play")),
        ],
        "maps": [
            Chart(f"{name}, {tiles.total()} plays", svg.heat(b.board, dict(tiles), f"placements of {name}"))
            for name, tiles in maps
        ],
    }


def _replays(run: Run) -> list[dict[str, str]]:
    return [
        {
            "label": r.label, "title": r.title,
            "packed": base64.b64encode(gzip.compress(r.html.encode(), mtime=0)).decode(),
        }
        for r in run.replays
    ]


def _alarms(run: Run) -> list[list[Any]]:
    """Newest first. An alarm that is over is told by the figures that ended it, and needs no advice."""
    return [
        [a.get("iteration", ""), a.get("alarm", ""), a.get("severity", "") if a.get("on", True) else "over",
         a.get("condition", ""), a.get("figures", ""), a.get("advice", "") if a.get("on", True) else ""]
        for a in run.alarms[-_ALARMS:][::-1]
    ]


def _identity(run: Run) -> dict[str, Any]:
    bot = run.bot or {}
    network, engine = (x if isinstance(x := bot.get(key), dict) else {} for key in ("network", "engine"))
    facts = {
        "network": network.get("class_path", ""), "battle": bot.get("battle_digest", ""),
        "row layout": bot.get("row_layout", ""), "catalogue": bot.get("catalogue", ""), **engine,
    }
    return {
        "facts": list(facts.items()) if bot else [],
        "changes": [[d.get(key, "") for key in ("iteration", "field", "before", "after", "kind")] for d in run.drift],
        "config": run.config,
    }
