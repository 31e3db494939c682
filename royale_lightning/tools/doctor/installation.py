"""Checks of what is installed: versions, engine, cards, the configuration's parts, legality, precision."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import time

from ...battle.prepare import prepare
from ...errors import UserError
from .patient import Patient

#: Battles at once, and seconds after the first round, to try the mask; a thousand plays take some three.
_MASK_BATTLES, _MASK_SECONDS = 8, 4.0
#: Fewer plays have tried nothing; they are waited for.
_MASK_PLAYS = 200


def versions(_: Patient) -> str:
    """Whether every package that is needed is there in a version that fits; UserError names those that are not."""
    from packaging.requirements import Requirement

    wrong = []
    for line in importlib.metadata.requires("royale_lightning") or []:
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            found = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            continue
        if not need.specifier.contains(found, prereleases=True):
            wrong.append(f"{need.name} is {found} and must be {need.specifier}")
    if wrong:
        raise UserError(f"{'; '.join(wrong)}: install royale_lightning again, or pip install what is named")
    shown = []
    for name in ("royale_lightning", "royalegym", "royalesim", "torch", "lightning", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            shown.append(f"{name} {importlib.metadata.version(name)}")
    return f"Python {platform.python_version()}, {', '.join(shown)}"


def engine(_: Patient) -> str:
    """Whether the battle engine loads and is one that is known here."""
    from ...battle.engine.engine import engine_identity, shared_engine

    try:
        shared_engine()  # refuses a build of other data, and state columns in another order than are read
    except ImportError as exc:
        raise UserError(f"the battle engine does not load ({exc}); pip install 'royalegym[sim]'") from exc
    known = engine_identity()
    return f"royalesim {known['royalesim']}, build {known['build_digest']}, binary {known['engine_binary_sha256']}"


def cards(patient: Patient) -> str:
    """Whether the engine's battles use the card table that its catalogue describes."""
    from ...battle.engine.engine import new_battle, shared_engine

    e = shared_engine()
    stamp = e.card_table_stamp()
    if stamp["cards_json_hash_source"] == "unavailable":
        raise UserError("the engine does not say which card table it reads; reinstall 'royalegym[sim]'")
    played = getattr(new_battle(), "cards_json_fnv1a64", None)
    played = played() if callable(played) else played
    played = f"{played:016x}" if isinstance(played, int) else played
    if played and str(played).lower() != stamp["cards_json_fnv1a64"]:
        raise UserError(f"battles play card table {played} and RoyaleGym's catalogue is {stamp['cards_json_fnv1a64']}")
    patient.data.battle.check_deck()
    decks = patient.data.battle.decks
    deck = "decks drawn a battle" if decks is None else f"{len({c for d in decks for c in d})} cards in the decks"
    return f"{len(e.cards())} cards, table {stamp['cards_json_fnv1a64']} ({stamp['cards_vintage']}), {deck}"


def configuration(patient: Patient) -> str:
    """Whether the configuration's battles start and its network takes their rows."""
    from ...run.devices import check_precision

    check_precision(patient.trainer.get("precision"))
    data = patient.data
    data.setup("fit")
    data.opponents.build(data.seed, data.rollout.battles)
    size = sum(p.numel() for p in patient.network.parameters())
    row = prepare(data.battle).row_layout.row_bytes
    return f"battles start and the network takes their rows: {size:,} parameters, {row:,} bytes a row"


def mask(patient: Patient) -> str:
    """Random legal plays, eagerly, so that towers fall and buildings stand: the engine must take every one."""
    import numpy as np

    from ...battle.players import LEARNER
    from ...battle.round import CHOICE, RUNNING, Assignment
    from ...battle.rows.layout import MASK
    from ...battle.steps.arena import ArenaSettings
    from ...battle.steps.sources import InlineSource
    from ...battle.streams import generator, stream_seed

    spec, seed = patient.data.battle, patient.data.seed
    layout = prepare(spec).row_layout
    source = InlineSource(spec, 0, _MASK_BATTLES, ArenaSettings(seed, 0.0))
    try:
        r, rng = source.round, generator(seed, "doctor/mask")
        ended, ordinal = np.ones(_MASK_BATTLES, dtype=bool), -1
        states = plays = 0
        until = 0.0
        while not until or time.perf_counter() < until or plays < _MASK_PLAYS:
            fresh = []
            for b in np.flatnonzero(ended).tolist():
                ordinal += 1
                seeds = stream_seed(seed, "doctor/battle", ordinal) >> 1
                fresh.append(Assignment(b, ordinal, (LEARNER, LEARNER), seeds))
                r.kind[2 * b : 2 * b + 2] = 0
            slots = np.flatnonzero(r.kind == CHOICE)
            masks = layout.unpack_mask(layout.views(r.rows[slots])[MASK])
            states += len(slots)
            for slot, legal in zip(slots.tolist(), masks, strict=True):
                r.action[slot] = rng.choice(np.flatnonzero(legal))
                plays += int(r.action[slot] > 0)
            source.advance(fresh)
            until = until or time.perf_counter() + _MASK_SECONDS  # the first round waits for compiled code
            ended = r.end != RUNNING
        if source.refused():
            raise UserError(
                f"the engine refused {source.refused()} of {plays:,} plays that the mask allowed: an actions part of "
                "your own must offer only what the engine takes; else please report it"
            )
    finally:
        del r
        source.close()
    return f"the engine took all {plays:,} random legal plays of {states:,} states in {ordinal + 1} battles"


def ratio(patient: Patient) -> str:
    """What training computes from stored rows, against what acted."""
    from ...ppo.module import ratio_tolerance

    precision = str(patient.trainer.get("precision") or "32")
    limit = ratio_tolerance(precision)
    error = float(patient.learn(patient.minibatch())["ratio_error"])
    if not error <= limit:
        raise UserError(
            f"probabilities in training are off by {error:.2g} from those that acted (tolerance {limit:g} at precision "
            f"{precision}): a forward must depend on its row alone, the same in train() and eval()"
        )
    found = "exactly" if error == 0 else f"to {error:.1g}"
    return f"probabilities in training equal those that acted {found} (tolerance {limit:g}, precision {precision})"
