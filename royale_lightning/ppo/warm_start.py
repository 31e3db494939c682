"""Beginning a run with another bot's actor, and what a network does with cards it has not met."""

from __future__ import annotations

from collections.abc import Collection

from ..battle.engine.engine import shared_engine
from ..battle.kin import kin, type_kin
from ..bots.bot import fill
from ..bots.bot_files import read_bot
from ..errors import UserError
from ..nn.protocol import ActorCritic, Inputs


def load_actor(network: ActorCritic, path: str, inputs: Inputs) -> frozenset[int]:
    """Give ``network`` the actor of a bot; what is the critic's alone stays as it is.

    Args:
        path: a bot folder, snapshot, checkpoint or run folder.

    Returns:
        Catalogue ids of the cards that the bot's battles could hold.

    Raises:
        UserError: it cannot be read, or is of another network or observation.
    """
    record, weights, file = read_bot(path)
    if record.row_layout != inputs.layout.digest:
        raise UserError(
            f"model.init_from: {str(file)!r} reads observation rows of layout {record.row_layout} and this run makes "
            f"{inputs.layout.digest} ({inputs.layout.name}); begin with a bot of the same battle.observation"
        )
    fill(network, weights, f"model.init_from: {str(file)!r}")
    return record.spec(f"model.init_from: {str(file)!r}").cards()


def introduce(network: ActorCritic, new: Collection[int], known: Collection[int]) -> None:
    """Begin cards, and the units they make, as the most similar ones that the network knows (:mod:`..battle.kin`).

    Args:
        new: catalogue ids.
        known: the same, at least one.
    """
    cards = list(shared_engine().cards())
    likes = {card: like for card, like in kin(cards, known).items() if card in new}
    network.introduce(likes, type_kin([str(t) for t in shared_engine().unit_types() or ()], cards, likes))
