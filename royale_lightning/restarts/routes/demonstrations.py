"""Decisions of archived wins, rebuilt through the fair observation of the seat that made them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...battle.prepare import prepare
from ...battle.save_state import SaveStateCodec
from ...battle.spec import BattleSpec
from ...battle.steps.arena import build_games
from ...battle.steps.replay import Replay
from ..records.episodes import record_of
from ..records.route import Reference, Route
from .cuts import cut_slice
from .store import RouteStore


class Decisions(NamedTuple):
    """Choice decisions of one seat, by time.

    Attributes:
        game_step: int64 ``[n]``, of the battle.
        rows: uint8 ``[n, row_bytes]``, what the seat saw.
        action: int64 ``[n]``, what it did.
    """

    game_step: np.ndarray
    rows: np.ndarray
    action: np.ndarray


class RouteDemonstrations:
    """Slices of a store's archived routes, as rows to imitate.

    A route is replayed once, when a slice of it is first asked for; a checkpoint holds no rows.

    Args:
        spec: the battles.
        store: of the archive.
    """

    def __init__(self, spec: BattleSpec, store: RouteStore) -> None:
        self.store = store
        self._row_bytes = prepare(spec).row_layout.row_bytes
        (self._game,), self._codec = build_games(spec, 1), SaveStateCodec(store.stamp)
        self._known: dict[int, Decisions] = {}

    def demonstrations(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray] | None:
        """About ``rows`` decisions of slices of 16 to 48 game steps, evenly over archived routes and their segments.

        Returns:
            Rows uint8 ``[n, row_bytes]`` and actions int64 ``[n]``; None while nothing is archived.
        """
        routes = {i: self.store.repository[i] for i in self.store.archive.ids}
        self._known = {i: d for i, d in self._known.items() if i in routes}
        shown: list[Decisions] = []
        # A slice may hold no choice at all, so tries are counted and not rows alone.
        for _ in range(rows if routes else 0):
            if sum(len(d.action) for d in shown) >= rows:
                break
            route_id = sorted(routes)[int(rng.integers(len(routes)))]
            at = int(rng.integers(len(routes[route_id].segments)))
            found = cut_slice(route_id, routes[route_id], at)
            if found is not None:
                shown.append(self._slice(route_id, routes[route_id], found.reference))
        if not any(len(d.action) for d in shown):
            return None
        return np.concatenate([d.rows for d in shown])[:rows], np.concatenate([d.action for d in shown])[:rows]

    def _slice(self, route_id: int, route: Route, reference: Reference) -> Decisions:
        whole = self._known.get(route_id)
        if whole is None:
            whole = self._known[route_id] = self.decisions(route)
        first, last = route.segments[reference.first].first_step, route.segments[reference.stop - 1].end_step
        i, j = np.searchsorted(whole.game_step, [first, last])
        return Decisions(whole.game_step[i:j], whole.rows[i:j], whole.action[i:j])

    def decisions(self, route: Route) -> Decisions:
        """Every choice of the route's seat.

        Raises:
            ReplayMismatch: the battle went another way.
        """
        steps, rows, actions = [], [], []
        replay = Replay(self._game, self._codec, record_of(route))
        for moment in replay.moments():
            if moment.choice[route.seat]:
                row = np.zeros(self._row_bytes, dtype=np.uint8)
                replay.encode(route.seat, row)
                steps.append(moment.game_step)
                rows.append(row)
                actions.append(moment.action[route.seat])
        stacked = np.stack(rows) if rows else np.zeros((0, self._row_bytes), dtype=np.uint8)
        return Decisions(np.array(steps, dtype=np.int64), stacked, np.array(actions, dtype=np.int64))
