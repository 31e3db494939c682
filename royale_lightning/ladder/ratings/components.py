"""Parts of a graph within which everybody reaches everybody."""

from __future__ import annotations

import numpy as np


def strong_components(size: int, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Label of each node's strongly connected component (Tarjan 1972), in time linear in nodes and arrows.

    With an arrow in both directions for each edge these are the connected parts of an undirected graph.

    Args:
        size: how many nodes.
        source, target: int ``[arrows]``.

    Returns:
        int64 ``[size]``; components are numbered from 0.
    """
    beyond: list[list[int]] = [[] for _ in range(size)]
    for i, j in zip(source.tolist(), target.tolist(), strict=True):
        beyond[i].append(j)
    label = np.full(size, -1, dtype=np.int64)
    found, least = [-1] * size, [0] * size
    open_: list[int] = []
    components = 0
    visited = 0
    for root in range(size):
        if found[root] >= 0:
            continue
        # A stack of our own: a chain of a thousand snapshots is deeper than Python recurses.
        path = [(root, iter(beyond[root]))]
        found[root] = least[root] = visited
        visited += 1
        open_.append(root)
        while path:
            node, rest = path[-1]
            step = next(rest, None)
            if step is None:
                path.pop()
                if path:
                    least[path[-1][0]] = min(least[path[-1][0]], least[node])
                if least[node] == found[node]:
                    while True:
                        member = open_.pop()
                        label[member] = components
                        if member == node:
                            break
                    components += 1
            elif found[step] < 0:
                found[step] = least[step] = visited
                visited += 1
                open_.append(step)
                path.append((step, iter(beyond[step])))
            elif label[step] < 0:
                least[node] = min(least[node], found[step])
    return label
