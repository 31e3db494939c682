"""The LightningModule: an actor-critic, the clipped PPO loss, one optimizer."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from ..battle.actions import ActionLayout
from ..battle.streams import stream_seed
from ..errors import UserError
from ..metrics.process import MB
from ..nn import CRITICS, NETWORKS, Asymmetric, Critic, build_critic, build_network, parameter_groups
from ..nn.build import seeded
from ..nn.compiled import CompiledForward
from ..nn.critic import hidden_fields
from ..nn.distribution import MaskedCategorical, widest_float
from ..nn.protocol import ActorCritic, Inputs
from ..nn.rows import unpack
from ..parts import Part, PartLike
from ..rollout.advantage import ESTIMATORS
from ..rollout.data import data_of, inputs_of
from ..rollout.minibatch import Minibatch
from ..run.ranks import Ranks
from ..run.screen import say
from .auxiliary import TERMS, AuxiliaryLoss, Step, build_terms, gradient_shares
from .loss import Stages, critic_sums, explained_variance, ppo_loss, value_loss
from .schedule import progress
from .settings import PPOSettings
from .warm_start import introduce, load_actor

if TYPE_CHECKING:
    from ..bots.bot import Bot


#: A checkpoint's key of the catalogue ids that the network's battles could hold so far.
_MET = "cards_met"
#: PPO settings that checkpoints of earlier versions say nothing of; unset, they are no part of a run's identity.
_YOUNG = ("value_lambda", "weight_average")


def ratio_tolerance(precision: str, compiled: bool = False) -> float:
    """How far from 1 a ratio may be in the first minibatch of an iteration, whose log-probabilities are of the very
    weights that compute it: what rounding does.

    In bfloat16 another kernel for another number of rows rounds a few activations to the other side. The shipped bot on
    a CPU, 1,606 rows: 7e-4 at most for minibatches of 7 to 512 rows, 5e-3 by other kernels altogether, but 4.5e-2 where
    one side acted in float32, which this must notice. Compiled kernels keep float32 where others round, so there it
    cannot.

    Args:
        precision: of the Trainer.
        compiled: whether training runs the network compiled; acting never does.
    """
    if "bf16" not in precision:
        return 1e-3
    return 5e-2 if compiled else 1e-2


class SelfPlayModule(pl.LightningModule):
    """Actor, critic and PPO.

    Args:
        network: ``entity`` (the default), ``conv``, or an ``ActorCritic`` of your own.
        ppo: the update's settings.
        auxiliary: further loss terms by name: ``self_imitation``, ``kl_to_reference``, or an ``AuxiliaryLoss`` of your
            own.
        init_from: a bot folder, snapshot, checkpoint or run folder whose actor a new run begins with; the critic and a
            continued run keep their own weights.
        critic: a value network apart from the actor's, told what the seat does not see: ``entity``, or a ``Critic`` of
            your own; it trains and is in no bot. Unset, the network's own value, which sees what the actor sees. With
            one, the network's own value still learns the same targets, for what that teaches the layers it shares.
        compile: compile the network's training forward (``torch.compile``); off, because on a CPU the packed,
            uncompiled one is faster, and the first iteration waits a minute for the compiler.
    """

    network: ActorCritic

    def __init__(
        self,
        network: PartLike = "entity",
        ppo: PPOSettings = PPOSettings(),  # noqa: B008 - frozen
        auxiliary: dict[str, PartLike] | None = None,
        init_from: str | None = None,
        critic: PartLike | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(ppo, Mapping):  # as a checkpoint's hyper-parameters hold it (load_from_checkpoint)
            ppo = PPOSettings(**{**ppo, "adam_betas": tuple(ppo["adam_betas"])})
        self.compiles = compile
        self.auxiliary_parts = {n: Part.of(a, f"model.auxiliary.{n}", TERMS) for n, a in (auxiliary or {}).items()}
        self.init_from = init_from
        self.network_part = Part.of(network, "model.network", NETWORKS)
        self.critic_part = None if critic is None else Part.of(critic, "model.critic", CRITICS)
        self.ppo = ppo
        # Plain dicts, so that a checkpoint loads without running code, and a list for the one tuple, so that any reader
        # of YAML takes the loggers' copy.
        self.save_hyperparameters({
            "network": self.network_part.as_dict(), "critic": self.critic_part and self.critic_part.as_dict(),
            "ppo": {**asdict(ppo), "adam_betas": list(ppo.adam_betas)},
            "auxiliary": {n: a.as_dict() for n, a in self.auxiliary_parts.items()}, "init_from": init_from,
            "compile": compile,
        })
        self.numbers = ppo.at(0)
        self.critic: Critic | None = None
        #: The mean of the network's weights, where the settings ask for one.
        self.average: ActorCritic | None = None
        self._built = False
        #: ``init_from`` while its actor is still to be loaded. A checkpoint gives the weights instead: it is restored
        #: between ``configure_model`` and a stage's first hook.
        self._unread: str | None = None
        #: Cards that the network's battles could hold so far; none before the first iteration of a run from scratch.
        self._met: frozenset[int] = frozenset()
        self._weights: dict[str, float] = {}
        self._shares: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}
        self._epoch_sums: dict[str, Tensor] = {}
        self._ratio_error: Tensor | None = None
        self._largest_weight: Tensor | None = None
        self._epochs_done = 0
        self._update_from: float | None = None
        self._seconds = 0.0
        self._critic: Tensor | None = None
        self._begun = 0
        self._check_due = False

    # ---- building --------------------------------------------------------------------------------------------
    def configure_model(self) -> None:
        """Make the network for the Trainer's battles; without one (``load_from_checkpoint``) the checkpoint's record
        says for which, see :meth:`on_load_checkpoint`."""
        if self._trainer is None:
            return
        data = data_of(self.trainer)
        if self._built and self.inputs != data.inputs:
            raise UserError(
                f"the module's network reads observation {self.inputs.layout.name} ({self.inputs.actions.n_actions} "
                f"actions) of the battles it was made for, and these give {data.inputs.layout.name} "
                f"({data.inputs.actions.n_actions}); give it the same battles, or make a new module"
            )
        if not self._built:
            self.build(data.inputs, data.seed)
            self._unread = self.init_from

    def build(self, inputs: Inputs, seed: int) -> None:
        """Make the network for these battles; its weights are a function of the seed alone."""
        self.inputs = inputs
        self.actions: ActionLayout = inputs.actions
        self.network = build_network(self.network_part.as_dict(), inputs, seed)
        if self.critic_part is not None:
            self.critic = build_critic(self.critic_part.as_dict(), inputs, stream_seed(seed, "critic") >> 1)
        if self.ppo.weight_average is not None:
            self.average = copy.deepcopy(self.network).requires_grad_(False)
        self._compiled = CompiledForward(self.network) if self.compiles else None
        with seeded(stream_seed(seed, "auxiliary") >> 1):
            self.auxiliary = build_terms(self.auxiliary_parts, inputs)
        # DDP would send every buffer from rank 0 before each forward. Those that no checkpoint holds are tables, which
        # each rank made for itself, and nothing may change.
        stored = self.state_dict().keys()
        tables = [name for name, _ in self.named_buffers(remove_duplicate=False) if name not in stored]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, tables)
        self._built = True

    def configure_optimizers(self) -> torch.optim.Optimizer:
        actor, critic = parameter_groups(self.network)
        apart = () if self.critic is None else self.critic.parameters()
        groups = [
            {"params": [*actor.values(), *self.auxiliary.parameters()], "name": "actor"},
            {"params": [*critic.values(), *apart], "name": "critic"},
        ]
        # One pass over the weights instead of a dozen: on a CPU a tenth of a small minibatch's time. Under mixed
        # precision Lightning's clipping (2.6) refuses it.
        mixed = self._trainer is not None and "mixed" in str(self.trainer.precision)
        kind = {"foreach": True} if mixed else {"fused": True}
        return torch.optim.Adam(
            [g for g in groups if g["params"]], lr=self.numbers.learning_rate, betas=self.ppo.adam_betas,
            eps=self.ppo.adam_eps, **kind,
        )

    def identity_fields(self) -> dict[str, Any]:
        """What of this module decides a run (:mod:`royale_lightning.run.identity`)."""
        estimator = Part.of(self.ppo.advantage, "ppo.advantage", ESTIMATORS)
        given = data_of(self.trainer).given
        auxiliary = {n: a.as_dict() for n, a in self.auxiliary_parts.items()}
        for name, setting, path in self._bots():
            auxiliary[name]["init_args"][setting] = given.id_of(f"model.auxiliary.{name}.{setting}", path)
        init_from = None if self.init_from is None else given.id_of("model.init_from", self.init_from)
        ppo = {**asdict(self.ppo), "advantage": estimator}
        # What a run of an earlier version could not say, it says by leaving it out.
        ppo = {k: v for k, v in ppo.items() if v is not None or k not in _YOUNG}
        critic = {} if self.critic_part is None else {"critic": self.critic_part}
        return {
            **critic, "network": self.network_part, "ppo": ppo,
            "auxiliary": auxiliary, "init_from": init_from, "compile": self.compiles,
        }

    def _bots(self) -> Iterator[tuple[str, str, str]]:
        """Term, setting and path of every bot that the auxiliary losses are given."""
        for name, term in self._terms():
            init_args = self.auxiliary_parts[name].init_args
            yield from ((name, s, str(init_args[s])) for s in term.bot_settings if init_args.get(s) is not None)

    @property
    def policy(self) -> ActorCritic:
        """What acts and says what rows are worth: the network, or it with the critic apart."""
        return self.network if self.critic is None else Asymmetric(self.network, self.critic)

    @property
    def gamma(self) -> float:
        return self.numbers.gamma

    # ---- an iteration ----------------------------------------------------------------------------------------
    def _begin(self) -> None:
        path, self._unread = self._unread, None
        if path is not None:
            self._met = load_actor(self.network, path, self.inputs)
            if self.average is not None:
                self.average.load_state_dict(self.network.state_dict())
            self._introduce()

    on_validation_start = on_test_start = on_predict_start = _begin

    def on_fit_start(self) -> None:
        self._begin()
        bots: dict[str, dict[str, Bot]] = {}
        for name, setting, path in self._bots():
            bot = data_of(self.trainer).given_bot(f"model.auxiliary.{name}.{setting}", path)
            bots.setdefault(name, {})[setting] = bot
        for name, term in self._terms():
            if name in bots:
                term.take_bots(bots[name])

    def _introduce(self) -> None:
        """Begin cards that battles may hold from now on as known ones: after a warm start, and where a pool widens."""
        data = data_of(self.trainer)
        # What is only measured plays where a pool's schedule ends.
        now = data.battle.cards(data.game_steps if self.trainer.training else None)
        new = now - self._met
        if new and self._met:
            introduce(self.network, new, self._met)
            if self.average is not None:
                introduce(self.average, new, self._met)
            if data.ranks.leads:
                say(
                    f"the network never met {len(new)} of the cards that battles hold from now on; each begins as the "
                    "one it knows that is most like it (battle/kin.py)"
                )
        self._met |= now

    def on_train_start(self) -> None:
        self._begun = 0

    def on_train_epoch_start(self) -> None:
        data = data_of(self.trainer)
        self._introduce()
        self._begun += 1
        # Twice: before its first update the heads of an untrained network are zeroed, and hide what is wrong below.
        self._check_due = self._begun <= 2
        self.numbers = self.ppo.at(data.game_steps)
        for group in self.optimizers().param_groups:  # type: ignore[union-attr]
            critic = group.get("name") == "critic"
            group["lr"] = self.numbers.critic_learning_rate if critic else self.numbers.learning_rate
        now = progress(data.game_steps, self.ppo.horizon_game_steps)
        for name, term in self._terms():
            self._weights[name] = term.schedule(now)
            term.begin(data)
        self._shares = {}
        self._sums, self._epoch_sums = {}, {}
        self._ratio_error = self._largest_weight = self._critic = None
        self._epochs_done = 0
        self._update_from = None

    def forward(self, obs: dict[str, Tensor]) -> Any:
        return self.network(obs)

    def training_step(self, batch: Minibatch, batch_idx: int) -> Tensor:
        obs = unpack(batch.rows, self.inputs.layout)
        logits, value = (self._compiled or self.network)(obs)
        dist = MaskedCategorical(logits, obs["action_mask"], self.actions)
        log_prob, tile_entropy = dist.log_prob_and_tile_entropy(batch.action)
        n = self.numbers
        own = None if self.critic is None else value
        if self.critic is not None:
            assert batch.hidden is not None, "the collection keeps what its critic reads"
            value = self.critic(obs, hidden_fields(batch.hidden))
        loss, figures = ppo_loss(
            batch, log_prob, Stages(dist.entropy_play, dist.entropy_choice, tile_entropy), value.float(),
            clip_range=n.clip_range, dual_clip=self.ppo.dual_clip, value_coef=self.ppo.value_coef,
            value_clip=self.ppo.value_clip,
            entropy_coef=Stages(n.entropy_play, n.entropy_choice, n.entropy_tile),
        )
        if own is not None:
            shared = value_loss(own.float(), batch.target, batch.value, None).mean()
            loss = loss + self.ppo.value_coef * shared
            figures["value_loss_actor"] = shared.detach()
        terms = {}
        for name, term in self._terms():
            # A term with weights of its own is asked all the same: DDP waits for a gradient of each.
            if not self._weights[name] and not any(p.requires_grad for p in term.parameters()):
                continue
            extra, more = term(Step(batch, obs, dist, value, self.network))
            if extra.ndim:
                raise UserError(f"model.auxiliary.{name} gave a loss of shape {list(extra.shape)}; take its mean")
            terms[name] = self._weights[name] * extra
            figures.update({f"auxiliary/{name}/{k}": v.detach() for k, v in {"loss": extra, **more}.items()})
        if terms and batch.epoch == batch.index == 0:
            shares = gradient_shares([loss, *terms.values()], parameter_groups(self.network)[0].values())
            self._shares = dict(zip(terms, shares[1:], strict=True))
        self._note(batch, figures)
        return loss + sum(terms.values()) if terms else loss

    def _terms(self) -> list[tuple[str, AuxiliaryLoss]]:
        return [(name, term) for name, term in self.auxiliary.items() if isinstance(term, AuxiliaryLoss)]

    @torch.no_grad()
    def _note(self, batch: Minibatch, figures: dict[str, Tensor]) -> None:
        """Sum the figures on the device, each weighted by the rows it is a mean over."""
        if batch.index == 0:
            self._epochs_done = batch.epoch + 1
            self._epoch_sums = {}
            if batch.epoch == 0:
                self._ratio_error = figures["ratio_error"]
        largest = figures.pop("behaviour_weight_largest", None)
        if batch.epoch == 0:  # value, target and weight are the collection's: one pass over the rows says it all
            if largest is not None:
                known = self._largest_weight
                self._largest_weight = largest if known is None else torch.maximum(known, largest)
            wide = widest_float(batch.value.device)
            critic = critic_sums(batch.value.to(wide), batch.target.to(wide), batch.choice)
            self._critic = critic if self._critic is None else self._critic + critic
        for sums in (self._sums, self._epoch_sums):
            for name, x in figures.items():
                if name == "ratio_error":
                    continue
                weight = _weight(name)
                if name.endswith("_rows"):
                    w = x
                else:
                    w = x * (figures[weight] if weight else len(batch))
                sums[name] = sums[name] + w if name in sums else w
            # Filled there: torch.tensor would copy a number to the device, and wait for it.
            rows = torch.full((), float(len(batch)), device=self.device)
            sums["rows"] = sums["rows"] + rows if "rows" in sums else rows

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self._update_from is None:
            self._update_from = time.perf_counter()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.average is not None:
            assert self.ppo.weight_average is not None
            # The first steps weigh equally, or the mean would begin as the untrained network and stay near it for long.
            step = self.trainer.global_step
            follow_weights(self.average, self.network, min(self.ppo.weight_average, step / (step + 10)))
        assert self._update_from is not None
        self._seconds = time.perf_counter() - self._update_from

    def epoch_kl(self) -> float:
        """Mean KL of the PPO epoch that just ended: the update's one synchronisation."""
        pair = torch.stack([self._epoch_sums["approx_kl"], self._epoch_sums["choice_rows"].float()])
        kl, rows = Ranks.of(self.trainer).sum(pair).tolist()
        return float(kl / max(1.0, rows))

    def iteration_metrics(self) -> dict[str, float]:
        """Figures of the update that just ended, reduced over ranks. Called once per iteration, on every rank."""
        if not self._sums:
            return {}
        names = sorted(self._sums)
        wide = widest_float(self.device)
        packed = torch.stack([self._sums[k].to(wide) for k in names])
        ratio = self._ratio_error.to(wide) if self._ratio_error is not None else packed.new_zeros(())
        critic = self._critic.clone() if self._critic is not None else packed.new_zeros(5)  # asked again, summed again
        weight = self._largest_weight.to(wide) if self._largest_weight is not None else packed.new_zeros(())
        # The largest over ranks: the ratio's error, a row's weight, GPU memory reserved, and what free memory lacks.
        most = torch.stack([ratio, weight, *(packed.new_tensor(x) for x in self._gpu_memory())])
        ranks = Ranks.of(self.trainer)
        packed, critic, most = ranks.sum(packed), ranks.sum(critic), ranks.largest(most)
        started = time.perf_counter()
        total = dict(zip(names, packed.tolist(), strict=True))
        waited = time.perf_counter() - started  # for a GPU that still had minibatches before it
        out = {"ppo/ppo_epochs_done": float(self._epochs_done), "ppo/ratio_error": float(most[0])}
        for name, x in total.items():
            if name == "rows" or name.endswith("_rows"):
                continue
            weight = total[_weight(name) or "rows"]
            if weight:
                out[name if "/" in name else f"ppo/{name}"] = x / weight
        if self._largest_weight is not None:  # on all ranks or on none: they collect ahead together
            out["ppo/behaviour_weight_largest"] = float(most[1])
        explained = float(explained_variance(critic))
        if math.isfinite(explained):
            out["ppo/explained_variance"] = explained
        for name, _ in self._terms():
            out[f"auxiliary/{name}/weight"] = self._weights[name]
        for name, share in self._shares.items():
            # This rank's, at the iteration's first minibatch.
            out[f"auxiliary/{name}/gradient_share"] = float(share)
        out["ppo/learning_rate"] = self.numbers.learning_rate
        out["time/update"] = self._seconds
        out["speed/update_rows_per_s"] = total["rows"] / max(1e-9, self._seconds + waited)
        if self.device.type == "cuda":
            out["health/gpu_memory_mb"], out["health/gpu_free_mb"] = float(most[2]), -float(most[3])
        return out

    def _gpu_memory(self) -> tuple[float, float]:
        """Most memory reserved so far, and minus what is free, in MB; zeros without a GPU."""
        if self.device.type != "cuda":
            return 0.0, 0.0
        return torch.cuda.max_memory_reserved(self.device) / MB, -torch.cuda.mem_get_info(self.device)[0] / MB

    # ---- bots and scores -------------------------------------------------------------------------------------
    def bot(self) -> Bot:
        """The network as it stands, or the mean of its weights, as a bot; it shares them."""
        from ..bots.bot import Bot

        data = data_of(self.trainer)
        run = Path(self.trainer.default_root_dir).resolve().name
        network = self.network if self.average is None else self.average
        return Bot.of(network, self.network_part, data.battle, game_steps=data.game_steps, run=run)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse another network's weights with one sentence, instead of a page of shapes.

        ``SelfPlayModule.load_from_checkpoint(path)`` builds the network here. It has the critic too and can be trained
        on with a data module of the same battles; what only has to play is loaded by ``Bot.load(path)``.
        """
        if "optimizer_states" not in checkpoint and self._trainer is not None and self.trainer.training:
            raise UserError(
                "the checkpoint holds weights alone (save_weights_only), so training cannot continue from it; use "
                "checkpoints/last.ckpt of its run, or begin a run with its weights by model.init_from"
            )
        if not self._built:
            from ..bots.bot_files import CHECKPOINT_KEY, BotRecord

            record = BotRecord.from_dict(checkpoint.get(CHECKPOINT_KEY), "the checkpoint")
            self.build(inputs_of(record.spec("the checkpoint")), seed=0)  # whose weights are replaced
        self._unread = None
        self._met = frozenset(checkpoint.get(_MET, ()))
        saved, own = checkpoint["state_dict"], self.state_dict()
        odd = [
            k for k in sorted({*saved, *own})
            if k not in saved or k not in own or saved[k].shape != own[k].shape
        ]
        if odd:
            was = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY, {}).get("network")
            raise UserError(
                f"the checkpoint holds another network than model.network: it was {was}, now it is "
                f"{self.network_part.as_dict()}, and {len(odd)} weights differ, {odd[0]!r} among them; leave "
                "model.network and model.critic as they were"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The bot's record, so that the file plays without its run, and the cards that the network has met."""
        checkpoint[_MET] = sorted(self._met)
        checkpoint["bot"] = self.bot().record.as_dict()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """``test``, ``validate`` and ``predict`` play instead of reading a data set; rank 0 plays for all."""
        self._measure()

    validation_step = test_step

    def predict_step(self, batch: Any, batch_idx: int) -> str:
        """Where the replays are; Lightning warns of a prediction that is None."""
        return self._measure()

    def _measure(self) -> str:
        from ..bots.scores import measure

        if not self.trainer.is_global_zero:
            return ""
        return str(measure(self.bot(), data_of(self.trainer).asked(), checkpoint=str(self.trainer.ckpt_path or "")))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self._check_due:
            self._check_due = False
            self.check_ratio()

    @property
    def ratio_tolerance(self) -> float:
        """How far a ratio may be from 1 before anything was learned from its row."""
        return ratio_tolerance(str(self.trainer.precision), self.compiles)

    def check_ratio(self) -> None:
        """Refuse to learn when the first minibatch's ratios are not 1: the stored rows are not what acted.

        Raises:
            RuntimeError: with the error found and the tolerance of this precision.
        """
        limit = self.ratio_tolerance
        error = float(self._ratio_error) if self._ratio_error is not None else 0.0
        if not error <= limit:
            raise RuntimeError(
                f"the first minibatch's probability ratios are off by {error:.2g} (tolerance {limit:g}): the network "
                "gives other answers in training than in collection; a forward must depend on its row alone"
            )


@torch.no_grad()
def follow_weights(mean: torch.nn.Module, network: torch.nn.Module, decay: float) -> None:
    """``mean = decay * mean + (1 - decay) * network``, weight by weight; buffers are taken over."""
    torch._foreach_lerp_(list(mean.parameters()), list(network.parameters()), 1.0 - decay)
    for old, new in zip(mean.buffers(), network.buffers(), strict=True):
        old.copy_(new)


def _weight(name: str) -> str | None:
    """The count a figure is a mean over: the choice rows, the forced rows, or (None) all rows."""
    if name in ("loss", "value_loss", "value_loss_actor") or "/" in name:
        return None
    return "forced_rows" if name == "value_loss_forced" else "choice_rows"
