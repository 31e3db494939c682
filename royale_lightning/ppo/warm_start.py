"""Beginning a run with another bot's actor."""

from __future__ import annotations

from ..bots.bot import fill
from ..bots.bot_files import read_bot
from ..errors import UserError
from ..nn.protocol import ActorCritic, Inputs


def load_actor(network: ActorCritic, path: str, inputs: Inputs) -> None:
    """Give ``network`` the actor of a bot; what is the critic's alone stays as it is.

    Args:
        path: a bot folder, snapshot, checkpoint or run folder.

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
