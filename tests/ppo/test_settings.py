"""PPO's settings: one clear sentence per mistake, and jsonargparse takes all of it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentParser

from royale_lightning.errors import UserError
from royale_lightning.ppo.settings import PPOSettings, ScheduledNumbers


def test_defaults_hold_and_schedules_run_with_game_steps() -> None:
    s = PPOSettings(horizon_game_steps=1000)
    assert s.at(0) == ScheduledNumbers(7e-4, 7e-4, 0.998, 0.2, 0.01, 0.01, 0.0005)
    assert s.at(500).learning_rate == pytest.approx(3.85e-4)
    assert s.at(1000) == s.at(5000)
    assert s.at(5000).learning_rate == pytest.approx(7e-5)


def test_the_critic_follows_the_actor_unless_told() -> None:
    assert PPOSettings(learning_rate=1e-3).at(0).critic_learning_rate == 1e-3
    own = PPOSettings(learning_rate=1e-3, critic_learning_rate={"linear": [2e-3, 1e-3]})
    assert own.at(0).critic_learning_rate == 2e-3


def test_settings_are_plain_data() -> None:
    plain = dataclasses.asdict(PPOSettings(gamma={"geometric": [0.99, 0.999]}))
    assert PPOSettings(**json.loads(json.dumps(plain))).at(7) == PPOSettings(**plain).at(7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PPOSettings().ppo_epochs = 4  # type: ignore[misc]


def test_every_setting_is_explained() -> None:
    doc = PPOSettings.__doc__ or ""
    for f in dataclasses.fields(PPOSettings):
        assert re.search(rf"^        {f.name}: \S", doc, re.MULTILINE), f.name


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("gamma", -0.5, r"gamma must be in \(0, 1\], was -0\.5"),
        ("gamma", 1.5, "gamma must be in"),
        ("gamma", math.nan, "gamma is nan; write a number"),
        ("gamma", {"linear": [0.9, 1.2]}, r"gamma must be in .*, was 1\.0\d* at progress 0\.34 of the run"),
        ("gae_lambda", 1.01, r"gae_lambda must be in \[0, 1\], was 1\.01"),
        ("gae_lambda", "0.9", r"gae_lambda must be in \[0, 1\], was '0\.9'"),
        ("learning_rate", 0, "learning_rate must be above 0, was 0"),
        ("learning_rate", {"linear": [1e-3, 0]}, r"learning_rate must be above 0, was 0\.0 at progress 1"),
        ("critic_learning_rate", -1e-3, "critic_learning_rate must be above 0"),
        ("clip_range", 0.0, "clip_range must be above 0"),
        ("dual_clip", 0.5, r"dual_clip must be at least 1, or null for none, was 0\.5"),
        ("value_coef", -1.0, "value_coef must be 0 or more"),
        ("value_coef", math.inf, "value_coef must be 0 or more, was inf"),
        ("value_clip", 0.0, "value_clip must be above 0, or null for none"),
        ("entropy_play", -0.01, "entropy_play must be 0 or more"),
        ("entropy_choice", {"linear": [0.01, -0.01]}, "entropy_choice must be 0 or more"),
        ("entropy_tile", {"linar": [1, 2]}, "did you mean 'linear'"),
        ("kl_limit", 0.0, "kl_limit must be above 0, or null to never stop early"),
        ("ppo_epochs", 0, "ppo_epochs must be at least 1, was 0"),
        ("ppo_epochs", True, "ppo_epochs must be at least 1, was True"),
        ("adam_eps", 0.0, "adam_eps must be above 0"),
        ("adam_betas", (0.9, 1.0), r"adam_betas must be in \[0, 1\), was 1\.0"),
        ("horizon_game_steps", 0, "horizon_game_steps must be at least 1"),
        ("reward_clip", -1.0, "reward_clip must be above 0"),
        ("advantage", "gea", "did you mean 'gae'"),
    ],
)
def test_mistakes_are_named(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        PPOSettings(**{field: value})


_OFF = [
    "dual_clip", "value_clip", "kl_limit", "critic_learning_rate", "reward_clip",
    "value_lambda", "weight_average",
]


@pytest.mark.parametrize("field", _OFF)
def test_what_can_be_switched_off(field: str) -> None:
    none: dict[str, Any] = {field: None}
    assert getattr(PPOSettings(**none), field) is None


def test_a_clip_that_would_do_nothing_is_refused() -> None:
    PPOSettings(scale_returns=False)
    with pytest.raises(UserError, match="only scaled rewards are clipped"):
        PPOSettings(scale_returns=False, reward_clip=5.0)


def _main(ppo: PPOSettings = PPOSettings()) -> PPOSettings:  # noqa: B008
    return ppo


def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--config", action="config")
    parser.add_function_arguments(_main)
    return parser


@pytest.mark.parametrize(
    ("args", "field", "want"),
    [
        ([], "learning_rate", {"linear": [7e-4, 7e-5]}),
        (["--ppo.learning_rate=1e-3"], "learning_rate", 1e-3),
        (["--ppo.learning_rate={cosine: [7e-4, 7.0e-5]}"], "learning_rate", {"cosine": [7e-4, 7e-5]}),
        (["--ppo.learning_rate.linear=[1e-3, 1e-4]"], "learning_rate", {"linear": [1e-3, 1e-4]}),
        (["--ppo.critic_learning_rate={linear: [1.0, 0.5]}"], "critic_learning_rate", {"linear": [1.0, 0.5]}),
        (["--ppo.kl_limit=null"], "kl_limit", None),
        (["--ppo.adam_betas=[0.9, 0.95]"], "adam_betas", (0.9, 0.95)),
        (
            ["--ppo.advantage={class_path: a.B, init_args: {c: 1}}"],
            "advantage",
            {"class_path": "a.B", "init_args": {"c": 1}},
        ),
    ],
)
def test_jsonargparse_takes_them(args: list[str], field: str, want: Any) -> None:
    parser = _parser()
    config = parser.parse_args(args)
    assert getattr(parser.instantiate_classes(config).ppo, field) == want
    # What a run saves beside itself reads back the same. (By default dump leaves nulls out, which would
    # bring a switched-off setting back on; Lightning's SaveConfigCallback keeps them.)
    again = parser.parse_string(parser.dump(config, skip_none=False))
    assert parser.instantiate_classes(again).ppo == parser.instantiate_classes(config).ppo


def test_a_yaml_file_replaces_a_schedule_whole(tmp_path: Any) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"ppo": {"learning_rate": {"cosine": [1e-3, 1e-4]}, "gamma": 1}}))
    parser = _parser()
    got = parser.instantiate_classes(parser.parse_args([f"--config={path}"])).ppo
    assert got.learning_rate == {"cosine": [1e-3, 1e-4]}
    assert got.at(0).gamma == 1.0


def test_jsonargparse_passes_our_sentence_on() -> None:
    parser = _parser()
    with pytest.raises(UserError, match=r"gamma must be in \(0, 1\], was -0\.5"):
        parser.instantiate_classes(parser.parse_args(["--ppo.gamma=-0.5"]))
