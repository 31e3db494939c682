"""The gate: its stages, outcomes, and its error rates over ten thousand synthetic candidates."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from royale_lightning.errors import UserError
from royale_lightning.ladder.gate.field_checks import against_anchors, looks, stratified_sample
from royale_lightning.ladder.gate.gate import GATES, PromotionGate, SprtGate, WilsonGate, run_gate
from royale_lightning.ladder.gate.pairs import PairRequest, PairTable
from royale_lightning.ladder.gate.sprt import ACCEPT, REJECT, Sprt
from royale_lightning.ladder.gate.verdict import GateContext, Verdict
from royale_lightning.ladder.ratings.matches import count_matches
from royale_lightning.ladder.ratings.rating import ANCHOR, DavidsonRater, Ratings
from royale_lightning.ladder.results import Result
from royale_lightning.ladder.seeds import SEEDS_PER_STAGE, anchor_seeds, gate_seeds, rating_seeds
from royale_lightning.metrics.intervals import score_interval
from royale_lightning.parts import Part
from tests.support.pairs import pair_cells, pair_table, play_by, play_by_strength, simulate_sprt

CANDIDATES = 10_000
POOL = tuple(f"snap-{k:02d}" for k in range(20))
ANCHORS = ("scripted:push", "scripted:defend")
STRENGTH = {
    **{p: 500.0 + 20.0 * k for k, p in enumerate(POOL)}, "champion": 900.0, ANCHOR: 0.0, "scripted:push": 600.0,
    "scripted:defend": 500.0,
}


def fitted(strength: dict[str, float], pairs: int = 20, seed: int = 1) -> Ratings:
    """Ratings after every player met six others."""
    rng = np.random.default_rng(seed)
    players = sorted(strength)
    play = play_by_strength(strength, rng)
    results = []
    for a in players:
        for b in rng.choice(players, 6, replace=False):
            if a < b:
                request = PairRequest(a, str(b), range(pairs))
                for k, (blue, red) in enumerate(play([request])[0]):
                    for seats, won in (((a, b), blue), ((b, a), 1.0 - red)):
                        results.append(
                            Result(
                                kind="eval", blue=str(seats[0]), red=str(seats[1]), seed=k, winner=int(won == 0.0),
                                ticks=1, crowns=(0, 0), iteration=0, game_step=0,
                            )
                        )
    return DavidsonRater().rate_matches(count_matches(results))


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    return fitted(STRENGTH)


def context(ratings: Ratings | None, **more: Any) -> GateContext:
    plain: dict[str, Any] = {"anchors": ANCHORS, "pool": POOL}
    return GateContext("candidate", **{"champion": "champion", **plain, "ratings": ratings, **more})


def judge(gate: PromotionGate, at: GateContext, elo: float, seed: int = 0, **beside: float) -> Verdict:
    strength = {**STRENGTH, "candidate": STRENGTH["champion"] + elo, **beside}
    return run_gate(gate, at, play_by_strength(strength, np.random.default_rng(seed)))


# ---- error rates -------------------------------------------------------------------------------------------------
def test_error_rates_and_costs_of_the_sequential_test() -> None:
    """False promotions at 0 Elo, power at +40, and mean battles, over 10,000 candidates each, the cap included.

    ``simulate_sprt`` asks ``Sprt.decide`` what ``SprtGate`` asks it; that both agree is the next test.
    """
    test = SprtGate().sprt
    most = {-100: 150, 0: 430, 20: math.inf, 40: 430, 100: 150, 200: 150}
    for k, (elo, limit) in enumerate(most.items()):
        verdict, pairs = simulate_sprt(test, pair_cells(elo), CANDIDATES, np.random.default_rng(k))
        accepted = (verdict == ACCEPT).mean()
        rates = f"promoted {accepted:.4f}, rejected {(verdict == REJECT).mean():.4f}"
        print(f"{elo:5d} Elo: {rates}, {2 * pairs.mean():.0f} battles")
        assert 2 * pairs.mean() <= limit
        assert pairs.max() <= test.max_pairs
        if elo <= 0:
            assert accepted <= 0.05
        if elo >= 40:
            assert accepted >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "rho"), [(0.05, -0.15), (0.3, 0.0), (0.0, -0.35), (0.0, 0.3), (0.1, 0.2)])
def test_error_rates_under_draws_and_correlated_seats(draws: float, rho: float) -> None:
    test = SprtGate().sprt
    false, cost = simulate_sprt(test, pair_cells(0, draws, rho), CANDIDATES, np.random.default_rng(1))
    found, _ = simulate_sprt(test, pair_cells(40, draws, rho), CANDIDATES, np.random.default_rng(2))
    rates = f"promoted {(false == ACCEPT).mean():.4f} at 0 Elo, {(found == ACCEPT).mean():.4f} at +40"
    print(f"draws {draws}, rho {rho}: {rates}, {2 * cost.mean():.0f} battles at 0 Elo")
    assert (false == ACCEPT).mean() <= 0.055
    # A seed that favours a player from both seats is worth fewer games, and the cap then costs power.
    assert (found == ACCEPT).mean() >= (0.9 if rho <= 0 else 0.87)


def test_the_state_machine_decides_as_the_vectorised_test() -> None:
    """Forty candidates through ``SprtGate`` on the very pairs that the vectorised test counted."""
    gate, n = SprtGate(), 40
    rng = np.random.default_rng(11)
    outcome = rng.choice(9, (n, gate.sprt.max_pairs), p=pair_table(25.0, 0.1, -0.1).ravel())
    for row in outcome:
        scores = np.stack([row // 3, row % 3], axis=1) / 2.0
        played: list[int] = []

        def play(requests: Sequence[PairRequest], scores: np.ndarray = scores, played: list[int] = played) -> list:
            (request,) = requests
            assert request.seeds == gate_seeds(3, 0, len(played), len(request.seeds))
            at = [s - gate_seeds(3, 0, 0, 1)[0] for s in request.seeds]
            played += at
            return [scores[at]]

        verdict = run_gate(gate, context(None, anchors=(), number=3), play)
        cells = np.bincount((row // 3 + row % 3)[: len(played)], minlength=5)
        decision = int(gate.sprt.decide(cells))
        assert verdict.battles == 2 * len(played)
        assert verdict.outcome == ("promoted" if decision == ACCEPT else "rejected")
        assert verdict.llr == pytest.approx(float(gate.sprt.llr(cells)))
        for before in range(16, len(played), 16):
            earlier = np.bincount((row // 3 + row % 3)[:before], minlength=5)
            assert int(gate.sprt.decide(earlier)) == 0, "the first look that could decide did"


def whole_gate(elo: float, candidates: int, ratings: Ratings) -> tuple[dict[str, float], float]:
    """Shares of the outcomes and mean battles over all stages."""
    gate, outcomes, battles = SprtGate(), [], []
    for k in range(candidates):
        verdict = judge(gate, context(ratings, number=k), elo, seed=k)
        outcomes.append(verdict.outcome)
        battles.append(verdict.battles)
    return {o: outcomes.count(o) / candidates for o in set(outcomes)}, float(np.mean(battles))


def test_the_whole_gate(ratings: Ratings) -> None:
    shares, _ = whole_gate(0.0, 60, ratings)
    assert shares.get("promoted", 0.0) <= 0.15
    shares, battles = whole_gate(60.0, 60, ratings)
    assert shares["promoted"] >= 0.85
    assert battles < 1200


@pytest.mark.slow
def test_error_rates_of_the_whole_gate(ratings: Ratings) -> None:
    """All three stages through the state machine itself, 2,000 candidates."""
    for elo in (-100.0, 0.0, 20.0, 40.0, 100.0, 200.0):
        shares, battles = whole_gate(elo, 2000, ratings)
        print(elo, shares, battles)
        if elo <= 0:
            assert shares.get("promoted", 0.0) <= 0.05
        if elo >= 40:
            assert shares["promoted"] >= 0.9


def test_wilson_gate_costs_a_thousand_battles_whatever_the_case() -> None:
    """Its decision over 4,000 candidates, by the interval it uses; the cost through the gate itself."""
    gate, rng = WilsonGate(), np.random.default_rng(5)
    passed = {}
    for elo in (0.0, 40.0):
        counts = rng.multinomial(gate.pairs, pair_cells(elo), 1000)
        low = [score_interval(np.repeat(np.arange(5) / 4, c), method="effective").low for c in counts]
        passed[elo] = float((np.array(low) >= gate.least).mean())
    assert passed[0.0] == pytest.approx(0.025, abs=0.015)
    assert passed[40.0] == pytest.approx(0.953, abs=0.02)
    verdict = judge(gate, context(None, anchors=()), 100.0)
    assert (verdict.outcome, verdict.battles, verdict.llr) == ("promoted", 1000, None)
    assert verdict.conditions[0].numbers["low"] >= 0.5
    assert judge(gate, context(None, anchors=()), -100.0).outcome == "rejected"


# ---- outcomes ----------------------------------------------------------------------------------------------------
def test_a_better_candidate_is_promoted_through_three_stages(ratings: Ratings) -> None:
    verdict = judge(SprtGate(), context(ratings), 120.0)
    assert verdict.outcome == "promoted"
    assert [c.name for c in verdict.conditions] == ["champion", "anchors", "pool"]
    assert all(c.passed for c in verdict.conditions)
    champion, anchors, pool = (c.numbers for c in verdict.conditions)
    assert champion["llr"] >= champion["upper"]
    assert sum(champion["cells"]) == champion["pairs"] == verdict.conditions[0].battles // 2
    assert set(anchors["opponents"]) == set(ANCHORS)
    assert len(pool["opponents"]) == 8
    assert pool["expected"] > 0.7
    assert verdict.battles == sum(c.battles for c in verdict.conditions)
    record = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert (record["outcome"], record["llr"], record["battles"]) == ("promoted", verdict.llr, verdict.battles)


def test_a_worse_candidate_is_rejected_early(ratings: Ratings) -> None:
    verdict = judge(SprtGate(), context(ratings), -150.0)
    assert verdict.outcome == "rejected"
    assert [c.name for c in verdict.conditions] == ["champion"]
    assert verdict.battles <= 150
    json.dumps(verdict.as_dict(), allow_nan=False)


def test_the_first_snapshot_needs_no_battle() -> None:
    verdict = run_gate(SprtGate(), context(None, champion=None), lambda _: pytest.fail("played"))
    assert (verdict.outcome, verdict.battles, verdict.conditions) == ("promoted", 0, ())


def test_equal_weights_are_not_played() -> None:
    verdict = run_gate(SprtGate(), context(None, champion="candidate"), lambda _: pytest.fail("played"))
    assert verdict.outcome == "skipped"
    assert "weights" in verdict.why


def test_the_cap_is_not_promoted(ratings: Ratings) -> None:
    even = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    gate = SprtGate(max_pairs=100, elo0=-40, elo1=40)
    verdict = run_gate(gate, context(ratings), lambda rs: [np.resize(even, (len(r.seeds), 2)) for r in rs])
    assert verdict.outcome == "rejected"
    assert verdict.battles == 200
    assert "undecided against the champion after 100 pairs" in verdict.why


def test_a_regression_against_an_anchor_is_blocked(ratings: Ratings) -> None:
    def advantage(a: str, b: str) -> float:
        if (a, b) == ("candidate", "scripted:push"):
            return -100.0
        return {**STRENGTH, "candidate": 1020.0}[a] - STRENGTH[b]

    verdict = run_gate(SprtGate(), context(ratings), play_by(advantage, np.random.default_rng(2)))
    assert verdict.outcome == "rejected"
    assert verdict.why == "worse than the champion against scripted:push"
    assert [c.name for c in verdict.conditions] == ["champion", "anchors"]
    numbers = verdict.conditions[1].numbers["opponents"]
    assert numbers["scripted:push"]["difference"] < -0.3
    assert numbers["scripted:defend"]["difference"] > -0.1


def test_the_anchors_turn_down_who_got_worse_and_hardly_anyone_else() -> None:
    """Two anchors the champion scores 0.9 and 0.7 against; 600 candidates as good, 200 that fell from 0.9 to 0.75."""
    advantage = {"scripted:push": 382.0, "scripted:defend": 147.0}

    def blocked(fall: float, candidates: int) -> tuple[float, float]:
        count = battles = 0
        for k in range(candidates):
            play = play_by(
                lambda a, b: advantage[b] - fall * ((a, b) == ("candidate", "scripted:push")),
                np.random.default_rng(k), rho=0.2,
            )
            stage = against_anchors(context(None), pairs=50)
            wanted, condition = next(stage), None
            while condition is None:
                try:
                    wanted = stage.send(play(wanted))
                except StopIteration as end:
                    condition = end.value
            count += condition.passed is False
            battles += condition.battles
        return count / candidates, battles / candidates

    share, battles = blocked(0.0, 600)
    assert share <= 0.05
    assert battles <= 0.75 * 400
    share, battles = blocked(191.0, 200)
    assert share >= 0.6
    assert battles >= 0.85 * 400


def test_anchors_meet_candidate_and_champion_on_the_same_frozen_seeds(ratings: Ratings) -> None:
    asked: list[PairRequest] = []
    play = play_by_strength({**STRENGTH, "candidate": 1050.0}, np.random.default_rng(0))

    def record(requests: Sequence[PairRequest]) -> list[np.ndarray]:
        asked.extend(requests)
        return play(requests)

    for number in (0, 1):
        run_gate(SprtGate(), context(ratings, number=number), record)
    anchors = [r for r in asked if r.opponent in ANCHORS]
    assert {(r.player, r.opponent) for r in anchors} == {(p, a) for p in ("candidate", "champion") for a in ANCHORS}
    assert {r.seeds for r in anchors} <= set(looks(anchor_seeds(50)))
    fresh = [s for r in asked if r.opponent not in ANCHORS for s in r.seeds]
    assert len(fresh) == len(set(fresh)), "every other stage of every gate has seeds of its own"


def test_an_equal_that_always_wins_is_no_regression() -> None:
    verdict = run_gate(SprtGate(), context(None), lambda rs: [np.ones((len(r.seeds), 2)) for r in rs])
    assert verdict.outcome == "promoted"
    assert [c.passed for c in verdict.conditions] == [True, True, None]


@pytest.mark.parametrize("how", ["no fit", "champion unrated", "small pool"])
def test_a_pool_that_cannot_be_sampled_is_skipped_and_not_passed(how: str, ratings: Ratings) -> None:
    at = {
        "no fit": context(None), "champion unrated": context(ratings, champion="another"),
        "small pool": context(ratings, pool=(*POOL[:3], "unrated", "champion")),
    }[how]
    verdict = judge(SprtGate(), at, 200.0, another=900.0)
    assert verdict.outcome == "promoted"
    assert verdict.conditions[2].passed is None
    assert verdict.conditions[2].battles == 0
    assert verdict.conditions[2].why in verdict.why


def test_rock_paper_scissors_is_reported_as_a_cycle() -> None:
    """Paper beats the champion, rock; scissors and its kin in the pool, whom rock beats, beat paper."""
    kind = {"champion": 0, "candidate": 1, **{p: k % 3 for k, p in enumerate(POOL[:9])}}

    def advantage(a: str, b: str) -> float:
        return {0: 0.0, 1: 400.0, 2: -400.0}[(kind[a] - kind[b]) % 3]

    rng = np.random.default_rng(4)
    play, results = play_by(advantage, rng), []
    members = ["champion", *POOL[:9]]
    for i, a in enumerate(members):
        for b in members[i + 1 :]:
            for k, (blue, _) in enumerate(play([PairRequest(a, b, range(20))])[0]):
                results.append(
                    Result(
                        kind="eval", blue=a, red=b, seed=k, winner=int(blue == 0.0), ticks=1, crowns=(0, 0),
                        iteration=0, game_step=0,
                    )
                )
    fit = DavidsonRater(anchor="champion").rate(results)
    verdict = run_gate(SprtGate(), context(fit, anchors=(), pool=POOL[:9]), play)
    assert verdict.outcome == "cycle"
    beaten_by = [p for p, n in verdict.conditions[2].numbers["opponents"].items() if n["z"] < -3]
    assert beaten_by
    assert {kind[p] for p in beaten_by} == {2}
    assert all(p in verdict.why for p in beaten_by)


def test_starved_of_promotions_a_candidate_is_taken_in(ratings: Ratings) -> None:
    assert judge(SprtGate(), context(ratings, rejections=3), -200.0).outcome == "rejected"
    verdict = judge(SprtGate(), context(ratings, rejections=4), -200.0)
    assert verdict.outcome == "admitted"
    assert "after 4 rejections in a row" in verdict.why


@pytest.mark.parametrize("stage", ["champion", "anchors", "pool"])
def test_battles_that_were_not_finished_promote_nobody(stage: str, ratings: Ratings) -> None:
    play = play_by_strength({**STRENGTH, "candidate": 1100.0}, np.random.default_rng(0))

    def crash(requests: Sequence[PairRequest]) -> list[np.ndarray]:
        answers = play(requests)
        for r, scores in zip(requests, answers, strict=True):
            name = "champion" if r.opponent == "champion" else "anchors" if r.opponent in ANCHORS else "pool"
            if name == stage:
                scores[0, 1] = np.nan
        return answers

    for rejections in (0, 9):
        verdict = run_gate(SprtGate(), context(ratings, rejections=rejections), crash)
        assert verdict.outcome == "rejected"
        assert verdict.conditions[-1].name == stage
        assert "were not finished" in verdict.why


def test_gates_are_named_in_a_configuration() -> None:
    for name, cls in (("sprt", SprtGate), ("wilson", WilsonGate)):
        built = Part.of(
            {"class_path": GATES[name], "init_args": {"anchor_pairs": 10}}, "ladder.gate", GATES
        ).build("ladder.gate")
        assert type(built) is cls
        assert built.anchor_pairs == 10


@pytest.mark.parametrize(
    ("cls", "bad", "sentence"),
    [
        (SprtGate, {"anchor_pairs": 0}, "gate anchor_pairs is 0"),
        (SprtGate, {"starved_after": 0}, "starved_after is 0"),
        (SprtGate, {"pool_pairs": SEEDS_PER_STAGE}, "pool_members x pool_pairs"),
        (SprtGate, {"max_pairs": SEEDS_PER_STAGE + 1}, "max_pairs is"), (WilsonGate, {"pairs": 0}, "gate pairs is 0"),
        (WilsonGate, {"least": 1.0}, "gate least is 1.0"), (WilsonGate, {"confidence": 0.0}, "gate confidence is 0.0"),
    ],
)
def test_refusals(cls: type, bad: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        cls(**bad)


# ---- pairs, seeds, strata ----------------------------------------------------------------------------------------
def test_pair_table() -> None:
    scores = np.array([[1, 1], [1, 0], [0.5, 0.5], [0, 0.5], [np.nan, 1], [1, 1.0]])
    t = PairTable.of(scores)
    assert (t.pairs, t.dropped) == (5, 1)
    assert t.cells.tolist() == [0, 1, 2, 0, 2]
    assert t.scores.tolist() == [0.25, 0.5, 0.5, 1.0, 1.0]
    whole = scores[[0, 1, 2, 3, 5]]
    assert t.rho == pytest.approx(np.corrcoef(whole.T)[0, 1])
    assert t.seat_effect == pytest.approx((whole[:, 0].mean() - whole[:, 1].mean()) / 2)
    both = t + PairTable.of(np.array([[0, 0.0]]))
    assert (both.pairs, both.dropped, both.cells[0]) == (6, 1, 1)
    swept = PairTable.of(np.ones((20, 2))).as_dict()
    assert swept["rho"] is None
    assert swept["elo"] is None
    assert swept["elo_low"] == pytest.approx(400 * math.log10(0.839 / 0.161), abs=3)
    empty = PairTable.of(np.zeros((0, 2)))
    assert (empty.rho, empty.seat_effect, empty.as_dict().get("score")) == (None, None, None)


@pytest.mark.parametrize("bad", [np.zeros(4), np.full((2, 2), 0.25)])
def test_scores_that_are_none(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="scores"):
        PairTable.of(bad)


def test_requests_are_answered_from_known_results() -> None:
    request = PairRequest("a", "b", range(7, 9))
    assert list(request.battles) == [("a", "b", 7), ("b", "a", 7), ("a", "b", 8), ("b", "a", 8)]
    known = {
        r.key: r
        for r in (
            Result(kind="eval", blue=x, red=y, seed=s, winner=w, ticks=1, crowns=(0, 0), iteration=0, game_step=0)
            for x, y, s, w in (("a", "b", 7, 0), ("b", "a", 7, 2), ("b", "a", 8, 0))
        )
    }
    got = request.scores(lambda *key: known.get(key))
    assert got.tolist()[0] == [1.0, 0.5]
    assert np.isnan(got[1, 0])
    assert got[1, 1] == 0.0


def test_seed_ranges_never_meet() -> None:
    blocks = [anchor_seeds(SEEDS_PER_STAGE), *(rating_seeds(k, SEEDS_PER_STAGE) for k in (0, 1, 10**6))]
    blocks += [gate_seeds(g, s, 0, SEEDS_PER_STAGE) for g in (0, 1, 2, 10**6) for s in (0, 1)]
    ends = sorted((b[0], b[-1]) for b in blocks)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))
    assert gate_seeds(2, 1, 30, 5) == gate_seeds(2, 1, 0, 35)[30:]
    with pytest.raises(UserError, match="at most"):
        gate_seeds(0, 0, SEEDS_PER_STAGE, 1)
    with pytest.raises(UserError, match="at most"):
        rating_seeds(0, SEEDS_PER_STAGE + 1)


def test_strata_span_the_ratings(ratings: Ratings) -> None:
    rng = np.random.default_rng(0)
    order = [r.player for r in reversed(ratings.ranking()) if r.player in POOL]
    for _ in range(20):
        sample = stratified_sample((*POOL, "unrated"), ratings, 5, rng)
        assert [order.index(p) // 4 for p in sample] == [0, 1, 2, 3, 4]
    assert stratified_sample(POOL[:3], ratings, 8, rng) == [p for p in order if p in POOL[:3]]
    assert stratified_sample(("unrated",), ratings, 8, rng) == []


def test_sprt_settings_reach_the_test() -> None:
    assert SprtGate(elo1=20, alpha=0.01, scale="normalized").sprt == Sprt(elo1=20, alpha=0.01, scale="normalized")
