"""What every collective of an edited job takes: other bytes, other ranks, another network.

A collective like a recorded one takes what that took, times what a model says of the difference.
One that nobody recorded takes what a model says, times how far the model was off for those
recorded on groups of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import (
    CollectiveKind,
    Float64s,
    Int64s,
    MachineError,
    ScenarioError,
    number_format,
)
from foretrace.cost import (
    CollectiveRequests,
    CostModel,
    MeasuredTransfer,
    RecordedCosts,
    Source,
    TransferLines,
    collective_named,
    fitted_transfers,
)
from foretrace.graph import NO_COLLECTIVE, Collective, ExecutionGraph, NodeKind, Part
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, Program
from foretrace.whatif.resize.models import Models
from foretrace.whatif.resize.named import HIDDEN, OWN_TOKENS, TOKENS, Dimensions
from foretrace.whatif.resize.parameters import Amounts
from foretrace.workload import Group, Plan, groups_of

_SEARCHED = (Group.TENSOR, Group.CONTEXT, Group.EXPERT, Group.DATA, Group.ALL)
_OF_PARAMETERS = (Group.DATA, Group.SHARD, Group.REPLICA, Group.EXPERT_DATA, Group.EMBEDDING)
_FEW_ELEMENTS = 8  # a norm, a flag, a loss: of no tensor's size
# Of collectives of unknown sizes: what the largest and the smallest in training have.
_LARGE_BYTES, _TINY_BYTES = 1 << 30, 8

_Answer = tuple[float, float, float] | None  # duration and both ends, in ns


@dataclass(frozen=True)
class Exchanged:
    """Costs of collectives; one row for each of an arranged graph's."""

    ratio: Float64s  # over what was recorded; 1 for those made
    made_ns: Float64s  # of those made; 0 for recorded ones
    low: Float64s  # end of the interval over the duration
    high: Float64s
    source: Int64s  # Source
    num_bytes: Int64s  # after the edit
    group: tuple[str, ...]  # Group, or "" of none


@dataclass(frozen=True)
class SizedCollective:
    """One collective before or after the edit."""

    name: str
    num_bytes: int
    dtype: str
    ranks: tuple[int, ...]
    group: str


def exchanged(
    program: Program, arranged: Arranged, plan: Plan, *, models: Models, sizes: Sizing
) -> Exchanged:
    """What each collective of the arranged graph takes, over what was recorded.

    Raises:
        ScenarioError: if nothing that was recorded or stated tells what one takes.
    """
    graph = arranged.graph
    size = len(graph.collectives)
    found = Exchanged(
        ratio=np.ones(size),
        made_ns=np.zeros(size),
        low=np.ones(size),
        high=np.ones(size),
        source=np.full(size, Source.MEASURED, np.int64),
        num_bytes=np.array(graph.collectives.each(lambda one: one.num_bytes), np.int64),
        group=tuple(_groups(program, arranged, plan)),
    )
    factors = _byte_factors(program, sizes)
    source = arranged.source_collective
    is_made = source == NO_COLLECTIVE
    known = ~is_made & (found.num_bytes > 0)
    found.num_bytes[known] = np.rint(found.num_bytes[known] * factors[source[known]])
    pairs: list[tuple[int, SizedCollective | None, SizedCollective]] = []
    for at, one in enumerate(graph.collectives):
        group = found.group[at]
        after = SizedCollective(one.name, int(found.num_bytes[at]), one.dtype, one.ranks, group)
        if is_made[at]:
            pairs.append((at, None, after))
            continue
        old = program.graph.collectives[int(source[at])]
        before = SizedCollective(old.name, old.num_bytes, old.dtype, old.ranks, group)
        if _is_other(before, after, models):
            pairs.append((at, before, after))
    if pairs:
        _cost(found, pairs, program, models)
    return found


def _is_other(before: SizedCollective, after: SizedCollective, models: Models) -> bool:
    if max(len(before.ranks), len(after.ranks)) < 2:  # noqa: PLR2004  whoever else met is unknown
        return False
    if models.is_other_network or before.num_bytes != after.num_bytes:
        return True
    if models.is_of_recording:
        return len(before.ranks) != len(after.ranks)
    return before.ranks != after.ranks


