"""`collective_costs`: durations of collectives on a machine, by constants fitted to measurements.

Inside one scale-up domain the chip's own constants answer, or those of its nearest relative;
beyond it those of its network, or of the one network that was measured at scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import (
    CollectiveKind,
    Dispatched,
    Float64s,
    Int64s,
    MachineError,
    channels_of,
)
from foretrace.cost.constants import Constants, Fit, Spread, collectives_for
from foretrace.cost.model import CollectiveRequests, Costs, Source
from foretrace.cost.network.dispatching import dispatched_ns
from foretrace.cost.network.domain import DIRECT, collective_named, domain_ns
from foretrace.cost.network.errors import BELOW, FROM, SHORT_BYTES
from foretrace.cost.network.network import network_key
from foretrace.cost.network.span import GroupSpan, GroupSpans, span_in_channels, span_of
from foretrace.cost.network.tables import BY_RANKS, IN_SWITCH, mesh_of, who_adds
from foretrace.cost.network.tiers import (
    NCCL_HOPS,
    TAPER,
    TREES,
    MessagesOfTier,
    go_by_tree,
    messages_of,
    tiers_ns,
)
from foretrace.machine import Chip, Machine, load_chip

_K = CollectiveKind
# Collectives whose data moves alike, the nearest first.
_ALIKE = {
    _K.ALL_REDUCE: (_K.ALL_REDUCE,),
    _K.REDUCE_SCATTER: (_K.REDUCE_SCATTER, _K.ALL_GATHER),
    _K.ALL_GATHER: (_K.ALL_GATHER, _K.REDUCE_SCATTER),
    _K.ALL_TO_ALL: (_K.ALL_TO_ALL,),
    _K.BROADCAST: (_K.BROADCAST, _K.ALL_GATHER, _K.REDUCE_SCATTER),
    _K.REDUCE: (_K.REDUCE, _K.REDUCE_SCATTER, _K.ALL_GATHER),
    _K.SEND_RECV: (_K.SEND_RECV, _K.ALL_TO_ALL),
}
_BY_AGE = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", "Blackwell Ultra")
# Measured over predicted where another collective's or chip's constants answer: middle 80% over all
# collectives of five chips on NVSwitch, each predicted without its own (docs/cost/collectives.md).
_ELSEWHERE = {BELOW: Spread(0.63, 1.48), FROM: Spread(0.76, 1.25)}


# Source: NCCL, src/graph/tuning.cc of 5067397c, perChMaxRingLL128Bws and the generation that it
# takes each compute capability for.
_CHANNEL_BYTES_PER_NS = {
    **dict.fromkeys(("Pascal", "Volta", "Turing", "Ampere", "Ada"), 20.0),
    "Hopper": 36.7,
    **dict.fromkeys(("Blackwell", "Blackwell Ultra"), 40.0),
}

# What one channel's tree carries between two hosts, every byte counted twice, and by which chips of
# those whose switches add. Source: as above, perChMaxTreeBws and perChMaxNVLSTreeBws of two nodes.
_TREE_BYTES_PER_NS = {
    **dict.fromkeys(("Pascal", "Volta", "Turing"), 18.5),
    **dict.fromkeys(("Ampere", "Ada"), 23.6),
    "Hopper": 41.4,
    **dict.fromkeys(("Blackwell", "Blackwell Ultra"), 42.8),
}
_SWITCH_TREE_BYTES_PER_NS = {"Hopper": 57.7, "Blackwell": 96.0, "Blackwell Ultra": 96.0}
# A card gets two channels where each still has so much. Source: ncclTopoDupChannels and the steps
# of bandwidth in src/graph/search.cc there: one of 25 GB/s counts as 24.
_ADDED = "bf16"  # by what takes part in the choice between rings and trees
_DOUBLED, _DOUBLED_OF_MANY, _MANY = 25.0, 50.0, 4
_LOSS_OF_STEPS = 0.96


@dataclass(frozen=True)
class ChosenCollective:
    """Constants, how they were come by, and the spread that goes with that."""

    fit: Fit
    source: Source
    chip: str = ""  # whose constants they are, inside a domain

    def spread(self, region: str) -> Spread:
        """Measured over predicted in a region, BELOW or FROM."""
        elsewhere = _ELSEWHERE[region]
        own = self.fit.spread_by_region.get(region, elsewhere)
        if self.source == Source.FITTED:
            return own
        return Spread(min(own.low, elsewhere.low), max(own.high, elsewhere.high))


def chosen_inside(
    collective: CollectiveKind, kind: str, chip: Chip, *, constants: Sequence[Constants]
) -> ChosenCollective:
    """Constants inside a scale-up domain, the nearest first.

    Raises:
        MachineError: if there are none at all.
    """
    chips = sorted((one for one in constants if one.architecture), key=lambda one: _far(one, chip))
    kinds = (kind, BY_RANKS, IN_SWITCH) if kind == IN_SWITCH else (BY_RANKS, IN_SWITCH)
    for one in chips:
        for alike in _ALIKE[collective]:
            for adding in kinds:
                fit = one.fit(alike.in_tables, adding, "any")
                if fit is not None:
                    is_own = one.chip == chip.name and (alike, adding) == (collective, kind)
                    source = Source.FITTED if is_own else Source.TRANSFERRED
                    return ChosenCollective(fit, source, one.chip)
    raise _lacking(f"{collective.in_tables} inside a host")


def _far(one: Constants, chip: Chip) -> tuple[int, str]:
    if one.chip == chip.name:
        return (-1, "")
    if one.architecture in _BY_AGE and chip.architecture in _BY_AGE:
        apart = _BY_AGE.index(one.architecture) - _BY_AGE.index(chip.architecture)
        return (abs(apart), one.chip)
    return (len(_BY_AGE), one.chip)


def chosen_between(
    span: GroupSpan, *, constants: Sequence[Constants], variant: str = ""
) -> ChosenCollective:
    """Constants between hosts: of the network's technology, else NCCL's own of any network.

    Of another network that was measured only the share of its bandwidth that messages reach is
    taken: how long hops take is the network's own.

    Raises:
        MachineError: if there are none at all.
    """
    networks = [one for one in constants if not one.architecture and one.fits]
    technology = network_key(span.levels[0].technology)
    networks.sort(key=lambda one: one.chip != technology)
    for one in networks:
        fit = next((fit for fit in one.fits if variant and fit.kind == variant), one.fits[0])
        if one.chip == technology:
            return ChosenCollective(fit, Source.FITTED)
        untapered = {name: value for name, value in fit.values.items() if name != TAPER}
        values = {**untapered, **NCCL_HOPS}
        return ChosenCollective(replace(fit, values=values), Source.TRANSFERRED)
    raise _lacking("collectives between hosts")


def _lacking(what: str) -> MachineError:
    return MachineError(
        f"there are no constants for {what}: fit some with `foretrace calibrate`, or use those "
        "that come with this version."
    )


def collective_costs(
    requests: CollectiveRequests,
    machine: Machine,
    *,
    constants: Sequence[Constants] | None = None,
    spans: GroupSpans | None = None,
) -> Costs:
    """Duration of each collective from the last arrival on; alike ones are costed together.

    Args:
        requests: what is asked; a group of one takes no time.
        machine: where the groups' places lie.
        constants: in place of those of the machine's chip.
        spans: of the machine, for many calls in turn; takes those of the groups.

    Raises:
        MachineError: for a collective that is not known, or a chip without links.
        ValueError: for a place outside the machine.
    """
    known = collectives_for(machine.chip) if constants is None else constants
    spans = GroupSpans(machine) if spans is None else spans
    num_dtypes = len(requests.dtypes)
    number = np.zeros(len(requests.groups), np.int64)
    for group in np.unique(requests.group).tolist():
        number[group] = spans.number(requests.groups[group])
    num_spans = len(spans.spans)
    code = requests.collective.astype(np.int64) * num_dtypes + requests.dtype
    code = code * num_spans + number[requests.group]
    distinct, inverse = np.unique(code, return_inverse=True)
    inverse = inverse.reshape(-1)
    answers = np.zeros((3, len(requests)))
    source = np.zeros(len(requests), np.uint8)
    order = np.argsort(inverse, kind="stable")
    ends = np.searchsorted(inverse[order], np.arange(len(distinct) + 1))
    for at, one in enumerate(distinct.tolist()):
        rest, span = divmod(one, num_spans)
        name, dtype = divmod(rest, num_dtypes)
        rows = order[ends[at] : ends[at + 1]]
        found = _alike_ns(
            (requests.collectives[name], requests.dtypes[dtype]),
            spans.spans[span],
            machine,
            num_bytes=requests.num_bytes[rows],
            constants=known,
        )
        answers[:, rows] = found[0]
        source[rows] = found[1]
    duration_ns, low_ns, high_ns = np.rint(answers).astype(np.int64)
    return Costs(
        duration_ns=duration_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        source=source,
        family=requests.collective,
        families=requests.collectives,
    )


def messages_with_jitter(
    name: str, places: Sequence[int], *, machine: Machine
) -> tuple[MessagesOfTier, ...]:
    """The messages of a collective over tiers whose latency varies.

    Args:
        name: of the collective.
        places: of the group.
        machine: where they lie.
    """
    collective = collective_named(name)
    if collective is None or Dispatched.named(name) is not None:
        return ()
    return tuple(messages_of(collective, span_of(places, machine)))


def by_trees(name: str, num_bytes: int, places: Sequence[int], *, machine: Machine) -> bool:
    """Whether a collective goes up and down trees of hosts, and not in rings.

    Args:
        name: of the collective.
        num_bytes: as nccl-tests counts them.
        places: of the group.
        machine: where they lie.
    """
    collective = collective_named(name)
    if collective not in TREES:
        return False
    span, chip = span_of(places, machine), machine.chip
    if not span.levels:
        return False
    chosen, channels = chosen_between(span, constants=collectives_for(chip)), channels_of(name)
    values = chosen.fit.values
    if chosen.source is not Source.FITTED:
        adding = who_adds(collective, _ADDED, chip)
        span = _with_trees_of_pairs(span, channels, chip=chip, adding=adding)
    span = _in_channels(collective, span, channels, chip=chip, values=values)
    size = np.array([float(num_bytes)])
    return bool(go_by_tree(collective, size, span, values=values)[0])


def _with_trees_of_pairs(span: GroupSpan, channels: int, *, chip: Chip, adding: str) -> GroupSpan:
    """The span with what trees between two hosts carry in as many channels as NCCL gives cards."""
    each = _TREE_BYTES_PER_NS.get(chip.architecture)
    if each is None or span.num_domains != 2:  # noqa: PLR2004 - a pair
        return span
    card = span.card_bytes_per_ns * _LOSS_OF_STEPS
    is_newer = chip.architecture in {"Ada", *_SWITCH_TREE_BYTES_PER_NS}
    is_doubled = card >= _DOUBLED and not (
        is_newer and card < _DOUBLED_OF_MANY and span.num_cards > _MANY
    )
    most = min(span.num_cards * (2 if is_doubled else 1), channels or np.inf)
    carried = most * each / 2
    if adding == IN_SWITCH and span.num_inside > 1:
        twice = 2 * (span.num_ranks - 1) / span.num_ranks
        carried = max(carried, most * _SWITCH_TREE_BYTES_PER_NS[chip.architecture] / twice)
    return replace(span, tree_bytes_per_ns=carried)


def _in_channels(
    collective: CollectiveKind,
    span: GroupSpan,
    channels: int,
    *,
    chip: Chip,
    values: Mapping[str, float],
) -> GroupSpan:
    """The span as so many channels get it; 0: as many as NCCL takes by itself."""
    if not channels:
        return span
    # Of which messages then reach the network's share.
    each = channel_bytes_per_ns(chip) / values["network_rate"]
    return span_in_channels(span, channels, each, is_direct=collective in DIRECT)


def channel_bytes_per_ns(chip: Chip) -> float:
    """What one of NCCL's channels carries at most.

    Raises:
        MachineError: for a chip that NCCL's own model does not know.
    """
    found = _CHANNEL_BYTES_PER_NS.get(chip.architecture)
    if found is None:
        raise MachineError(
            f"what a channel carries is known of NCCL on {', '.join(_CHANNEL_BYTES_PER_NS)}, and "
            f"{chip.name!r} is {chip.architecture!r}: leave [channels] out of the plan"
        )
    return found


def _linked(machine: Machine) -> Chip:
    """The chip with links: those to its host, where it has none of its own (cards on PCIe)."""
    chip = machine.chip
    if chip.link_bytes_per_ns is not None:
        return chip
    return replace(chip, link_bytes_per_ns=machine.host.scale_up_bytes_per_ns)


def _of_cards(chosen: ChosenCollective, linked: Chip, chip: Chip) -> Mapping[str, float]:
    """Constants of chips on NVLink for cards on PCIe, which copy their own part by memory.

    That goes on beside what the links carry, and takes as much of their time as memory is slower
    than they are: far less where links are PCIe's.
    """
    values = chosen.fit.values
    if chip.link_bytes_per_ns is not None or not chosen.chip:
        return values
    donor = load_chip(chosen.chip)
    assert linked.link_bytes_per_ns is not None  # noqa: S101  `_linked` gave it
    if not donor.link_bytes_per_ns:
        return values
    here = linked.link_bytes_per_ns / linked.memory_bytes_per_ns
    there = donor.link_bytes_per_ns / donor.memory_bytes_per_ns
    return {**values, "own_share": values["own_share"] * here / there}


def _alike_ns(
    kind: tuple[str, str],
    span: GroupSpan,
    machine: Machine,
    *,
    num_bytes: Int64s,
    constants: Sequence[Constants],
) -> tuple[Float64s, Source]:
    """Duration and both ends of the interval, float64[3, rows], and where they come from."""
    collective = collective_named(kind[0])
    if collective is None:
        raise MachineError(
            f"the collective {kind[0]!r} has no cost: all-reduce, reduce-scatter, all-gather, "
            "all-to-all, broadcast, reduce and send/receive do."
        )
    sizes = num_bytes.astype(np.float64)
    if span.num_ranks == 1:
        return np.zeros((3, len(sizes))), Source.FITTED
    dispatched = Dispatched.named(kind[0])
    if dispatched is not None:
        duration_ns = dispatched_ns(dispatched, sizes, span, _linked(machine))
        spread = _ELSEWHERE[FROM]
        answers = np.stack([duration_ns, duration_ns * spread.low, duration_ns * spread.high])
        return answers, Source.TRANSFERRED
    channels = channels_of(kind[0])
    adding = who_adds(collective, kind[1], machine.chip)
    chosen = chosen_inside(collective, adding, machine.chip, constants=constants)
    duration_ns = np.zeros(len(sizes))
    if span.num_inside > 1:
        ranks = np.full(len(sizes), float(span.num_inside))
        linked = _linked(machine)
        duration_ns = domain_ns(
            collective,
            sizes,
            ranks,
            chip=linked,
            values=_of_cards(chosen, linked, machine.chip),
            mesh=mesh_of(machine.host),
            most_bytes_per_ns=channels * channel_bytes_per_ns(machine.chip) if channels else np.inf,
        )
    if span.levels:
        chosen = chosen_between(span, constants=constants)
        values = chosen.fit.values
        if chosen.source is not Source.FITTED:
            span = _with_trees_of_pairs(span, channels, chip=machine.chip, adding=adding)
        span = _in_channels(collective, span, channels, chip=machine.chip, values=values)
        duration_ns = tiers_ns(collective, sizes, span, inside_ns=duration_ns, values=values)
    spreads = chosen.spread(BELOW), chosen.spread(FROM)
    is_short = num_bytes < SHORT_BYTES
    low = np.where(is_short, spreads[0].low, spreads[1].low)
    high = np.where(is_short, spreads[0].high, spreads[1].high)
    return np.stack([duration_ns, duration_ns * low, duration_ns * high]), chosen.source
