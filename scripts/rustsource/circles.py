"""Circles in a graph of arrows, and the arrows whose end would open them."""
from collections.abc import Hashable, Iterable, Mapping


def circles(graph: Mapping[Hashable, Iterable[Hashable]]) -> list[list[Hashable]]:
    """Every set of two or more nodes that all reach each other, largest first (Tarjan's algorithm, without recursion)."""
    order: dict[Hashable, int] = {}
    low: dict[Hashable, int] = {}
    stack: list[Hashable] = []
    on_stack: set[Hashable] = set()
    found = []
    for start in sorted(graph):
        if start in order:
            continue
        work = [(start, iter(sorted(graph.get(start, ()))))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in order:
                    order[to] = low[to] = len(order)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(sorted(graph.get(to, ())))))
                    break
                if to in on_stack:
                    low[node] = min(low[node], order[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    group = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(group)
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found, key=lambda group: (-len(group), group))


def cuts(group: Iterable[Hashable], graph: Mapping[Hashable, Mapping[Hashable, Iterable]]) -> list[tuple[Hashable, Hashable]]:
    """A few arrows without which `group` is no circle: always the one that leaves least, of these the one with fewest names."""
    members = set(group)
    left = {node: {to: names for to, names in graph.get(node, {}).items() if to in members} for node in members}
    cut = []
    while circles(left):
        best = None
        for node in sorted(left):
            for to in sorted(left[node]):
                names = left[node].pop(to)
                rest = circles(left)
                left[node][to] = names
                # Twice an inner circle is worse than one of half the size: arrows to look at, not files.
                weight = (sum(len(circle) ** 2 for circle in rest), len(list(names)), node, to)
                if best is None or weight < best:
                    best = weight
        _, _, node, to = best
        del left[node][to]
        cut.append((node, to))
    return cut
