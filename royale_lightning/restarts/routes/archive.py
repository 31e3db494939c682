"""The archive of best routes: a few a group, displaced by strictly better ones alone.

Buckets turn over with every episode; what the curriculum walks for hours must not be lost to that, so it is held apart.
"""

from __future__ import annotations

from ..records.route import Priority


class Archive:
    """Route numbers with their priorities, at most ``capacity`` a group.

    Args:
        capacity: routes a group keeps; 0 archives nothing.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._groups: dict[str, dict[int, Priority]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __contains__(self, route_id: int) -> bool:
        return any(route_id in g for g in self._groups.values())

    def offer(self, route_id: int, group: str, priority: Priority) -> tuple[bool, int | None]:
        """Whether the route is admitted, and which route it displaces. Ties keep the incumbent."""
        held = self._groups.setdefault(group, {})
        if self.capacity == 0 or route_id in held:
            return False, None
        if len(held) < self.capacity:
            held[route_id] = priority
            return True, None
        # Of equal worst ones the newest goes: it has been proved for the shortest time.
        worst = min(held, key=lambda i: (held[i], -i))
        if priority <= held[worst]:
            return False, None
        del held[worst]
        held[route_id] = priority
        return True, worst

    def remove(self, route_id: int) -> bool:
        """Take a route out; whether it was in."""
        return any(group.pop(route_id, None) is not None for group in self._groups.values())

    @property
    def ids(self) -> list[int]:
        """Ascending."""
        return sorted(i for g in self._groups.values() for i in g)

    @property
    def priorities(self) -> dict[int, Priority]:
        """By route number, ascending."""
        return dict(sorted((i, p) for g in self._groups.values() for i, p in g.items()))

    @property
    def best(self) -> int | None:
        """Of the highest priority, the oldest of equals."""
        ranked = self.priorities
        return min(ranked, key=lambda i: (tuple(-x for x in ranked[i]), i)) if ranked else None
