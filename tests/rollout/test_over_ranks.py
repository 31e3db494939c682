"""The figures of two ranks are those of one rank that played the battles of both."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.battle.actions import ActionLayout
from royale_lightning.battle.round import POOL, EpisodeRecord, Start
from royale_lightning.rollout.measures import TrainingScores, battle_figures, by_start, full_battles, play_figures
from royale_lightning.rollout.over_ranks import Played, together

ONE = EpisodeRecord(
    battle=0, ordinal=1, players=("learner", "scripted:push"), seed=1, winner=0, truncated=False, ticks=2400,
    game_steps=240, crowns=(1, 0), tower_hp=(1.0, 0.5), returns=(2.0, -2.0), discounted=(1.0, -1.0), choices=(9, 90),
    plays=(6, 50), leak_steps=(24, 0), commands=[(3, 0, 17)] * 50,
)
RESTARTED = replace(ONE, start=Start(POOL, "ab", b"x" * 5000, 0, "bucket"), winner=1)
episodes = st.lists(
    st.builds(
        lambda base, winner, ticks, other: replace(
            base, winner=winner, ticks=ticks, players=("learner", other), returns=(float(ticks), 0.0)
        ),
        st.sampled_from([ONE, RESTARTED, replace(ONE, staggered=True)]), st.integers(0, 2), st.integers(600, 6000),
        st.sampled_from(["scripted:push", "learner", "0123abcd"]),
    ),
    max_size=6,
)


def played(records: list[EpisodeRecord], seed: int) -> Played:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 150))
    return Played(
        records, [(float(e.ticks), None) for e in records], {"true": 10 * seed, "pool": seed}, rng.integers(0, 2305, n),
        rng.integers(0, 4, (n, 4)).astype(np.int16), {"health/workers_lost": seed}, {"health/memory_mb": 100.0 * seed},
    )


def figures(p: Played) -> dict[str, float]:
    battles = full_battles(p.episodes)
    scores = TrainingScores()
    scores.add(battles)
    ones = np.ones(len(p.action), bool)
    return {
        **battle_figures(battles), **scores.figures(), **by_start(p.episodes, p.start_steps, p.value_errors),
        **play_figures(p.action, p.offers, ones, ActionLayout(), ["a", "b", "c", "d"]), **p.counts, **p.most,
    }


@given(episodes, episodes)
def test_two_ranks_are_one_with_the_battles_of_both(a: list[EpisodeRecord], b: list[EpisodeRecord]) -> None:
    one, other = played(a, 1), played(b, 3)
    sent = [pickle.loads(pickle.dumps(p.small())) for p in (one, other)]
    whole = Played(
        [*a, *b], [*one.value_errors, *other.value_errors], {"true": 40, "pool": 4},
        np.concatenate([one.action, other.action]), np.concatenate([one.offers, other.offers]),
        {"health/workers_lost": 4}, {"health/memory_mb": 300.0},
    )
    assert figures(together(sent)) == figures(whole)
    assert together([one]) is one


def test_what_is_sent_is_small() -> None:
    sent = played([ONE, RESTARTED], 1).small()
    assert not any(e.commands or e.start.state for e in sent.episodes)
    assert sent.action.dtype.itemsize == 2
