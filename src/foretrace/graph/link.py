"""A rank's execution trace joined with its Kineto trace: which event each operator is.

By record-function id where the profiler writes it (PyTorch 2.1 and newer); by `External id`, which
then counts the same calls from another number; else by order of names, thread by thread: the
longest runs that both have in common, then what lies between them. The last cannot tell equal
iterations apart, takes the first that fits, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar

import numpy as np

from foretrace.answer import Answer, Cell, Column, Plain, Table, Told, Unit, count_text, plain
from foretrace.base import Bools, Int32s, Int64s
from foretrace.graph.alignment import aligned_names
from foretrace.trace import Category, ExecutionTrace, Trace

NO_EVENT = -1
_MOST_NAMES = 5  # of names that did not link that are kept
# A join by number counts if this share of it agrees in names: numbers alone prove nothing.
_LEAST_AGREEMENT = 0.9


class LinkMethod(StrEnum):
    """What a join went by."""

    RECORD_FUNCTION = "record function id"
    EXTERNAL = "external id"
    NAMES = "order of names"


@dataclass(frozen=True)
class Link(Plain):
    """One rank's execution trace and the events of its Kineto trace."""

    json_only = (
        *("rank", "execution_trace.path", "execution_trace.schema", "method", "offset"),
        *("num_operators", "num_linked", "coverage", "num_events", "num_data_dependencies"),
        *("num_communications", "unlinked", "is_ambiguous"),
    )
    json_names: ClassVar = {
        "execution_trace.path": "path",
        "execution_trace.schema": "schema",
        "num_operators": "operators",
        "num_linked": "linked",
        "num_events": "events",
        "num_data_dependencies": "data_dependencies",
        "num_communications": "communications",
    }

    rank: int | None
    method: LinkMethod
    offset: int  # External id minus record-function id; 0 of other methods
    execution_trace: ExecutionTrace
    event: Int32s  # int32[nodes of the execution trace], row of the trace; NO_EVENT
    num_operators: int  # nodes that stand for a call: not the process and its threads
    num_events: int  # operators and annotations of the Kineto trace
    unlinked: tuple[str, ...]  # names of most operators that found no event
    is_ambiguous: bool  # equal iterations could not be told apart; the first is taken

    @property
    def num_linked(self) -> int:
        """Operators that found their event."""
        return int(np.count_nonzero(self.event != NO_EVENT))

    @property
    def num_data_dependencies(self) -> int:
        """Pairs of events of which one took a tensor that the other gave."""
        return len(self.data_dependencies()[0])

    @property
    def num_communications(self) -> int:
        """Operators that communicate."""
        return len(self.execution_trace.communication.node)

    @property
    def coverage(self) -> float:
        """Share of operators that found their event."""
        return self.num_linked / self.num_operators if self.num_operators else 0.0

    def schemas(self) -> dict[int, str]:
        """Operator schema by row of the Kineto trace, where it is known."""
        of = self.execution_trace
        nodes = np.flatnonzero((self.event != NO_EVENT) & (of.operator_schema >= 0))
        return {
            int(self.event[node]): of.strings[of.operator_schema[node]] for node in nodes.tolist()
        }

    def data_dependencies(self) -> tuple[Int64s, Int64s]:
        """Rows of the Kineto trace that gave a tensor, and those that took it next.

        Only operators that call no other count: what they call names the same tensors. A tensor
        that is written in place has its last writer for giver.
        """
        giver, taker = tensor_dependencies(self.execution_trace)
        from_event, to_event = self.event[giver], self.event[taker]
        is_known = (from_event != NO_EVENT) & (to_event != NO_EVENT)
        return from_event[is_known].astype(np.int64), to_event[is_known].astype(np.int64)


