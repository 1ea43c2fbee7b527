"""What a plan uses of a machine: tiers of its network, the peak of its chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
from foretrace.base import Int64s, MachineError, WorkloadError
from foretrace.machine import Chip, Machine
from foretrace.workload.plan.groups import groups_of
from foretrace.workload.plan.plan import Group, Plan


@dataclass(frozen=True)
class Span(Plain):
    """Groups of one kind, and the tiers of network between their ranks."""

    group: Group
    size: int  # ranks of each
    num_groups: int
    tiers: tuple[str, ...]  # that any of them uses, innermost first
    num_by_outermost: Mapping[str, int]  # how many groups reach a tier and no further


@dataclass(frozen=True, repr=False)
class Placement(Answer):
    """What a plan's groups use of a machine's network; rank r stands at place r."""

    machine: str
    spans: tuple[Span, ...]  # of groups of more than one rank

    @property
    def headline(self) -> str:
        """On which machine."""
        return f"groups on {self.machine}"

    def parts(self) -> tuple[Told, ...]:
        """A row per kind of group."""
        return (
            Table.of(
                "spans",
                self.spans,
                Column("group", unit=Unit.WORD, value="group.value"),
                Column("size", unit=Unit.COUNT),
                Column("num_groups"),
                Column("tiers", value=lambda span: ", ".join(span.tiers)),
                Column("outermost", value=_outermost),
            ),
        )


def _outermost(span: Span) -> str:
    return ", ".join(f"{count} {name}" for name, count in span.num_by_outermost.items())


def describe_placement(plan: Plan, machine: Machine) -> Placement:
    """For each kind of group, the tiers that its ranks have between them.

    A tier is used where two ranks share an instance of it but of none inside it.

    Raises:
        WorkloadError: if the machine has fewer ranks than the plan, or the sizes of experts or
            shards do not divide the ranks they share.
    """
    if plan.num_ranks > machine.num_ranks:
        raise WorkloadError(
            f"the plan has {plan.num_ranks:,} ranks, and machine {machine.name!r} "
            f"{machine.num_ranks:,}: take a larger machine, or fewer ranks"
        )
    spans = (_span(plan, machine, group) for group in Group)
    return Placement(machine.name, tuple(span for span in spans if span.size > 1))


def _span(plan: Plan, machine: Machine, group: Group) -> Span:
    groups = groups_of(plan, group)
    names = [tier.name for tier in machine.tiers]
    places = machine.places(groups)
    counts = [np.full(len(groups), groups.shape[1])]
    counts += [_num_instances(places, tier.num_ranks) for tier in machine.tiers]
    # bool[tiers, groups]: some ranks that were apart inside the tier are together in it.
    uses = np.array([inside > here for inside, here in pairwise(counts)])
    num_from_here_out = np.cumsum(uses[::-1], axis=0)[::-1]
    is_outermost = uses & (num_from_here_out == 1)
    reached = [int(count) for count in is_outermost.sum(axis=1)]
    return Span(
        group,
        size=groups.shape[1],
        num_groups=len(groups),
        tiers=tuple(name for name, used in zip(names, uses, strict=True) if used.any()),
        num_by_outermost={name: count for name, count in zip(names, reached, strict=True) if count},
    )


def _num_instances(groups: Int64s, num_ranks: int) -> Int64s:
    """How many instances of so many ranks each group touches; its ranks ascend."""
    instances = groups // num_ranks
    changes: Int64s = (np.diff(instances, axis=1) > 0).sum(axis=1) + 1
    return changes


def peak_flops_per_ns(plan: Plan, chip: Chip) -> float:
    """Of the fastest number format that the plan multiplies in; one that the chip lacks is refused.

    Attention multiplies what activations are kept as, which may be faster than other products.
    """
    precision = plan.precision
    peaks = []
    for wanted in (precision.products, precision.wide_products, precision.made):
        peak = chip.peak_flops_per_ns(wanted)
        if peak is None:
            has = dict.fromkeys(each.removesuffix("_matrix") for each in chip.peak_by_dtype)
            raise MachineError(
                f"{chip.name} has no products in {wanted}: it has {', '.join(has)}; choose one of "
                "these (precision.products, precision.activations), or a chip that has it"
            )
        peaks.append(peak)
    return max(peaks)
