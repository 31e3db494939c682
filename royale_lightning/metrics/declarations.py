"""Every number of a metric row, declared once: name, unit, meaning, population, healthy range, when it appears.

A row holds what was measured: a key that is absent was not asked for, or nothing of its population was there; it is
never a 0. ``README.md`` beside this file is made of these declarations, and a test holds them and what runs emit to
each other both ways. ``<x>`` in a name stands for anything: a family of one figure per opponent, card or kind of start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

# Populations: what a figure is a mean over, or counts.
RUN = "the run so far"
ITERATION = "this iteration"
CHOICE = "choice rows"
FORCED = "value-only rows"
ROWS = "all rows"
BATTLES = "battles from a true start that ended, staggered ones left out"
OWN = "the learner's seats of such battles"
MIRROR = "the last 400 such battles with the learner on both seats"
STARTS = "episodes of one kind of start"
WINDOW = "the last 60 such battles against each opponent"
ARCHIVE = "archived routes and their fronts, at the iteration's end"
POOL = "the restart pool, at the iteration's end"
MACHINE = "this machine, at the iteration's end"
WORKERS = "the worker processes, in this iteration"


@dataclass(frozen=True)
class Metric:
    """One number of the row.

    Args:
        name: its key; ``<x>`` stands for anything but a slash.
        unit: ``share`` is a number from 0 to 1; empty for a count.
        meaning: one phrase.
        population: what it is measured over.
        healthy: what to expect; empty where a figure says nothing by itself.
        when: the condition under which it appears; empty for every row.
    """

    name: str
    unit: str
    meaning: str
    population: str
    healthy: str = ""
    when: str = ""

    @property
    def is_family(self) -> bool:
        return "<" in self.name

    @property
    def repeats(self) -> bool:
        """Whether a second run of one seed on one machine shows the same number."""
        return self.population not in (MACHINE, WORKERS) and self.group not in ("time", "speed", "alarm", "alarms")

    @property
    def group(self) -> str:
        """What stands before the first slash; ``run`` for a bare name."""
        return self.name.split("/")[0] if "/" in self.name else "run"


_ENDED = "once a battle ended in the iteration"
_FIRST = "once a full battle ended in the iteration"
_PLAYED = "the action space is RoyaleGym's grid and 100 cards were played"
_TERM = "model.auxiliary names the term"
_LADDER = "with the SnapshotPromotion callback"
_RATED = "RatingUpdate rated the learner in this iteration"
_MEMBERS = "the pool of snapshots is not empty"
_TURNS = "without rollout.overlap"
_AHEAD = "rollout/policy_lag is 1"
_WORKERS = "battles step in worker processes"
_CUDA = "on a CUDA device"
_HARVEST = "with the RestartHarvest callback"
_ROUTES = "with the RouteCurriculum callback"

METRICS: tuple[Metric, ...] = (
    Metric("iteration", "", "iterations done", RUN),
    Metric("game_steps", "game steps", "engine advances of one decision interval, summed over battles and ranks", RUN),
    Metric(
        "run/drifts", "", "changes of settings, versions or code that resumes and live control recorded in drift.jsonl",
        RUN, "0 for a run that can be repeated from its configuration",
    ),
    Metric("alarms/active", "", "alarms that are on", ITERATION, "0"),
    Metric(
        "alarm/<name>", "", "1: this alarm's condition held for its patience and holds still", ITERATION, "absent",
        "while the alarm is on",
    ),
    # ---- time ------------------------------------------------------------------------------------------------
    Metric("time/iteration", "s", "from the row before to this one; the other times add up to it", ITERATION),
    Metric("time/step", "s", "stepping battles and writing rows, scripted opponents included", ITERATION, "", _TURNS),
    Metric("time/inference", "s", "forwards of the acting policies and values of cuts and ends", ITERATION, "", _TURNS),
    Metric("time/wait", "s", "the learner waiting for a rollout that is collected beside its update", ITERATION,
           "far below time/update on a machine where overlap pays", "with rollout.overlap"),
    Metric("time/collect_other", "s", "assignments, book-keeping and advantages", ITERATION),
    Metric("time/update", "s", "from the first minibatch to the last", ITERATION),
    Metric("time/measure", "s", "reading the row's figures; on a GPU also waiting for the update's end", ITERATION),
    Metric("time/restarts", "s", "battles played again for their moments, and the pool's book-keeping", ITERATION,
           "below a twentieth of time/iteration", _HARVEST),
    Metric("time/ladder", "s", "snapshots, their gates and ratings", ITERATION, "below a tenth of time/iteration",
           _LADDER),
    Metric("time/replays", "s", "replays of chosen battles", ITERATION, "1 % of the time between two sets",
           "BattleReplays wrote a set"),
    Metric("time/callbacks", "s", "callbacks after the last minibatch that have no time of their own", ITERATION),
    Metric("time/checkpoint", "s", "the checkpoint after the row before", ITERATION, "2 % of the time between two",
           "after a checkpoint"),
    Metric("time/rest", "s", "what the other times leave: Lightning's loop, logging, progress", ITERATION,
           "a few per cent of time/iteration"),
    # ---- speed -----------------------------------------------------------------------------------------------
    Metric("speed/game_steps_per_s", "game steps/s", "over the whole iteration, all ranks", ITERATION,
           "steady for one configuration and machine"),
    Metric("speed/rows_per_s", "rows/s", "over the whole iteration, this rank", ITERATION, "steady"),
    Metric("speed/collect_game_steps_per_s", "game steps/s", "while collecting, this rank", ITERATION, "steady"),
    Metric("speed/update_rows_per_s", "rows/s", "rows learned from while updating, every PPO epoch counted", ITERATION,
           "steady"),
    # ---- rollout ---------------------------------------------------------------------------------------------
    Metric("rollout/rows", "rows", "stored decisions of the learner", ITERATION, "a little above rows_per_iteration"),
    Metric("rollout/choice_rows", "rows", "of them with more than one legal action", ITERATION, "most of them"),
    Metric("rollout/rows_unused", "share", "rows left over by whole rounds, which a PPO epoch leaves out", ITERATION,
           "below 0.05; raise rows_per_iteration or lower battles"),
    Metric("rollout/rounds", "", "advances of every battle to its next choice", ITERATION),
    Metric("rollout/game_steps", "game steps", "played by this rank, staggered ones left out", ITERATION),
    Metric("rollout/forced_share", "share", "of the learner's decisions with one legal action", ITERATION,
           "0.3 to 0.93, the higher the more eagerly elixir is spent"),
    Metric("rollout/policy_lag", "updates", "the learner made since it was copied to play these rows", ITERATION,
           "0, or 1 with rollout.overlap"),
    Metric("rollout/return_scale", "reward", "deviation of episode returns, by which rewards are divided", RUN,
           "steady; 1 until the first battle ends"),
    Metric("rollout/rewards_clipped", "cells", "scaled rewards beyond ppo.reward_clip", ITERATION, "0"),
    # ---- update ----------------------------------------------------------------------------------------------
    Metric("ppo/loss", "", "policy loss + value_coef x value loss - entropy bonuses, auxiliary terms left out", ROWS),
    Metric("ppo/policy_loss", "", "minus the clipped objective", CHOICE, "near 0, mostly below"),
    Metric("ppo/value_loss", "scaled return^2", "half the squared error", ROWS),
    Metric("ppo/value_loss_choice", "scaled return^2", "the same", CHOICE),
    Metric("ppo/value_loss_forced", "scaled return^2", "the same", FORCED, "near value_loss_choice",
           "forced decisions were stored"),
    Metric("ppo/value_loss_actor", "scaled return^2", "the same of the network's own value, which nothing uses", ROWS,
           "above value_loss", "model.critic stands apart"),
    Metric("ppo/explained_variance", "", "1 - Var(target - V) / Var(target) over the rollout, before the update",
           CHOICE, "above 0.3 after a few dozen iterations", "the targets vary"),
    Metric("ppo/approx_kl", "nats", "KL(policy before the update || new policy), k3 estimate, mean over PPO epochs",
           CHOICE, "0.001 to 0.03"),
    Metric("ppo/clip_fraction", "share", "ratios beyond clip_range", CHOICE, "0.02 to 0.3"),
    Metric("ppo/dual_clip_fraction", "share", "rows held by the dual clip", CHOICE, "below 0.01"),
    Metric("ppo/behaviour_weight", "", "weight of a row that an older copy played, at most 5", CHOICE, "0.9 to 1.1",
           _AHEAD),
    Metric("ppo/behaviour_weight_largest", "", "the largest of them", CHOICE, "below 5", _AHEAD),
    Metric("ppo/ratio_error", "", "largest |ratio - 1| of the first minibatch, before anything was learned",
           CHOICE, "below 0.001 in float32, 0.01 in bfloat16"),
    Metric("ppo/entropy", "nats", "of the whole action", CHOICE, "falls slowly"),
    Metric("ppo/entropy_play", "nats", "of wait or play, at most 0.69", CHOICE, "above 0.02"),
    Metric("ppo/entropy_choice", "nats", "of which card, times the chance to play", CHOICE),
    Metric("ppo/entropy_tile", "nats", "of which tile, times the chance to play", CHOICE),
    Metric("ppo/ppo_epochs_done", "", "passes over the rollout before the KL stop", ITERATION, "all of ppo.ppo_epochs"),
    Metric("ppo/learning_rate", "", "of the actor, as scheduled", ITERATION),
    Metric("auxiliary/<term>/loss", "", "of one of model.auxiliary, before its weight", ROWS, "", _TERM),
    Metric("auxiliary/<term>/weight", "", "of it, as scheduled", ITERATION, "", _TERM),
    Metric("auxiliary/<term>/gradient_share", "share", "of the gradient's size that is the term's", ITERATION,
           "below 0.5", _TERM),
    Metric("auxiliary/<term>/<figure>", "", "what the term itself reports", ROWS, "", _TERM),
    # ---- battles ---------------------------------------------------------------------------------------------
    Metric("battle/episodes", "battles", "ended", BATTLES, "some in most iterations"),
    Metric("battle/ticks", "ticks", "length, of 50 ms", BATTLES, "1,500 to 4,500", _FIRST),
    Metric("battle/truncated", "share", "cut short by max_ticks or a truncation", BATTLES,
           "0 unless the configuration cuts", _FIRST),
    Metric("battle/draws", "share", "drawn", BATTLES, "below 0.1", _FIRST),
    Metric("battle/return", "reward", "undiscounted reward of an episode", OWN, "", _FIRST),
    Metric("battle/return_agreement", "share", "how often a won battle's return exceeds a lost one's", OWN,
           "above 0.9: the reward means winning", "once battles were both won and lost in the iteration"),
    Metric("battle/crowns_for", "crowns", "won", OWN, "", _FIRST),
    Metric("battle/crowns_against", "crowns", "lost", OWN, "", _FIRST),
    Metric("battle/tower_hp_own", "share", "tower hp left at the end", OWN, "", _FIRST),
    Metric("battle/tower_hp_enemy", "share", "the enemy's", OWN, "", _FIRST),
    Metric("battle/blue_score", "share", "blue's score", MIRROR, "0.5", "after 50 mirror battles"),
    Metric("battle/blue_low", "share", "its 95 % interval's lower end", MIRROR, "below 0.5", "after 50 mirror battles"),
    Metric("battle/blue_high", "share", "its upper end", MIRROR, "above 0.5", "after 50 mirror battles"),
    Metric("score/<opponent>", "share", "wins and half the draws of the learner as it trains and explores", WINDOW,
           "rises", "once the opponent was met"),
    Metric("score/scripted", "share", "mean over the scripted opponents", WINDOW, "rises",
           "once a scripted opponent was met"),
    Metric("battle/score_evidence", "battles", "whose mean would be as certain as score/scripted is", WINDOW,
           "60 for each scripted opponent", "once a scripted opponent was met"),
    Metric("score/pool", "share", "against snapshots, all together", WINDOW, "about 0.5 to 0.8",
           "once a snapshot was met"),
    # ---- behaviour -------------------------------------------------------------------------------------------
    Metric("policy/plays_per_battle", "plays", "cards and buttons played", OWN, "10 to 40", _FIRST),
    Metric("policy/plays_per_minute", "plays/min", "the same per minute of battle", OWN, "4 to 20", _FIRST),
    Metric("policy/choices_per_battle", "decisions", "with more than one legal action", OWN, "", _FIRST),
    Metric("policy/leak_share", "share", "of game steps begun and ended with a full elixir bar", OWN, "below 0.1",
           _FIRST),
    Metric("policy/play_rate", "share", "of choices that play something", CHOICE, "0.05 to 0.9",
           "the action space is RoyaleGym's grid"),
    Metric("policy/tile_entropy", "nats", "of the tiles that cards were played on, all together; at most 6.4", CHOICE,
           "above 2", _PLAYED),
    Metric("policy/tile_top_share", "share", "of plays on the tile used most", CHOICE, "below 0.2", _PLAYED),
    Metric("policy/card_tile_top_share", "share", "of plays made by one card on its ten favourite tiles, largest",
           CHOICE, "below 0.4", _PLAYED),
    Metric("card/<card>/play_share", "share", "of plays that were this card", CHOICE, "no deck's card at 0",
           "the card could be played"),
    Metric("card/<card>/play_rate", "share", "of choices where this card could be played that played it", CHOICE,
           "above 0", "the card could be played"),
    # ---- ladder ----------------------------------------------------------------------------------------------
    Metric("ladder/pool", "snapshots", "in the pool", RUN, "grows", _LADDER),
    Metric("ladder/verdicts", "", "on candidates for the pool, gated or not", RUN, "grows", _LADDER),
    Metric("ladder/rejections", "", "gates in a row that let nobody in", RUN, "below 5", _LADDER),
    Metric("ladder/unpromoted", "", "candidates in a row that a gate judged and did not promote", RUN, "below 5",
           _LADDER),
    Metric("ladder/undecided", "battles", "of the ladder that ended without a winner or a draw; in no result",
           ITERATION, "0", _LADDER),
    Metric("ladder/failures", "", "gates, ratings and files for tools given up: a full disk, an unreadable snapshot",
           ITERATION, "0", _LADDER),
    Metric("ladder/left_out", "snapshots", "of the pool that cannot be read now, and are not met", ITERATION, "0",
           _LADDER),
    Metric("ladder/price", "", "game steps that one of the ladder is charged as, by what it was measured to cost", RUN,
           "1 where battles take longer to learn from than to play", _LADDER),
    Metric("ladder/rating", "Elo", "of the learner, above the scripted opponent patient", RUN, "rises", _RATED),
    Metric("ladder/rating_se", "Elo", "its standard error", RUN, "below 100", _RATED),
    Metric("ladder/rating_separable", "0 or 1", "whether its games alone would send that rating to infinity, so that "
           "the prior chose it", RUN, "0", _RATED),
    Metric("ladder/champion_rating", "Elo", "of the pool's champion", RUN, "rises", f"{_RATED}, with a champion"),
    Metric("ladder/over_champion", "Elo", "of the learner above the pool's champion", RUN, "above 0 before a promotion",
           f"{_RATED}, with a champion"),
    Metric("ladder/over_champion_se", "Elo", "standard error of that difference, not the sum of two", RUN, "below 60",
           f"{_RATED}, with a champion"),
    Metric("ladder/time_share", "share", "of this process's wall time spent on evaluations and fits", MACHINE,
           "below 0.1", _LADDER),
    Metric("ladder/pfsp_divergence", "nats", "from an even draw of the pool to the one in force: what PFSP does", RUN,
           "above 0 with a pool of several", _MEMBERS),
    Metric("ladder/pfsp_opponents", "snapshots", "effectively met: 1 over the sum of squared chances", RUN, "above 1",
           _MEMBERS),
    Metric("ladder/pfsp_evidence", "share", "chance that who is drawn was met often enough to be judged", RUN,
           "rises", _MEMBERS),
    Metric("ladder/pfsp_fallback", "0 or 1", "1 where the draw is even although another weighting was asked for", RUN,
           "0", _MEMBERS),
    # ---- starts ----------------------------------------------------------------------------------------------
    Metric("start/<kind>/episodes", "episodes", "ended, staggered ones left out", STARTS, "", "the kind was played"),
    Metric("start/<kind>/step_share", "share", "of the iteration's game steps", STARTS, "", "the kind was played"),
    Metric("start/<kind>/ticks", "ticks", "where episodes ended, from where they began", STARTS, "", _ENDED),
    Metric("start/<kind>/truncated", "share", "cut short", STARTS, "", _ENDED),
    Metric("start/<kind>/return", "reward", "undiscounted reward of the learner's seats", STARTS, "", _ENDED),
    Metric("start/<kind>/value_error", "scaled return", "mean |advantage| of the learner's rows in ended episodes",
           STARTS, "", _ENDED),
    Metric("start/<kind>/score", "share", "of the learner; in a restarted mirror battle of the credited seat", STARTS,
           "", "a battle that was no mirror was decided"),
    # ---- restarts --------------------------------------------------------------------------------------------
    Metric("restarts/wanted_share", "share", "of the game steps that episodes from the pool shall have, as scheduled",
           ITERATION, "start/pool/step_share comes near it", _HARVEST),
    Metric("restarts/replays", "battles", "played again for their moments, this rank", ITERATION,
           "some in most iterations", _HARVEST),
    Metric("restarts/replays_failed", "battles", "of them that came out otherwise; nothing of them is kept",
           ITERATION, "0", _HARVEST),
    Metric("restarts/points", "points", "in the pool", POOL, "grows, then steady", _HARVEST),
    Metric("restarts/buckets", "", "cells of a match-up that hold a point", POOL, "grows, then steady", _HARVEST),
    Metric("restarts/memory_mb", "MB", "save states held, each once", POOL, "some", _HARVEST),
    Metric("restarts/in_flight", "episodes", "begun from the pool and not over", POOL, "", _HARVEST),
    Metric("restarts/offered", "points", "that replays gave", ITERATION, "some in most iterations", _HARVEST),
    Metric("restarts/stored", "points", "of them taken into the pool", ITERATION, "most of them", _HARVEST),
    Metric("restarts/blind", "points", "refused, because the learner's memory is not in them", ITERATION, "0",
           _HARVEST),
    Metric("restarts/bounds", "points", "refused, because minimum_values or maximum_values says so", ITERATION, "",
           _HARVEST),
    Metric("restarts/duplicate", "points", "refused, because the pool holds them", ITERATION, "", _HARVEST),
    Metric("restarts/crowded", "points", "refused, because their battle gave per_battle of that bucket", ITERATION,
           "", _HARVEST),
    Metric("restarts/displaced", "points", "pushed out of a full bucket by newer ones", ITERATION, "", _HARVEST),
    Metric("restarts/worn", "points", "retired after max_uses starts", ITERATION, "", _HARVEST),
    Metric("restarts/aged", "points", "retired after max_age iterations", ITERATION, "", _HARVEST),
    Metric("restarts/evicted", "points", "dropped for what came of starting there", ITERATION, "0", _HARVEST),
    Metric("restarts/imported", "points", "taken from a bank", ITERATION, "", _HARVEST),
    Metric("restarts/restarts", "episodes", "begun from the pool", ITERATION, "some in every iteration", _HARVEST),
    Metric("restarts/scored", "episodes", "from the pool, played to an end", ITERATION, "near restarts/restarts",
           _HARVEST),
    Metric("restarts/refused", "episodes", "whose save state would not load; they began at their true start",
           ITERATION, "0", _HARVEST),
    Metric("restarts/crashed", "episodes", "from the pool, lost with a worker", ITERATION, "0", _HARVEST),
    Metric("restarts/dead_start", "episodes", "in which the learner could do nothing, or over within 2 s", ITERATION,
           "0", _HARVEST),
    Metric("restarts/capped", "episodes", "from the pool, cut by max_ticks", ITERATION,
           "0 unless the configuration cuts", _HARVEST),
    Metric("restarts/abandoned", "episodes", "from the pool, that a resume could not continue", ITERATION, "0",
           _HARVEST),
    Metric("restarts/starved", "episodes", "that were to begin in the pool while it had nothing", ITERATION,
           "0 once the first points are in", _HARVEST),
    Metric("restarts/held_back", "", "1: nobody is restarted, because true starts fell below their reserve",
           ITERATION, "0", _HARVEST),
    Metric("restarts/chance", "share", "of episodes that were to begin in the pool", ITERATION,
           "above restarts/wanted_share, for restarted episodes are shorter", _HARVEST),
    Metric("restarts/busiest_share", "share", "of the last 200 starts that one bucket had", POOL, "below 0.5",
           f"{_HARVEST}, after 100 starts"),
    Metric("restarts/advance_rate", "share", "of starts that got to a better rank or won, mean over buckets", POOL,
           "0.2 to 0.8", f"{_HARVEST}, once a start was scored"),
    Metric("restarts/decided", "share", "of buckets with a full window in which all starts advanced or none did",
           POOL, "below 0.5", f"{_HARVEST}, once a bucket's window is full"),
    Metric("restarts/deepest_phase", "", "of the best moment held: 0 to 4", POOL, "",
           f"{_HARVEST}, once it holds a point"),
    Metric("restarts/deepest_crowns", "crowns", "lead in it, clipped to 2", POOL, "",
           f"{_HARVEST}, once it holds a point"),
    Metric("restarts/deepest_hp", "", "lead in tower hp in it, -2 to 2", POOL, "",
           f"{_HARVEST}, once it holds a point"),
    Metric("curriculum/archived", "routes", "wins that are kept", ARCHIVE, "grows, then steady", _ROUTES),
    Metric("curriculum/judged", "routes", "whose tails were played again", RUN, "grows with the archive", _ROUTES),
    Metric("curriculum/lucky", "routes", "of them won by luck, and taken out", RUN, "a part of them", _ROUTES),
    Metric("curriculum/routes", "routes", "with a front", ARCHIVE, "near curriculum/archived", _ROUTES),
    Metric("curriculum/walking", "routes", "whose front has not reached the beginning", ARCHIVE, "", _ROUTES),
    Metric("curriculum/stalled", "routes", "of them whose front stands still for good", ARCHIVE, "few", _ROUTES),
    Metric("curriculum/asleep", "routes", "of them whose opponent cannot be met", ARCHIVE, "few", _ROUTES),
    Metric("curriculum/front_steps_left", "game steps", "to play from the fronts, mean over those that walk", ARCHIVE,
           "grows: fronts walk backwards", f"{_ROUTES}, once a front walks"),
    Metric("curriculum/rate", "share", "of starts at the front that were won, mean over full windows", ARCHIVE,
           "0.2 to 0.9", f"{_ROUTES}, once a front's window is full"),
    Metric("curriculum/coverage", "share", "of the archive's starts whose save state is there", ARCHIVE, "1",
           f"{_ROUTES}, once a route is archived"),
    Metric("curriculum/memory_mb", "MB", "save states held, each once", ARCHIVE, "some", _ROUTES),
    Metric("curriculum/best_crowns", "crowns", "margin of the best route", ARCHIVE, "1 to 3",
           f"{_ROUTES}, once a route is archived"),
    Metric("curriculum/best_hp", "", "margin in towers' hp fractions of it", ARCHIVE, "",
           f"{_ROUTES}, once a route is archived"),
    Metric("curriculum/best_ticks", "ticks", "length of it", ARCHIVE, "", f"{_ROUTES}, once a route is archived"),
    Metric("curriculum/wins", "episodes", "won by the credited seat", ITERATION, "some", _ROUTES),
    Metric("curriculum/attempts", "episodes", "that were to begin on a route", ITERATION, "some", _ROUTES),
    Metric("curriculum/served", "episodes", "of them that did", ITERATION, "all, once a route leads", _ROUTES),
    Metric("curriculum/starved", "episodes", "of them that found none", ITERATION, "0 once a route leads", _ROUTES),
    Metric("curriculum/starved_streak", "episodes", "in a row that found none", ARCHIVE, "0 once a route leads",
           _ROUTES),
    Metric("curriculum/stale", "votes", "from a front that has moved since", ITERATION, "few", _ROUTES),
    Metric("curriculum/uncredited", "votes", "from starts that are not the front's", ITERATION, "about half", _ROUTES),
    Metric("curriculum/advances", "", "fronts that moved backwards", ITERATION, "some, now and then", _ROUTES),
    Metric("curriculum/retreats", "", "fronts that moved to the easier side", ITERATION, "few", _ROUTES),
    Metric("curriculum/retired", "", "fronts that reached the beginning", ITERATION, "", _ROUTES),
    Metric("curriculum/stalls", "", "fronts that came to stand still", ITERATION, "few", _ROUTES),
    # ---- health ----------------------------------------------------------------------------------------------
    Metric("health/actions_refused", "actions", "that the engine refused though the mask allowed them", ITERATION, "0"),
    Metric("health/codec_clipped", "numbers", "of observations beyond what their storage holds", ITERATION, "0"),
    Metric("health/codec_rounded", "numbers", "of observations that storage rounds though it was measured exact",
           ITERATION, "0"),
    Metric("health/workers_lost", "workers", "that were killed, hung or raised, and were replaced", WORKERS, "0",
           _WORKERS),
    Metric("health/workers_killed", "workers", "of them ended by somebody, such as the system short of memory",
           WORKERS, "0", _WORKERS),
    Metric("health/workers_hung", "workers", "of them without an answer for rollout.worker_timeout_s", WORKERS, "0",
           _WORKERS),
    Metric("health/workers_raised", "workers", "of them ended by an exception", WORKERS, "0", _WORKERS),
    Metric("health/battles_voided", "battles", "lost with a worker", WORKERS, "0", _WORKERS),
    Metric("health/rows_voided", "rows", "lost with them", WORKERS, "0", _WORKERS),
    Metric("health/replays_failed", "battles", "that BattleReplays could not write: another result, or no room",
           ITERATION, "0", "BattleReplays was to write a set"),
    Metric("health/memory_mb", "MB", "resident memory of the trainer; of several ranks' the largest", MACHINE,
           "flat after some dozen iterations"),
    Metric("health/workers_memory_mb", "MB", "resident memory of the processes it started; the largest", MACHINE,
           "flat", _WORKERS),
    Metric("health/file_handles", "", "open files of the trainer; the most", MACHINE, "flat"),
    Metric("health/gpu_memory_mb", "MB", "largest GPU memory reserved so far, of any rank", MACHINE, "flat", _CUDA),
    Metric("health/gpu_free_mb", "MB", "free GPU memory, other programs counted; the least", MACHINE, "above 256",
           _CUDA),
)


@lru_cache(maxsize=1)
def _index() -> tuple[dict[str, Metric], list[tuple[re.Pattern[str], Metric]]]:
    plain = {m.name: m for m in METRICS if not m.is_family}
    families = []
    for m in METRICS:
        if m.is_family:
            pattern = "".join("[^/]+" if p.startswith("<") else re.escape(p) for p in re.split(r"(<[^>]*>)", m.name))
            families.append((re.compile(pattern), m))
    return plain, families


def declared(key: str) -> Metric | None:
    """The declaration of a row's key, or None: a user's own callbacks and loss terms add keys of their own."""
    plain, families = _index()
    if key in plain:
        return plain[key]
    return next((m for pattern, m in families if pattern.fullmatch(key)), None)


def repeats(key: str) -> bool:
    """Whether a key says what was computed, and not how fast or with how much memory."""
    found = declared(key)
    return found is None or found.repeats


def undeclared(keys: Iterable[str]) -> list[str]:
    """Those that no declaration covers."""
    return [k for k in keys if declared(k) is None]