@dataclass(frozen=True, repr=False)
class Links(Answer):
    """The joins of all ranks that have an execution trace."""

    json_names: ClassVar = {"by_rank": "links"}

    by_rank: tuple[Link, ...]

    @property
    def headline(self) -> str:
        """How many there are, and how much of them is linked."""
        linked = sum(one.num_linked for one in self.by_rank)
        operators = count_text(sum(one.num_operators for one in self.by_rank), "operator")
        traces = count_text(len(self.by_rank), "execution trace")
        return f"{traces}, {linked:,} of {operators} linked"

    def parts(self) -> tuple[Told, ...]:
        """One row per rank."""
        return (
            Table.of(
                "links",
                self.by_rank,
                Column("rank"),
                Column("file", "execution trace", Unit.WORD, "execution_trace.path.name"),
                Column("schema", value="execution_trace.schema"),
                Column("method", "by", value=_method),
                Column("num_operators"),
                Column("coverage", "linked", Unit.SHARE),
                title="execution traces",
            ),
        )

    def tables(self) -> tuple[Table, ...]:
        """The same with all that is known of a join."""
        names = [one for one in Link.json_only if one != "unlinked"]
        keys = (Column(Link.json_names.get(one, one), value=_attribute(one)) for one in names)
        return (Table.of("links", self.by_rank, *keys),)


def _method(link: Link) -> str:
    return link.method.value + (" (first that fits)" if link.is_ambiguous else "")


def _attribute(name: str) -> Callable[[Link], Cell]:
    return lambda link: plain(attrgetter(name)(link))


def link(trace: Trace, execution_trace: ExecutionTrace) -> Link:
    """The join of one rank's two traces."""
    is_call = execution_trace.record_function > 0
    events = np.flatnonzero(np.isin(trace.category, (Category.OPERATOR, Category.ANNOTATION)))
    nodes = np.flatnonzero(is_call)
    name_of_node = _common_names(trace, execution_trace)[execution_trace.name[nodes]]
    name_of_event = trace.name[events]
    method, offset, is_ambiguous = LinkMethod.RECORD_FUNCTION, 0, False
    found = _by_number(
        execution_trace.record_function[nodes], trace.record_function[events],
        name_of_node, name_of_event,
    )  # fmt: skip
    if found is None:
        method = LinkMethod.EXTERNAL
        offset = _offset(execution_trace.record_function[nodes], trace.external[events],
                         name_of_node, name_of_event)  # fmt: skip
        found = _by_number(
            execution_trace.record_function[nodes] + offset, trace.external[events],
            name_of_node, name_of_event,
        )  # fmt: skip
    if found is None:
        method, offset = LinkMethod.NAMES, 0
        found, is_ambiguous = _by_names(
            execution_trace.thread[nodes], trace.lane[events], name_of_node, name_of_event,
            execution_trace.record_function[nodes],
        )  # fmt: skip
    event = np.full(execution_trace.num_nodes, NO_EVENT, np.int32)
    is_found = found >= 0
    event[nodes[is_found]] = events[found[is_found]]
    missing = Counter(
        execution_trace.strings[name] for name in execution_trace.name[nodes[~is_found]].tolist()
    )
    return Link(
        rank=trace.meta.rank,
        method=method,
        offset=offset,
        execution_trace=execution_trace,
        event=event,
        num_operators=len(nodes),
        num_events=len(events),
        unlinked=tuple(name for name, _ in missing.most_common(_MOST_NAMES)),
        is_ambiguous=is_ambiguous,
    )


def _common_names(trace: Trace, execution_trace: ExecutionTrace) -> Int64s:
    """Position among the Kineto trace's strings of each of the other's; -1 where it has none."""
    place = {text: at for at, text in enumerate(trace.strings)}
    return np.array([place.get(text, -1) for text in execution_trace.strings] or [-1], np.int64)


def _by_number(
    wanted: Int64s, stated: Int64s, name_of_node: Int64s, name_of_event: Int32s
) -> Int64s | None:
    """For each node the event of its number and name; None if numbers do not join them."""
    found = np.full(len(wanted), -1, np.int64)
    has_number = np.flatnonzero(stated > 0)
    if not len(has_number) or not len(wanted):
        return None
    order = has_number[np.argsort(stated[has_number], kind="stable")]
    numbers = stated[order]
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    is_same: Bools = numbers[at] == wanted
    agrees = is_same & (name_of_event[order[at]] == name_of_node)
    # The profiler may see more than the observer or less, but not something else.
    if not is_same.any() or agrees.sum() < _LEAST_AGREEMENT * is_same.sum():
        return None
    found[agrees] = order[at[agrees]]
    return found


