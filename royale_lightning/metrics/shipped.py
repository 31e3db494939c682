"""The alarms every run has, each with the reason for its bound and what to do about it."""

from __future__ import annotations

from .alarms import HALT, Alarm, FellFromBest, Grew, NonFinite, Threshold

#: A ratio error this many times the precision's tolerance is no rounding.
_RATIO_SLACK = 5.0


def shipped_alarms(ratio_tolerance: float = 1e-3) -> list[Alarm]:
    """A fresh set.

    Args:
        ratio_tolerance: rounding of the first minibatch's ratios at the run's precision.
    """
    return [
        # ---- the run computes something else than it says ---------------------------------------------------------
        NonFinite(
            "nonfinite", severity=HALT, reason="nothing learned after it is worth anything",
            advice="lower ppo.learning_rate; look at the reward and at observations of your own",
        ),
        Threshold(
            "actions_refused", "health/actions_refused", above=0, severity=HALT,
            reason="the mask promises that the engine takes every action it allows",
            advice="run royale-lightning doctor; a refused action was learned as if it had been played",
        ),
        Threshold(
            "ratio_error", "ppo/ratio_error", above=_RATIO_SLACK * ratio_tolerance, severity=HALT,
            reason="the weights that acted give the stored probabilities but for rounding",
            advice="a forward must depend on its row alone: look for batch norm, dropout or a stale copy",
        ),
        Threshold(
            "codec_rounded", "health/codec_rounded", above=0, reason="storage was chosen so that nothing is rounded",
            advice="raise battle.codec_states, or set it to 0 to store every key as declared",
        ),
        Threshold(
            "codec_clipped", "health/codec_clipped", above=0, patience=3,
            reason="a number beyond its storage reached the network cut; a crowd beyond 36 units does so now and then",
            advice="raise battle.codec_states, or scale the observation; entities clips units beyond its 36",
        ),
        # ---- the update -------------------------------------------------------------------------------------------
        Threshold(
            "clip_pinned", "ppo/clip_fraction", above=0.5, patience=3, severity=HALT,
            reason="with every second row clipped the step no longer follows the gradient; healthy is 0.02 to 0.3",
            advice="lower ppo.learning_rate or ppo.ppo_epochs",
        ),
        Threshold(
            "kl_high", "ppo/approx_kl", above=0.05, patience=3,
            reason="ppo.kl_limit is 0.03: a mean beyond 0.05 means that the stop comes too late",
            advice="lower ppo.learning_rate, ppo.ppo_epochs or ppo.kl_limit",
        ),
        Threshold(
            "kl_dead", "ppo/approx_kl", below=1e-5, patience=10, reason="healthy updates move 0.001 to 0.03",
            advice="the policy stands still: raise ppo.learning_rate, or check ppo.adam_eps and the reward",
        ),
        Threshold(
            "dual_clip", "ppo/dual_clip_fraction", above=0.1, patience=5,
            reason="ratios above 3 on bad actions are accidents in a healthy update, below 1 % of rows",
            advice="lower ppo.learning_rate or ppo.ppo_epochs",
        ),
        Threshold(
            "value_useless", "ppo/explained_variance", below=0.0, patience=20,
            reason="worse than a constant for longer than the critic needs to warm up",
            advice="raise ppo.value_coef or ppo.critic_learning_rate; is the reward predictable from the observation?",
        ),
        Threshold(
            "value_gap", "ppo/value_loss_forced", per="ppo/value_loss_choice", above=4.0, patience=10,
            reason="twice the error in reward on the states that cuts bootstrap from",
            advice="raise rollout.forced_value_share",
        ),
        Threshold(
            "rewards_clipped", "rollout/rewards_clipped", above=0.0, patience=3,
            reason="ten return deviations in one step are an accident; three iterations in a row are the reward",
            advice="raise ppo.reward_clip or spread the reward",
        ),
        Threshold(
            "rows_unused", "rollout/rows_unused", above=0.2, patience=3,
            reason="a fifth of what was played is thrown away",
            advice="raise rollout.rows_per_iteration or lower rollout.battles",
        ),
        # ---- what is played ---------------------------------------------------------------------------------------
        Threshold(
            "plays_stopped", "policy/plays_per_minute", below=0.6, patience=10, severity=HALT,
            reason="two or three cards a battle, where elixir pays for six a minute: it has learned to wait",
            advice="raise ppo.entropy_play; does the reward punish playing?",
        ),
        Threshold(
            "plays_few", "policy/plays_per_minute", below=2.0, patience=5,
            reason="a third of what the elixir of a minute pays for", advice="raise ppo.entropy_play",
        ),
        Threshold(
            "elixir_leaks", "policy/leak_share", above=0.5, patience=5, reason="half a battle with a full bar",
            advice="raise ppo.entropy_play; does the reward pay for hoarding?",
        ),
        Threshold(
            "play_decided", "ppo/entropy_play", below=0.02, patience=5,
            reason="wait or play is then decided 99 to 1, and nothing else is tried any more",
            advice="raise ppo.entropy_play",
        ),
        Threshold(
            "tile_spam", "policy/tile_top_share", above=0.25, patience=5,
            reason="every fourth card on one of 576 tiles; healthy policies stay below 0.1",
            advice="raise ppo.entropy_tile; look at a battle with royale-lightning predict",
        ),
        Threshold(
            "artefact_exploit", "policy/card_tile_top_share", above=0.5, patience=5,
            reason="half of all plays are one card on ten tiles: a trick against one opponent, or against the engine",
            advice="look at a battle with royale-lightning predict; mix in other opponents",
        ),
        Threshold(
            "draws", "battle/draws", above=0.5, patience=5, reason="real battles end in a draw once in ten at most",
            advice="both sides wait: does the reward pay for winning?",
        ),
        Threshold(
            "blue_favoured", "battle/blue_low", above=0.55, patience=3,
            reason="the learner plays both seats, so their scores agree; the interval is of 95 %",
            advice="is the observation or the reward different for the two seats?",
        ),
        Threshold(
            "red_favoured", "battle/blue_high", below=0.45, patience=3,
            reason="the learner plays both seats, so their scores agree; the interval is of 95 %",
            advice="is the observation or the reward different for the two seats?",
        ),
        Threshold(
            "reward_misleads", "battle/return_agreement", below=0.7, patience=5,
            reason="0.5 is a reward that knows nothing of winning; the shipped ones reach 0.95 and more",
            advice="weigh shaping terms less against the result",
        ),
        FellFromBest(
            "forgetting", "score/scripted", by=0.15, window=1, evidence="battle/score_evidence", patience=5,
            reason="beyond the errors of both: a fall of 0.25 against five opponents, of 0.4 against one",
            advice="go back to an earlier checkpoint and a lower ppo.learning_rate; keep scripted opponents in",
        ),
        Threshold(
            "gate_starved", "ladder/unpromoted", above=4,
            reason="five candidates in a row, over which the run grew threefold, were no better than the champion",
            advice="the learner stands still: look at ladder/rating, and at ppo/entropy for what it still tries",
        ),
        Threshold(
            "pfsp_even", "ladder/pfsp_fallback", above=0.5, patience=30,
            reason="results and ratings tell the pool's members apart long before, unless they do not arrive",
            advice="is any battle with the pool ever finished? rate the learner (RatingUpdate), or ask for uniform",
        ),
        Threshold(
            "pfsp_thin", "ladder/pfsp_evidence", below=0.2, patience=100,
            reason="eight of ten opponents are drawn by what a handful of games says; evidence is halved in 69 rows",
            advice="raise data.opponents.pool, or lower the capacity of SnapshotPromotion.eviction",
        ),
        Threshold(
            "ladder_slow", "ladder/price", above=3.0,
            reason="its battles take four times as long as those that are learned from, and are played as much more "
            "rarely, so that they stay within their share of the time",
            advice="ratings and gates come late: raise the shares of RatingUpdate and SnapshotPromotion, or use more "
            "cores",
        ),
        Threshold(
            "ladder_undecided", "ladder/undecided", above=0,
            reason="an evaluated battle ends by the engine's own rules, which know no third way",
            advice="the pairs of such battles count for nothing; was the engine updated beside the run?",
        ),
        Threshold(
            "ladder_failed", "ladder/failures", above=0, reason="a gate or a rating is missing, and what it would say",
            advice="see the sentence above it: make room, or see to the snapshot that it names",
        ),
        Threshold(
            "snapshots_left_out", "ladder/left_out", above=0,
            reason="a member of the pool that nobody can read is met by nobody, and judges nobody",
            advice="see the sentence above it: permissions, the limit of open files, or another version's snapshot",
        ),
        Threshold(
            "replays_unwritten", "health/replays_failed", above=0,
            reason="a battle of the training replays to the bit, and a set takes some 7 MB",
            advice="see the sentence above it: make room, or look for a part of your own that draws at random",
        ),
        Threshold(
            "restarts_missing", "restarts/restarts", below=1, per="restarts/wanted_share", patience=20,
            reason="a share is asked for, and no episode of 20 iterations began in the pool",
            advice="look at restarts/points; or is every battle still in its first episode?",
        ),
        Threshold(
            "restarts_few", "start/pool/step_share", below=0.25, per="restarts/wanted_share", patience=20,
            reason="restarted battles have less than a quarter of the game steps they should have",
            advice="the pool holds too little: look at restarts/points and restarts/stored",
        ),
        Threshold(
            "pool_empty", "restarts/points", below=1, patience=20,
            reason="most battles end within twenty iterations, and some are replayed",
            advice="look at restarts/replays and restarts/offered; a larger RestartHarvest.budget replays more",
        ),
        Threshold(
            "harvest_idle", "restarts/offered", below=1, patience=50,
            reason="no replay gave a moment for fifty iterations, and points age in twenty",
            advice="raise RestartHarvest.budget, or lower markers.grace_steps for battles this short",
        ),
        Threshold(
            "harvest_rejected", "restarts/stored", below=0.02, per="restarts/offered", patience=20,
            reason="what is offered is hardly ever taken",
            advice="the row says why: restarts/blind, bounds, duplicate or crowded",
        ),
        Threshold(
            "replays_failed", "restarts/replays_failed", above=0,
            reason="a recorded battle replays to the bit, or its moments are of another battle",
            advice="a reward, observation or opponent of your own draws at random, or has a state that it does not "
            "offer",
        ),
        Threshold(
            "restarts_refused", "restarts/refused", above=0,
            reason="the pool holds only moments of this game, so each of them loads",
            advice="collect the imported bank again; a part of your own may not take back the state it gave",
        ),
        Threshold(
            "restarts_crashed", "restarts/crashed", above=0, reason="restarts crash no worker",
            advice="the points were dropped; see what the worker said",
        ),
        Threshold(
            "restarts_dead", "restarts/dead_start", above=0.1, per="restarts/restarts", patience=5,
            reason="a start where nothing can be done teaches nothing; the grace period keeps them out",
            advice="raise RestartHarvest.markers.grace_steps",
        ),
        Threshold(
            "restarts_one_bucket", "restarts/busiest_share", above=0.5, patience=10,
            reason="half of all restarts practise one situation",
            advice="is the pool small, or selection learnability or value_error with a low selection_floor?",
        ),
        Threshold(
            "restarts_decided", "restarts/decided", above=0.5, patience=10,
            reason="most starts are won, or lost, whatever the learner does",
            advice="selection: learnability fades such buckets; minimum_values and maximum_values bound what is kept",
        ),
        Threshold(
            "restarts_slow", "time/restarts", above=0.05, per="time/iteration", patience=10,
            reason="a twentieth of the time is what the pool may cost", advice="lower RestartHarvest.budget",
        ),
        Threshold(
            "archive_empty", "curriculum/archived", below=1, patience=50,
            reason="no win against a named opponent was kept for fifty iterations",
            advice="a curriculum needs a first win: add weaker scripted opponents, or raise RestartHarvest.budget",
        ),
        Threshold(
            "routes_lucky", "curriculum/lucky", above=0.9, per="curriculum/judged", least=10,
            reason="nine of ten archived wins were luck", advice="raise RouteCurriculum.games, to tell them better",
        ),
        Threshold(
            "curriculum_starved", "curriculum/starved_streak", above=500, patience=10,
            reason="500 episodes in a row were to begin on a route and found none",
            advice="look at curriculum/archived, judged and asleep; a larger RouteCurriculum.budget judges sooner",
        ),
        Threshold(
            "rungs_missing", "curriculum/coverage", below=1.0,
            reason="a start without its save state is never served, and looks like a hard task",
            advice="report it: minting keeps the save state of every start",
        ),
        Threshold(
            "curriculum_stalled", "curriculum/stalled", above=0.99, per="curriculum/walking", patience=20,
            reason="no front moves any more",
            advice="the task is found where they stand: see start/curriculum/score; or lower curriculum.minimum_rate",
        ),
        Threshold(
            "true_starts_few", "start/true/step_share", below=0.05, patience=5,
            reason="strength is measured from true starts, and nothing else sees a battle's opening",
            advice="lower the share of restarts",
        ),
        Threshold(
            "no_battles", "battle/episodes", below=1.0, patience=30,
            reason="no result for 30 iterations: scores and behaviour stand still",
            advice="raise rollout.rows_per_iteration or lower rollout.battles",
        ),
        # ---- the machine ------------------------------------------------------------------------------------------
        Threshold(
            "workers_lost", "health/workers_lost", above=0.0, reason="a worker lives as long as its run",
            advice="see the traceback above it; a killed one may have met the limit of memory",
        ),
        Threshold(
            "workers_keep_failing", "health/workers_lost", above=0.0, patience=3, severity=HALT,
            reason="three iterations in a row are no accident, and each loss throws experience away",
            advice="see the traceback above it; set rollout.source to inline to find the fault",
        ),
        FellFromBest(
            "update_slow", "speed/update_rows_per_s", to=0.35, patience=5,
            reason="the work is the same all along: a neighbour on the cores takes half, spilled memory four fifths",
            advice="see what else runs; on a GPU lower rollout.minibatch_rows",
        ),
        FellFromBest(
            "collect_slow", "speed/collect_game_steps_per_s", to=0.3, patience=5,
            reason="fuller boards cost a quarter and a neighbour on the cores half",
            advice="see what else runs, and whether workers restart",
        ),
        Threshold(
            "overhead", "time/rest", per="time/iteration", above=0.2, least=0.5, patience=5,
            reason="a few per cent are Lightning's", advice="is a logger waiting for its network?",
        ),
        Grew(
            "memory_grows", "health/memory_mb", factor=1.5, patience=5,
            reason="batches of changing size move it by a third at most, and it comes back",
            advice="a callback or part of your own may keep what it should drop",
        ),
        Grew(
            "workers_memory_grows", "health/workers_memory_mb", factor=1.5, patience=5,
            reason="a run is flat within some per cent once it is warm",
            advice="a reward, observation or opponent of your own may keep what it should drop",
        ),
        Grew(
            "files_grow", "health/file_handles", plus=64, patience=5, reason="a run opens its files once",
            advice="a part of your own opens files and does not close them",
        ),
        Threshold(
            "gpu_memory_low", "health/gpu_free_mb", below=256, patience=3,
            reason="drivers that spill to the host's memory begin to, at a fifth of the speed",
            advice="lower rollout.minibatch_rows, or free the GPU of other programs",
        ),
    ]