def _groups(program: Program, arranged: Arranged, plan: Plan) -> list[str]:
    """Kind of group of every collective: the recorded one's, else by its ranks."""
    by_ranks: dict[tuple[int, ...], str] = {}
    for group in reversed(_SEARCHED):
        rows = np.sort(groups_of(plan, group), axis=1)
        if rows.shape[1] > 1:
            by_ranks.update({tuple(row): group.value for row in rows.tolist()})
    found = []
    pairs = zip(arranged.graph.collectives, arranged.source_collective.tolist(), strict=True)
    for one, source in pairs:
        if source == NO_COLLECTIVE:
            pair = Group.PIPELINE.value if len(one.ranks) <= 2 else ""  # noqa: PLR2004
            is_pair = one.is_transfer
            found.append(pair if is_pair and pair else by_ranks.get(tuple(sorted(one.ranks)), pair))
            continue
        at = int(program.group_of_collective[source])
        found.append("" if at == NO_GROUP else GROUPS[at].value)
    return found


@dataclass(frozen=True)
class Sizing:
    """What a collective's bytes follow."""

    known: Dimensions
    amounts: Amounts


def _byte_factors(program: Program, sizes: Sizing) -> Float64s:
    """New bytes over recorded ones, by what is exchanged, float64[recorded collectives]."""
    graph = program.graph
    factors = np.ones(len(graph.collectives))
    if sizes.known.is_unchanged:
        return factors
    part, rank, layer = _first_finish(graph)
    for at, one in enumerate(graph.collectives):
        group = int(program.group_of_collective[at])
        width = width_of(one.dtype)
        count = one.num_bytes // width if width else 0
        if one.num_bytes <= 0 or (width and count <= _FEW_ELEMENTS):
            continue
        is_of_parameters = group != NO_GROUP and GROUPS[group] in _OF_PARAMETERS
        if part[at] == Part.BUCKET or (is_of_parameters and part[at] != Part.LAYER):
            factors[at] = _of_parameters(count, sizes.amounts, int(rank[at]), int(layer[at]))
        elif group != NO_GROUP and part[at] not in {Part.OPTIMIZER, Part.DATA}:
            factors[at] = _of_activations(count, one, sizes)
    return factors


def _of_parameters(count: int, amounts: Amounts, rank: int, layer: int) -> float:
    if count and count == amounts.table_size:
        return amounts.table
    return amounts.layer if layer >= 0 else amounts.of_rank.get(rank, 1.0)


def _of_activations(count: int, one: Collective, sizes: Sizing) -> float:
    """By the dimensions whose product it is; of the model's tokens and width, if none fits."""
    named = sizes.known.by_name
    for names in ((TOKENS, HIDDEN), (OWN_TOKENS, HIDDEN), (TOKENS,), (OWN_TOKENS,)):
        if not all(name in named for name in names):
            continue
        before, after = 1.0, 1.0
        for name in names:
            before, after = before * named[name].before, after * float(named[name].after)
        for times in (1, 2, len(one.ranks)):  # two numbers a token; or all ranks' shares
            if count == before * times:
                return after / before
    return sizes.amounts.activations


def _first_finish(graph: ExecutionGraph) -> tuple[Int64s, Int64s, Int64s]:
    """Part, rank and layer of the first member that leaves each collective."""
    nodes = graph.nodes_of(NodeKind.FINISH)[::-1]
    columns = np.zeros((3, len(graph.collectives)), np.int64)
    found = (graph.part[nodes], graph.rank[nodes], graph.layer[nodes])
    columns[:, graph.collective[nodes]] = np.stack([one.astype(np.int64) for one in found])
    return columns[0], columns[1], columns[2]


def width_of(dtype: str) -> int:
    """Bytes of a number; 0 if its format is not known."""
    found = number_format(dtype)
    return found.whole_bytes if found is not None else 0


def _cost(
    into: Exchanged,
    pairs: Sequence[tuple[int, SizedCollective | None, SizedCollective]],
    program: Program,
    models: Models,
) -> None:
    """Ratios and durations by the models. Out: `into`."""
    pairs = _without_unsized(into, pairs, models)
    if not pairs:
        return
    recorded, transfers = program.once(_transfers), program.once(_fitted)
    new = _answers([after for _, _, after in pairs], models.after, transfers)
    olds = [before for _, before, _ in pairs if before is not None]
    old = iter(_answers(olds, models.before, transfers)) if olds else iter(())
    factors = _model_factors(recorded, models, transfers)
    for (at, before, after), answer in zip(pairs, new, strict=True):
        if answer is None:
            raise _untold(after)
        ns, low, high = answer
        into.low[at], into.high[at] = low / max(ns, 1e-9), high / max(ns, 1e-9)
        if before is None:
            factor = factors.get(after.group, 1.0)
            into.made_ns[at] = ns * factor
            into.source[at] = Source.FITTED
            continue
        was = next(old)
        if was is None or was[0] <= 0:
            raise _untold(before)
        into.ratio[at] = ns / was[0]
        is_same = into.ratio[at] == 1.0
        into.source[at] = Source.MEASURED if is_same else Source.SCALED
        if is_same:
            into.low[at] = into.high[at] = 1.0