def _offset(record: Int64s, external: Int64s, name_of_node: Int64s, name_of_event: Int32s) -> int:
    """The difference between both numbers that most calls with a rare name have."""
    count = Counter(name_of_node.tolist())
    rare = sorted((times, name) for name, times in count.items() if name >= 0)
    votes: Counter[int] = Counter()
    for _, name in rare[:50]:
        mine = record[name_of_node == name]
        others = external[name_of_event == name]
        if len(mine) * len(others) > 10_000:  # noqa: PLR2004  names this common decide nothing
            continue
        votes.update((others[:, None] - mine[None, :]).ravel().tolist())
    return votes.most_common(1)[0][0] if votes else 0


def _by_names(
    thread: Int64s, lane: Int32s, name_of_node: Int64s, name_of_event: Int32s, record: Int64s
) -> tuple[Int64s, bool]:
    """For each node an event of its name, in order; whether another would fit as well."""
    found = np.full(len(thread), -1, np.int64)
    is_ambiguous = False
    free = np.ones(len(lane), np.bool_)
    threads, sizes = np.unique(thread, return_counts=True)
    for one in threads[np.argsort(-sizes, kind="stable")].tolist():
        nodes = np.flatnonzero(thread == one)
        nodes = nodes[np.argsort(record[nodes], kind="stable")]
        best: tuple[int, Int64s, Int64s, bool] | None = None
        for other in np.unique(lane).tolist():
            events = np.flatnonzero((lane == other) & free)
            at, is_tied = aligned_names(name_of_node[nodes], name_of_event[events])
            count = int((at >= 0).sum())
            if best is None or count > best[0]:
                best = count, at, events, is_tied
        if best is None:
            continue
        _, at, events, is_tied = best
        is_found = at >= 0
        found[nodes[is_found]] = events[at[is_found]]
        free[events[at[is_found]]] = False
        is_ambiguous |= is_tied
    return found, is_ambiguous


def tensor_dependencies(trace: ExecutionTrace) -> tuple[Int64s, Int64s]:
    """Nodes that gave a tensor and nodes that took it next, each pair once, by taker."""
    has_callee = np.zeros(trace.num_nodes, np.bool_)
    has_callee[trace.parent[trace.parent >= 0]] = True
    is_call = trace.record_function > 0
    is_leaf = is_call & ~_has_operator_below(trace, has_callee)
    tensors = trace.tensors
    giver: dict[tuple[int, str], int] = {}
    pairs: dict[tuple[int, int], None] = {}
    device = tensors.device.tolist()
    for node, is_output, tensor, kind in zip(
        tensors.node.tolist(), tensors.is_output.tolist(), tensors.tensor.tolist(), device,
        strict=True,
    ):  # fmt: skip
        if not is_leaf[node]:
            continue
        key = (tensor, trace.strings[kind] if kind >= 0 else "")
        if is_output:
            giver[key] = node
        elif key in giver and giver[key] != node:
            pairs[giver[key], node] = None
    listed = np.array(list(pairs), np.int64).reshape(-1, 2)
    return listed[:, 0], listed[:, 1]


def _has_operator_below(trace: ExecutionTrace, has_callee: Bools) -> Bools:
    """Nodes whose callees name tensors themselves; those that name none leave it to the caller."""
    names_tensors = np.zeros(trace.num_nodes, np.bool_)
    names_tensors[trace.tensors.node] = True
    below = np.zeros(trace.num_nodes, np.bool_)
    for row in np.flatnonzero(names_tensors & (trace.parent >= 0))[::-1].tolist():
        below[trace.parent[row]] = True
    return below & has_callee


def links_of(pairs: Sequence[tuple[Trace, ExecutionTrace]]) -> Links:
    """The joins of all these pairs, by rank."""
    found = [link(trace, other) for trace, other in pairs]
    return Links(tuple(sorted(found, key=lambda one: -1 if one.rank is None else one.rank)))
