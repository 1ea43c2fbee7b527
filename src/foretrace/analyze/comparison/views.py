"""Labels under which an anatomy's time is added up, one function per view; what changed in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from foretrace.analyze.breakdown import SHOWN_PARTS
from foretrace.analyze.comparison.anatomy import Anatomy, Doing
from foretrace.analyze.comparison.results import NOTHING, Contribution, RankTime, SideShare, View
from foretrace.analyze.critical_path import path_of
from foretrace.analyze.labels import class_labels
from foretrace.analyze.spans import step_spans
from foretrace.base import Int64s, numbered_rows
from foretrace.graph import (
    NO_LAYER,
    NO_MICROBATCH,
    Collective,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    Timeline,
)
from foretrace.operators import kernel_family, parsed_shapes

IDLE = "idle"
SEPARATOR = "\n"  # between a class and a name; no name holds one
OUTSIDE = "time outside operators"  # of a host thread
UNKNOWN = "unknown"  # a name or block that the recording does not tell

WAITING, TRANSFER = "waiting in ", "transfer of "  # before a collective's name
_DOING_TEXT = {Doing.WAIT: WAITING, Doing.TRANSFER: TRANSFER}


@dataclass(frozen=True)
class RowLabels:
    """One label per row."""

    texts: tuple[str, ...]
    label: Int64s  # int64[rows], position in `texts`


Tally: TypeAlias = dict[str, SideShare]
Labelling: TypeAlias = Callable[[Anatomy], RowLabels]


def tally(parts: Anatomy, labels: RowLabels, *, rank: int | None = None) -> Tally:
    """Mean share of each label, with idle as one; the shares sum to the mean window exactly.

    The mean is over the windows and, unless one is asked for, over the ranks.
    """
    size, chosen = len(labels.texts), slice(None) if rank is None else parts.rank == rank
    own_ns, busy_ns, calls = (np.zeros(size, np.int64) for _ in range(3))
    label = labels.label[chosen]
    np.add.at(own_ns, label, parts.own_ns[chosen])
    np.add.at(busy_ns, label, parts.busy_ns[chosen])
    np.add.at(calls, label, parts.is_counted[chosen])
    num_ranks = len(parts.graph.ranks) if rank is None else 1
    count, whole_ns = parts.num_windows * num_ranks, parts.window_ns * num_ranks
    totals = {text: int(own_ns[at]) for at, text in enumerate(labels.texts)}
    totals[IDLE] = whole_ns - sum(totals.values())
    means = apportioned(totals, count, whole_ns // count)
    shares = {
        text: SideShare(means[text], round(int(busy_ns[at]) / count), int(calls[at]) / count)
        for at, text in enumerate(labels.texts)
    }
    return shares | {IDLE: SideShare(means[IDLE], means[IDLE], 0.0)}


def path_tally(timeline: Timeline, step_names: Sequence[str]) -> Tally:
    """Mean time on the critical path of these steps by class; it sums to their mean exactly."""
    classes = class_labels(timeline.graph)
    time_ns: dict[str, int] = {}
    pieces: dict[str, int] = {}
    whole_ns = 0
    for span in step_spans(timeline, frozenset(step_names)):
        path = path_of(timeline, span)
        whole_ns += path.step_ns
        for label, length_ns in zip(path.labels(classes), path.duration_ns.tolist(), strict=True):
            time_ns[label] = time_ns.get(label, 0) + length_ns
            pieces[label] = pieces.get(label, 0) + 1
    count = len(step_names)
    means = apportioned(time_ns, count, whole_ns // count)
    return {
        label: SideShare(mean_ns, mean_ns, pieces[label] / count)
        for label, mean_ns in means.items()
    }


def component_tally(parts: Anatomy) -> Tally:
    """The parts of a breakdown, of the job's step, named as in `SHOWN_PARTS`."""
    compute_ns = int(parts.own_ns[parts.doing == Doing.COMPUTE].sum())
    overlapped_ns = sum(parts.overlapped_by_rank_ns.values())
    whole_ns = parts.window_ns * len(parts.graph.ranks)
    waiting_ns = int(parts.own_ns[parts.doing == Doing.WAIT].sum())
    totals = dict.fromkeys(SHOWN_PARTS, 0) | {
        "exposed_compute": compute_ns - overlapped_ns,
        "overlapped": overlapped_ns,
        "waiting_for_ranks": waiting_ns,
        "exposed_transfer": int(parts.own_ns.sum()) - compute_ns - waiting_ns,
        "idle": whole_ns - int(parts.own_ns.sum()),
    }
    means = apportioned(totals, parts.num_rank_steps, whole_ns // parts.num_rank_steps)
    return {name: SideShare(mean_ns, mean_ns, 0.0) for name, mean_ns in means.items()}


def rank_time(parts: Anatomy, rank: int) -> RankTime:
    """One rank's mean step in parts that sum to the job's step exactly."""
    of_rank = parts.rank == rank
    totals = {
        doing.name: int(parts.own_ns[of_rank & (parts.doing == doing)].sum()) for doing in Doing
    }
    totals[IDLE] = parts.window_ns - sum(totals.values())
    means = apportioned(totals, parts.num_windows, parts.window_ns // parts.num_windows)
    return RankTime(
        compute_ns=means[Doing.COMPUTE.name],
        transfer_ns=means[Doing.TRANSFER.name],
        wait_ns=means[Doing.WAIT.name],
        idle_ns=means[IDLE],
    )


def apportioned(totals: dict[str, int], count: int, whole: int) -> dict[str, int]:
    """Each total divided by `count`, rounded so that they sum to `whole` exactly.

    Rounded down, and what is missing goes, one each, to the largest remainders; ties in order.
    """
    parts = {text: total // count for text, total in totals.items()}
    by_remainder = sorted(totals, key=lambda text: -(totals[text] % count))
    for text in by_remainder[: whole - sum(parts.values())]:
        parts[text] += 1
    return parts


def host_tally(
    timeline: Timeline, *, begin_ns: Int64s, end_ns: Int64s, rank: int | None = None
) -> Tally:
    """Mean time of host threads per step and rank, or of one rank, by the operator at work."""
    graph = timeline.graph
    nodes = np.flatnonzero(graph.is_host)
    if rank is not None:
        nodes = nodes[graph.rank[nodes] == rank]
    window = np.searchsorted(begin_ns, timeline.start_ns[nodes], side="right") - 1
    inside = (window >= 0) & (timeline.start_ns[nodes] < end_ns[np.maximum(window, 0)])
    nodes = nodes[inside & (timeline.end_ns[nodes] > timeline.start_ns[nodes])]
    is_own = (graph.operator[nodes] < 0) & (graph.kind[nodes] == NodeKind.HOST_SEGMENT)
    name = np.where(graph.operator[nodes] >= 0, graph.operator[nodes], graph.name[nodes])
    labels = _texts([is_own, name], lambda row: OUTSIDE if row[0] else _name(graph, row[1]))
    length_ns = timeline.duration_ns[nodes]
    count = len(begin_ns) * (len(graph.ranks) if rank is None else 1)
    total_ns, calls = (np.zeros(len(labels.texts), np.int64) for _ in range(2))
    np.add.at(total_ns, labels.label, length_ns)
    np.add.at(calls, labels.label, 1)
    return {
        text: SideShare(
            round(int(total_ns[at]) / count), round(int(total_ns[at]) / count), n / count
        )
        for at, (text, n) in enumerate(zip(labels.texts, calls.tolist(), strict=True))
    }


def by_class(parts: Anatomy) -> RowLabels:
    """Operator class, or collective and what it does."""
    of_node = class_labels(parts.graph)
    return _labelled(parts, [of_node.label], lambda row: of_node.labels[row[0]])


def by_class_and_name(parts: Anatomy) -> RowLabels:
    """Class, SEPARATOR, and within the class the kernel, or the collective by kind and size."""
    graph, of_node = parts.graph, class_labels(parts.graph)
    return _labelled(
        parts,
        [of_node.label, graph.name],
        lambda row: f"{of_node.labels[row[0]]}{SEPARATOR}{_name(graph, row[1])}",
        called=lambda one: f"{one.name}{SEPARATOR}{collective_text(one, with_group=False)}",
    )


def by_family(parts: Anatomy) -> RowLabels:
    """Kernel family, or collective and what it does."""
    graph = parts.graph
    return _labelled(
        parts,
        [graph.name, graph.operator],
        lambda row: kernel_family(
            _name(graph, row[0]), _name(graph, row[1]) if row[1] >= 0 else ""
        ),
    )


def by_kernel(parts: Anatomy) -> RowLabels:
    """Name of the kernel, copy or operator, or collective and what it does."""
    return _labelled(parts, [parts.graph.name], lambda row: _name(parts.graph, row[0]))


def by_operator(parts: Anatomy) -> RowLabels:
    """Framework operator and its shapes, or collective and what it does."""
    graph = parts.graph

    def text(row: Sequence[int]) -> str:
        shapes = shapes_text(_name(graph, row[1])) if row[1] >= 0 else ""
        return f"{_name(graph, row[0])} {shapes}".strip()

    return _labelled(parts, [graph.operator, graph.operator_signature], text)


def by_block(parts: Anatomy) -> RowLabels:
    """Part, layer, phase and microbatch: `layer 3 backward, microbatch 1`."""
    graph, node = parts.graph, parts.node
    columns = [column[node] for column in (graph.part, graph.phase, graph.layer, graph.microbatch)]
    return _texts(columns, lambda row: block_text(*row))


def by_phase(parts: Anatomy) -> RowLabels:
    """Phase of the step."""
    return _texts([parts.graph.phase[parts.node]], lambda row: Phase(row[0]).name.lower())


def by_collective(parts: Anatomy, *, with_group: bool) -> RowLabels:
    """Kind, size and group of collectives, their waits and transfers; compute as one."""
    return _labelled(
        parts,
        [],
        lambda _: "compute",
        called=lambda one: collective_text(one, with_group=with_group),
    )


def block_text(part: int, phase: int, layer: int, microbatch: int) -> str:
    """A block in words; what is not known is left out."""
    words = [Part(part).name.lower() if part != Part.UNKNOWN else "part unknown"]
    if layer != NO_LAYER:
        words.append(str(layer))
    if phase != Phase.UNKNOWN:
        words.append(Phase(phase).name.lower())
    return " ".join(words) + (f", microbatch {microbatch}" if microbatch != NO_MICROBATCH else "")


def collective_text(collective: Collective, *, with_group: bool) -> str:
    """`allreduce 64.0 MB of 8`, and of which group."""
    size = f" {collective.num_bytes / 1e6:,.3g} MB" if collective.num_bytes >= 0 else ""
    group = f" in {collective.group}" if with_group else ""
    return f"{collective.name}{size} of {len(collective.ranks)}{group}"


def shapes_text(signature: str) -> str:
    """Shapes of the inputs: `8192x2048, 2048x4096`; those of a list of tensors in brackets."""
    parsed = parsed_shapes(signature)
    if parsed is None:
        return ""
    groups = [one if isinstance(one, tuple) else (one,) for one in parsed.inputs if one]
    texts = [", ".join("x".join(map(str, one.shape)) for one in group) for group in groups]
    return ", ".join(
        f"[{text}]" if len(group) > 1 else text
        for group, text in zip(groups, texts, strict=True)
        if text.strip(", ")
    )


def _with_doing(doing: int, name: str) -> str:
    return name if doing == Doing.COMPUTE else f"{_DOING_TEXT[Doing(doing)]}{name}"


def _labelled(
    parts: Anatomy,
    columns: Sequence[NDArray[np.integer]],
    text_of: Callable[[Sequence[int]], str],
    *,
    called: Callable[[Collective], str] = lambda one: one.name,
) -> RowLabels:
    """Compute by columns of its nodes, collectives by what they are called and what they do."""
    kinds: dict[str, int] = {}
    kind = parts.graph.collectives.each(lambda one: kinds.setdefault(called(one), len(kinds)))
    texts = tuple(kinds)
    talks = np.flatnonzero(parts.doing != Doing.COMPUTE)
    of_row = np.full(len(parts.node), -1, np.int64)
    of_row[talks] = np.array(kind, np.int64)[parts.graph.collective[parts.node[talks]]]
    chosen = [np.where(of_row < 0, column[parts.node], 0) for column in columns]
    return _texts(
        [parts.doing, of_row, *chosen],
        lambda row: text_of(row[2:]) if row[1] < 0 else _with_doing(row[0], texts[row[1]]),
    )


def _name(graph: ExecutionGraph, position: int) -> str:
    return graph.names[position] if position >= 0 else UNKNOWN


def _texts(
    columns: Sequence[NDArray[np.generic]], text_of: Callable[[Sequence[int]], str]
) -> RowLabels:
    """Each row's text, made once per different row of the columns."""
    row = numbered_rows(columns)
    first = np.unique(row, return_index=True)[1]
    position: dict[str, int] = {}
    of_row = [
        position.setdefault(text_of([int(column[at]) for column in columns]), len(position))
        for at in first.tolist()
    ]
    return RowLabels(tuple(position), np.array(of_row, np.int64)[row])


def view_of(name: str, before: Tally, after: Tally, *, is_whole: bool) -> View:
    """Both sides matched by label; what takes no time on either side is left out."""
    rows = [
        contribution(label, before.get(label, NOTHING), after.get(label, NOTHING))
        for label in dict.fromkeys((*before, *after))
    ]
    kept = [row for row in rows if row.before != NOTHING or row.after != NOTHING]
    kept.sort(key=lambda row: (-abs(row.difference_ns), -row.before.step_ns, row.label))
    return View(name, tuple(kept), is_whole)


def contribution(label: str, before: SideShare, after: SideShare) -> Contribution:
    """One label's difference, split into three effects that sum to it exactly.

    The share of the step is a product: calls x time per call x part of that time which is the
    label's alone. The effect of a factor is the logarithm of its ratio, times the logarithmic
    mean of both shares; a factor that is nothing on one side alone has the whole effect. So no
    order of the factors is preferred, and exchanging the sides changes the signs alone.

    Source:
        Ang, "The LMDI approach to decomposition analysis: a practical guide", Energy Policy
        33(7), 2005.
    """
    difference_ns = after.step_ns - before.step_ns
    effects_ns = [0, 0, 0]
    ratios = list(zip(_factors(before), _factors(after), strict=True))
    from_nothing = [at for at, (one, other) in enumerate(ratios) if one <= 0 or other <= 0]
    if from_nothing or not difference_ns:
        effects_ns[from_nothing[0] if from_nothing else 0] = difference_ns
    else:
        mean_ns = _logarithmic_mean(before.step_ns, after.step_ns)
        effects_ns = [round(mean_ns * log(other / one)) for one, other in ratios]
        largest = max(range(3), key=lambda at: abs(effects_ns[at]))
        effects_ns[largest] += difference_ns - sum(effects_ns)
    return Contribution(label, before, after, *effects_ns)


def _factors(share: SideShare) -> tuple[float, float, float]:
    """Calls, time per call, and the part of it that is the label's alone.

    What has a share without calls (idle, or what began outside the steps) counts as all alone.
    """
    if not share.count:
        return (0.0, 0.0, 0.0) if not share.step_ns else (1.0, 1.0, float(share.step_ns))
    busy_ns = share.busy_ns
    return share.count, busy_ns / share.count, share.step_ns / busy_ns if busy_ns else 0.0


def _logarithmic_mean(one: int, other: int) -> float:
    return float(one) if one == other else (other - one) / log(other / one)