def _without_unsized(
    into: Exchanged,
    pairs: Sequence[tuple[int, SizedCollective | None, SizedCollective]],
    models: Models,
) -> list[tuple[int, SizedCollective | None, SizedCollective]]:
    """All but recorded collectives whose bytes nobody recorded. Out: `into`, of those."""
    found: dict[tuple[SizedCollective, SizedCollective], tuple[float, float, float]] = {}
    rest = []
    for at, before, after in pairs:
        if before is None or after.num_bytes >= 0:
            rest.append((at, before, after))
            continue
        if (before, after) not in found:
            found[before, after] = _unsized(before, after, models)
        ratio, low, high = found[before, after]
        into.ratio[at], into.low[at], into.high[at] = ratio, low / ratio, high / ratio
        into.source[at] = Source.SCALED
    return rest


def _unsized(
    before: SizedCollective, after: SizedCollective, models: Models
) -> tuple[float, float, float]:
    """New time over recorded, and both ends: of large ones, with none and tiny ones inside.

    Large ones take what every rank's links carry, tiny ones as many turns as there are ranks
    (nccl-tests, doc/PERFORMANCE.md), and sums inside switches take the same among any number.
    """
    if models.is_of_recording:
        ratios = [_traffic(after) / _traffic(before), _turns(after) / _turns(before)]
    else:
        ratios = []
        for num_bytes in (_LARGE_BYTES, _TINY_BYTES):
            old, new = (
                _answers([replace(one, num_bytes=num_bytes)], model, None)[0]
                for one, model in ((before, models.before), (after, models.after))
            )
            if old is None or new is None or old[0] <= 0 or new[0] <= 0:
                raise _untold(after)
            ratios.append(new[0] / old[0])
    return ratios[0], min(1.0, *ratios), max(1.0, *ratios)


def _traffic(one: SizedCollective) -> float:
    """What every rank's links carry one way, of the bytes that it has."""
    known, num_ranks = collective_named(one.name), len(one.ranks)
    if known is None:
        raise _untold(one)
    if known is CollectiveKind.SEND_RECV and num_ranks > 2:  # noqa: PLR2004  all with all, in NCCL
        known = CollectiveKind.ALL_TO_ALL
    return float(known.bus_share(np.array([float(num_ranks)]))[0]) or 1.0


def _turns(one: SizedCollective) -> int:
    return max(len(one.ranks) - 1, 1)


def _untold(asked: SizedCollective) -> ScenarioError:
    if asked.num_bytes <= 0:
        return ScenarioError(
            f"nothing tells what {asked.name} over {len(asked.ranks)} ranks takes: the recording "
            "has no sizes of its collectives. Record with shapes (record_shapes=True), whose "
            "record_param_comms show them."
        )
    return ScenarioError(
        f"nothing tells what {asked.name} of {asked.num_bytes:,} bytes over {len(asked.ranks)} "
        "ranks takes: state the machine, or give costs from a table that `foretrace measure` makes."
    )


def _answers(
    asked: Sequence[SizedCollective], model: CostModel, transfers: TransferLines | None
) -> list[_Answer]:
    """What a model says, else what the recording's own transfers say."""
    if isinstance(model, RecordedCosts):
        alike = [(one.group, one.name, len(one.ranks), one.num_bytes) for one in asked]
        first = dict(zip(reversed(alike), reversed(asked), strict=True))
        answer = {
            each: _by_recording(one, model.transfers or transfers) for each, one in first.items()
        }
        return [answer[each] for each in alike]
    try:
        costs = model.collective_costs(_requests(asked))
    except ValueError as err:  # of places outside the machine
        raise ScenarioError(
            f"{err}: state a machine with as many chips as the edited job has ranks "
            "(a cluster in place of a host)"
        ) from err
    except MachineError as err:
        if len(asked) > 1:  # one that it does not know keeps it from answering for the others
            return [_answers([one], model, transfers)[0] for one in asked]
        found = _by_recording(asked[0], transfers)
        if found is None:
            raise ScenarioError(str(err)) from err
        return [found]
    answers: list[_Answer] = []
    for at, one in enumerate(asked):
        if len(one.ranks) > 1 and costs.source[at] == Source.UNKNOWN:
            answers.append(_by_recording(one, transfers))
        else:
            columns = (costs.duration_ns, costs.low_ns, costs.high_ns)
            duration_ns, low_ns, high_ns = (float(each[at]) for each in columns)
            answers.append((duration_ns, low_ns, high_ns))
    return answers


