"""Decisions of a recorded battle, and the battles worth showing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from royale_lightning.battle.round import EpisodeRecord, Start
from royale_lightning.battle.spec import BattleSpec
from royale_lightning.bots.bot import Bot
from royale_lightning.bots.chosen_battles import LEAST_KNOWN, ChosenBattles
from royale_lightning.bots.decisions import TOP, DecisionLog
from royale_lightning.bots.evaluate import PlannedGame, play_games
from royale_lightning.bots.replay_page import render_replay
from royale_lightning.bots.replays import replay_record
from royale_lightning.parts import Part
from tests.support.bots import make_bot


class Watched:
    """A bot that writes down the rows it is shown."""

    def __init__(self, bot: Bot) -> None:
        self.bot, self.layout = bot, bot.layout
        self.rows: list[np.ndarray] = []

    def choose(self, rows: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        self.rows.append(rows.copy())
        return self.bot.choose(rows, uniforms)


@pytest.mark.parametrize("frames", [1, 3])
def test_a_log_sees_the_rows_that_were_acted_on(frames: int) -> None:
    network = Part("tests.bots.test_decisions.AnyFrames") if frames > 1 else None
    bot = make_bot(spec=BattleSpec(frame_stack=frames), network=network)
    watched = Watched(bot)
    (record,) = play_games({"bot": watched}, [PlannedGame("scripted:defend", "bot", 4)], bot.spec, keep_commands=True)
    log = DecisionLog(bot.layout, [1])
    trace = replay_record(record, bot.spec, log=log, every_tick=False)
    assert trace.result is not None
    assert np.concatenate(watched.rows).tobytes() == np.stack(log._rows).tobytes()

    seen = log.judge(bot.network, bot.actions, with_value=False)
    plays = [(d.tick, d.action) for d in seen if d.action]
    assert plays == [(10 * step, a) for step, seat, a in record.commands if seat == 1]
    for d in seen:
        assert d.value is None
        assert len(d.top) <= TOP
        p = [x for _, x in d.top]
        assert p == sorted(p, reverse=True)
        assert 0 < sum(p) <= 1 + 1e-5
        waits = [x for a, x in d.top if a == 0]
        assert not waits or waits[0] == pytest.approx(d.p_wait, abs=1e-5)
    assert all(d.value is not None for d in log.judge(bot.network, bot.actions, with_value=True))

    page = render_replay(trace, "t", players=("</script>", "bot"), decisions=seen, actions=bot.actions)
    assert page.count("</body>") == 1
    assert '"players":["\\u003c/script>"' in page


def _anyframes() -> type:
    from royale_lightning.nn import ActorCritic, Inputs, Observation

    class AnyFrames(ActorCritic):
        """Looks at every frame's clock and hand; eager."""

        def __init__(self, inputs: Inputs) -> None:
            super().__init__()
            import torch

            self.policy = torch.nn.Linear(12 * inputs.layout.frames, inputs.actions.n_actions)
            self.critic = torch.nn.Linear(12 * inputs.layout.frames, 1)

        def forward(self, obs: Observation):  # type: ignore[no-untyped-def]
            x = obs["wide"].float().flatten(1) / 4096
            return self.policy(x), self.critic(x)[:, 0]

    return AnyFrames


AnyFrames = _anyframes()


def battle(
    ordinal: int, winner: int, other: str = "scripted:push", crowns: tuple[int, int] = (1, 0), **more: object
) -> EpisodeRecord:
    return replace(
        EpisodeRecord(
            battle=0, ordinal=ordinal, players=("learner", other), seed=ordinal, winner=winner, truncated=winner < 0,
            ticks=100, game_steps=10, crowns=crowns, tower_hp=(1.0, 0.5), returns=(0.0, 0.0), discounted=(0.0, 0.0),
            choices=(5, 5), plays=(1, 1), leak_steps=(0, 0), commands=[(1, 0, 5)],
        ),
        **more,
    )


def test_best_worst_upset_and_latest() -> None:
    battles = ChosenBattles()
    for i in range(LEAST_KNOWN):
        battles.offer(battle(i, 0))
    battles.offer(battle(20, 0, crowns=(3, 0)))
    battles.offer(battle(21, 1, crowns=(0, 1)))
    battles.offer(battle(22, 0, "scripted:defend"))
    battles.offer(battle(23, 0))
    chosen = battles.take()
    assert {k: r.ordinal for k, r in chosen.items()} == {
        "best": 20, "upset+worst": 21, "latest-defend": 22, "latest-push": 23,
    }
    assert battles.take() == {}
    assert battles.known["scripted:push"].games == LEAST_KNOWN + 3


def test_only_whole_recorded_battles_of_the_learner_are_taken() -> None:
    battles = ChosenBattles()
    for record in (
        battle(1, 0, staggered=True), battle(2, 0, commands=[]), battle(3, 0, start=Start("pool", "d")),
        battle(4, 0, players=("snap-1", "scripted:push")),
    ):
        battles.offer(record)
    assert battles.take() == {}
    battles.offer(battle(5, -1))
    battles.offer(battle(6, 0, players=("learner", "learner")))
    assert set(battles.take()) == {"latest-push", "latest-itself"}, "neither was won or lost"


@given(st.lists(st.tuples(st.sampled_from([-1, 0, 1, 2]), st.sampled_from(["scripted:a", "x"])), max_size=40))
@settings(deadline=None)
def test_a_checkpoint_holds_the_choice(results: list[tuple[int, str]]) -> None:
    """Cut anywhere, the restored half chooses as the unbroken one."""
    whole, first = ChosenBattles(), ChosenBattles()
    for i, (winner, other) in enumerate(results):
        record = battle(i, winner, other)
        whole.offer(record)
        first.offer(record)
        if i % 7 == 3:
            first = ChosenBattles.from_state(first.state())
    assert first.take() == whole.take()
    assert first.known == whole.known
