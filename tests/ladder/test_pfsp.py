"""Prioritized fictitious self-play: reference figures, fall-backs, and whom a learner meets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_lightning.errors import UserError
from royale_lightning.ladder.pfsp import EVIDENCE, WEIGHTINGS, LearnerRecord, pfsp, predicted

NAMES = tuple("abcdefghijklmnop")


def known(scores: dict[str, float], games: float = 1e9) -> LearnerRecord:
    """A record so long that the prior does not show."""
    return LearnerRecord(games=dict.fromkeys(scores, games), points={k: games * s for k, s in scores.items()})


@pytest.mark.parametrize(
    ("weighting", "floor", "divergence", "effective"),
    [
        ("hard", 0.0, 0.363, 9.5), ("hard", 0.2, 0.217, 11.2), ("linear", 0.0, 0.139, 12.8),
        ("linear", 0.2, 0.086, 13.8), ("variance", 0.0, 0.074, 14.2), ("variance", 0.2, 0.045, 14.8),
        ("uniform", 0.0, 0.0, 16.0),
    ],
)
def test_sixteen_opponents_from_95_to_50_percent(
    weighting: str, floor: float, divergence: float, effective: float
) -> None:
    record = known(dict(zip(NAMES, np.linspace(0.95, 0.5, 16), strict=True)))
    table = pfsp(NAMES, record, weighting, floor)
    assert table.divergence == pytest.approx(divergence, abs=5e-4)
    assert table.effective_opponents == pytest.approx(effective, abs=0.05)
    assert table.fallback is None
    if weighting == "hard":
        assert table.probability.max() == pytest.approx(0.165 if floor == 0.0 else 0.144, abs=5e-4)
        assert table.opponents[int(table.probability.argmax())] == "p"


def test_decay_of_a_hundred_wins() -> None:
    record = LearnerRecord(per_game=0.99)
    for _ in range(100):
        record.add("a", 1.0)
    assert record.games["a"] == pytest.approx(63.4, abs=0.05)
    assert pfsp(("a",), record).score[0] == pytest.approx(0.970, abs=5e-4)


@pytest.mark.parametrize(("decay", "games", "kish"), [(0.99, 100, 199), (0.995, 200, 399), (0.999, 1000, 1999)])
def test_memory(decay: float, games: float, kish: float) -> None:
    record, squares = LearnerRecord(per_game=decay), 0.0
    for _ in range(20_000):
        record.add("a", 0.5)
        squares = squares * decay**2 + 1.0
    assert record.games["a"] == pytest.approx(games, rel=1e-6)
    assert record.games["a"] ** 2 / squares == pytest.approx(kish, abs=0.5)


def test_evidence_fades_with_the_learner() -> None:
    record = known({"a": 1.0}, games=100.0)
    for _ in range(69):
        record.end_iteration()
    assert record.games["a"] == pytest.approx(50, rel=0.01)
    assert record.points["a"] == pytest.approx(record.games["a"])


def test_a_beaten_and_an_unbeaten_opponent() -> None:
    record = LearnerRecord()
    for _ in range(50):
        record.add("beaten", 1.0)
        record.add("unbeaten", 0.0)
    for weighting in ("hard", "linear"):
        table = pfsp(("beaten", "unbeaten", "new"), record, weighting)
        q = dict(zip(table.opponents, table.probability, strict=True))
        assert q["unbeaten"] > q["new"] > q["beaten"]
        assert q["beaten"] >= 0.2 / 3
    assert table.evidence_share == pytest.approx(1 - q["new"])
    assert table.games[0] >= EVIDENCE


def test_rock_paper_scissors_meets_the_one_it_loses_to() -> None:
    """The learner plays rock; hard meets paper most, whatever it met before."""
    rng = np.random.default_rng(0)
    record, met = LearnerRecord(), {"rock": 0, "paper": 0, "scissors": 0}
    points = {"rock": 0.5, "paper": 0.0, "scissors": 1.0}
    for _ in range(40):
        table = pfsp(tuple(met), record)
        for k in rng.choice(3, 20, p=table.probability):
            record.add(table.opponents[k], points[table.opponents[k]])
            met[table.opponents[k]] += 1
        record.end_iteration()
    q = dict(zip(table.opponents, table.probability, strict=True))
    assert q["paper"] > 0.6
    assert q["paper"] > q["rock"] > q["scissors"] >= 0.2 / 3
    assert met["paper"] > met["rock"] > met["scissors"]
    # The learner turns to paper: within some iterations hard turns to scissors.
    points = {"rock": 1.0, "paper": 0.5, "scissors": 0.0}
    for _ in range(40):
        table = pfsp(tuple(met), record)
        for k in rng.choice(3, 20, p=table.probability):
            record.add(table.opponents[k], points[table.opponents[k]])
        record.end_iteration()
    assert table.opponents[int(table.probability.argmax())] == "scissors"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (LearnerRecord(), "neither results nor a rating"),
        (known({"z": 1.0}), "neither results nor a rating"),
        (known({"a": 1.0, "b": 1.0}, games=1e12), "any weight left"),
        (known({"a": 0.4, "b": 0.4}, games=10.0), "no opponent of the pool weighs more than another"),
    ],
)
def test_uniform_says_why(record: LearnerRecord, why: str) -> None:
    table = pfsp(("a", "b"), record)
    assert table.fallback is not None
    assert why in table.fallback
    assert table.probability.tolist() == [0.5, 0.5]
    assert table.divergence == 0.0
    assert pfsp(("a", "b"), record, "uniform").fallback is None, "asked for, hence no fall-back"


def test_a_score_begins_at_what_the_ratings_predict_and_games_overrule_it() -> None:
    prior = {"beaten": 0.95, "equal": 0.5}
    table = pfsp(("beaten", "equal", "unrated"), LearnerRecord(), prior=prior)
    assert table.score == pytest.approx([0.95, 0.5, 0.5])
    assert table.fallback is None, "ratings tell opponents apart before any game"
    assert table.probability[0] < 0.1 < table.probability[1]
    record = LearnerRecord()
    for _ in range(50):
        record.add("beaten", 0.0)
    lost = pfsp(("beaten", "equal"), record, prior=prior)
    assert lost.score[0] == pytest.approx(4 * 0.95 / (4 + record.games["beaten"]))
    assert lost.probability[0] > lost.probability[1]
    assert pfsp(("a", "b"), LearnerRecord(), prior={"a": 0.7, "b": 0.7}).fallback == (
        "no opponent of the pool weighs more than another"
    )


def test_those_it_has_outgrown_take_few_games_however_long_ago_it_met_them() -> None:
    """25 beaten members and 5 equals, three games of the pool an iteration: from one half, about half of them go to the
    beaten, since what is forgotten counts as unknown."""
    names = tuple(f"beaten-{i}" for i in range(25)) + tuple(f"equal-{i}" for i in range(5))
    truth = np.array([0.95] * 25 + [0.5] * 5)

    def share_of_the_beaten(prior: dict[str, float] | None) -> float:
        rng = np.random.default_rng(0)
        record, shares = LearnerRecord(), []
        for iteration in range(400):
            table = pfsp(names, record, prior=prior)
            if iteration >= 200:
                shares.append(table.probability[:25].sum())
            for k in rng.choice(30, 3, p=table.probability):
                record.add(names[k], float(rng.random() < truth[k]))
            record.end_iteration()
        return float(np.mean(shares))

    exact = pfsp(names, known(dict(zip(names, truth, strict=True)))).probability[:25].sum()
    assert exact == pytest.approx(0.21, abs=0.01)
    rated = {n: 0.95 if n.startswith("beaten") else 0.5 for n in names}
    assert share_of_the_beaten(None) > 0.45
    assert share_of_the_beaten(rated) < exact + 0.06


def test_the_newest_rating_of_the_learner_predicts() -> None:
    ratings = {
        "live:9": {"rating": 100.0}, "live:80": {"rating": 400.0}, "a": {"rating": 400.0}, "b": {"rating": 0.0},
        "scripted:push": {"rating": 500.0},
    }
    found = predicted(ratings)
    assert found["a"] == 0.5
    assert found["b"] == pytest.approx(10 / 11)
    assert not any(p.startswith("live:") for p in found)
    assert predicted({"a": {"rating": 1.0}}) == {}


def test_empty_and_single_pools() -> None:
    empty = pfsp((), LearnerRecord())
    assert (empty.probability.size, empty.fallback, empty.effective_opponents) == (0, None, 0.0)
    one = pfsp(("a",), LearnerRecord())
    assert (one.probability.tolist(), one.fallback) == ([1.0], None)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.tuples(st.floats(0, 1e4), st.floats(0, 1)), min_size=1),
    st.sampled_from(sorted(WEIGHTINGS)), st.floats(0, 1), st.floats(0.1, 50),
)
def test_chances_are_chances(
    fares: dict[str, tuple[float, float]], weighting: str, floor: float, prior: float
) -> None:
    games, points = {k: g for k, (g, _) in fares.items()}, {k: g * s for k, (g, s) in fares.items()}
    record = LearnerRecord(games=games, points=points)
    table = pfsp(NAMES, record, weighting, floor, prior)
    assert table.probability.sum() == pytest.approx(1.0)
    assert (table.probability >= floor / 16 - 1e-12).all()
    assert 0.0 <= table.divergence <= math.log(16) + 1e-9
    assert 1.0 - 1e-9 <= table.effective_opponents <= 16.0 + 1e-9
    if weighting in ("hard", "linear") and table.fallback is None and floor < 1.0:
        order = np.argsort(table.score)
        assert (np.diff(table.probability[order]) <= 1e-12).all(), "the worse it fares, the likelier"


def test_a_record_survives_a_checkpoint() -> None:
    record = LearnerRecord()
    for k, name in enumerate("abca"):
        record.add(name, k / 4)
    again = LearnerRecord()
    again.load_state_dict(json.loads(json.dumps(record.state_dict())))
    assert again == record
    again.keep(("a", "c"))
    assert set(again.games) == set(again.points) == {"a", "c"}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"weighting": "hrad"}, "did you mean 'hard'"), ({"uniform_share": 1.5}, "uniform_share is 1.5"),
        ({"prior_games": 0.0}, "prior_games is 0.0"),
    ],
)
def test_refusals(bad: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        pfsp(("a",), LearnerRecord(), **bad)