def _by_recording(one: SizedCollective, transfers: TransferLines | None) -> _Answer:
    if len(one.ranks) < 2:  # noqa: PLR2004
        return 0.0, 0.0, 0.0
    if transfers is None:
        return None
    try:
        return transfers.costs_ns(
            one.group, one.name, num_ranks=len(one.ranks), num_bytes=one.num_bytes
        )
    except MachineError as err:
        raise ScenarioError(str(err)) from err


def _requests(asked: Sequence[SizedCollective]) -> CollectiveRequests:
    names = tuple(dict.fromkeys(one.name for one in asked))
    dtypes = tuple(dict.fromkeys(one.dtype for one in asked))
    groups = tuple(dict.fromkeys(one.ranks for one in asked))
    return CollectiveRequests(
        collective=np.array([names.index(one.name) for one in asked], np.int32),
        num_bytes=np.array([max(one.num_bytes, 0) for one in asked], np.int64),
        dtype=np.array([dtypes.index(one.dtype) for one in asked], np.int32),
        group=np.array([groups.index(one.ranks) for one in asked], np.int32),
        collectives=names,
        dtypes=dtypes,
        groups=groups,
    )


@dataclass(frozen=True)
class _Recorded:
    """A kind of collective as recorded."""

    asked: SizedCollective
    transfer_ns: float  # median


def _transfers(program: Program) -> list[_Recorded]:
    """Median transfer of each kind of collective, group by group."""
    graph = program.graph
    nodes = graph.nodes_of(NodeKind.FINISH)
    by_kind: dict[tuple[str, int, str, int, str], list[Int64s]] = {}
    ranks: dict[tuple[str, int, str, int, str], tuple[int, ...]] = {}
    order = nodes[np.argsort(graph.collective[nodes], kind="stable")]
    of = graph.collective[order]
    first = np.searchsorted(of, np.arange(len(graph.collectives) + 1))
    for at, one in enumerate(graph.collectives):
        members = order[first[at] : first[at + 1]]
        if not len(members) or one.num_bytes < 0 or collective_named(one.name) is None:
            continue
        group = int(program.group_of_collective[at])
        label = "" if group == NO_GROUP else GROUPS[group].value
        key = (one.name, one.num_bytes, one.dtype, len(one.ranks), label)
        by_kind.setdefault(key, []).append(graph.measured_ns[members])
        ranks.setdefault(key, one.ranks)
    return [
        _Recorded(
            SizedCollective(key[0], key[1], key[2], ranks[key], key[4]),
            float(np.median(np.concatenate(found))),
        )
        for key, found in by_kind.items()
    ]


def _fitted(program: Program) -> TransferLines | None:
    measured = [
        MeasuredTransfer(
            one.asked.group,
            one.asked.name,
            len(one.asked.ranks),
            one.asked.num_bytes,
            one.transfer_ns,
        )
        for one in program.once(_transfers)
    ]
    is_any = any(one.transfer_ns > 0 and one.num_ranks > 1 for one in measured)
    return fitted_transfers(measured) if is_any else None


def _model_factors(
    recorded: Sequence[_Recorded],
    models: Models,
    transfers: TransferLines | None,
) -> dict[str, float]:
    """Recorded over modelled, by kind of group: how far a model is off on this job's network.

    Only where nothing about the network changes; the recording's own lines are right by making.
    """
    if models.is_of_recording or models.is_other_network:
        return {}
    kept = [one for one in recorded if one.transfer_ns > 0]
    answers = _answers([one.asked for one in kept], models.after, transfers) if kept else []
    ratios: dict[str, list[float]] = {}
    for one, answer in zip(kept, answers, strict=True):
        if answer is not None and answer[0] > 0:
            ratios.setdefault(one.asked.group, []).append(one.transfer_ns / answer[0])
    return {group: float(np.median(found)) for group, found in ratios.items()}
