"""`estimate`: from a model, a plan and a machine to a simulated step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypedDict, Unpack

import numpy as np

from foretrace.base import NetworkUse, SimulationError, WorkloadError
from foretrace.cost import STATED, CostModel, Inflation, Source, step_costs
from foretrace.estimate.estimate import Alternative, Assumed, Estimate
from foretrace.estimate.interval import Interval, SimulatedStep, interval
from foretrace.estimate.link_traffic import sharing_of, with_widest_groups
from foretrace.estimate.nearest import nearest_plans
from foretrace.estimate.shared_links import (
    ALL_LINKS,
    OneMoreRail,
    SharedLinks,
    more_rails,
    shared_links,
    slow_links,
)
from foretrace.estimate.step_time import on_host, simulated_step, unmodelled_width
from foretrace.machine import Machine, with_hosts
from foretrace.operators import ModuleProgram
from foretrace.software import (
    Knowledge,
    TrainingSoftware,
    kernel_factors,
    unstated_software,
)
from foretrace.workload import (
    DIVISION,
    Completions,
    Convention,
    Footprint,
    Model,
    Plan,
    PlanDraft,
    Recommender,
    Transformer,
    blocks_of_model,
    check_plan,
    completions,
    footprint,
    is_uneven,
    layout,
    peak_flops_per_ns,
    plan_flops,
    plan_table,
    recommender_footprint,
    recommender_layout,
    schedule_of,
    software_draft,
)

_MORE_HOSTS = 16  # times as many, for plans that fit
_MAX_NAMES = 5  # in a note
_MUCH = 0.05  # share of the step from which on a note is due: as wide as many an interval
_MOST = 1 / 3  # share of the step above which communication is what it is about


class EstimateOptions(TypedDict, total=False):
    """How a step is estimated; `estimate` says what each means, and what it is if left out."""

    software: TrainingSoftware | None
    costs: CostModel | None
    inflation: Inflation | None
    convention: Convention
    folded: bool
    price_per_hour: float | None
    network: NetworkUse
    slow_link: float | None
    one_more_rail: bool


def estimate(
    model: Model | ModuleProgram,
    plan: Plan,
    machine: Machine,
    *,
    software: TrainingSoftware | None = None,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    convention: Convention = Convention.CAUSAL,
    folded: bool = True,
    price_per_hour: float | None = None,
    unmodelled: float | None = None,
    network: NetworkUse = NetworkUse.PRIVATE,
    slow_link: float | None = None,
    one_more_rail: bool = False,
    with_prices: bool = True,
) -> Estimate:
    """One step of a model under a plan on a machine.

    Args:
        model: of any kind that has layers.
        plan: complete; rank r stands at place r of the machine.
        machine: with as many chips as the plan has ranks, or more.
        software: what runs it, which says how long kernels take within a step; that of which
            nothing is known, if left out. What it does to the plan is in the plan.
        costs: what predicts durations; the fitted models of this version, as they are within a
            step of that software, if left out.
        inflation: how much slower kernels are beside communication; the published mean, if left
            out; `Inflation(otherwise=1.0)` for no slower.
        convention: how FLOPs are counted.
        folded: simulate one rank of each role instead of all.
        price_per_hour: of one chip, in any currency.
        unmodelled: spread of what no cost model knows, on a logarithmic scale, each way; as wide
            as runs of which as much is known need, if left out.
        network: whether collectives that meet on a link divide it. Alone each then takes what it
            takes on empty links, also where a tier has fewer than its members' cards; costs of
            one's own are to be such.
        slow_link: share of its bandwidth that one link keeps: the step is told for the worst of
            each level too. Links are to be shared.
        one_more_rail: tell what one more card of every host is worth, and one more uplink. Links
            are to be shared, and costs those of this version.
        with_prices: tell what links were asked, where they are shared, and what more is worth.

    Raises:
        WorkloadError: if the plan is not legal for the model.
        MachineError: if the machine is too small, or cannot be costed.
        ValueError: if the price is negative.
    """
    if price_per_hour is not None and not price_per_hour >= 0:
        raise ValueError(f"price_per_hour must not be negative, got {price_per_hour}")
    check_plan(plan, model)
    machine = with_hosts(machine, plan.num_ranks)
    plan = on_host(plan, machine)
    peak = peak_flops_per_ns(plan, machine.chip)
    schedule = schedule_of(plan)
    if isinstance(model, Recommender) and is_uneven(plan):
        laid_out = recommender_layout(model, plan)
    else:
        laid_out = layout(blocks_of_model(model, plan), plan, schedule, folded=folded)
    laid_out = with_widest_groups(laid_out, machine)
    known = software or unstated_software()
    is_shared = network is NetworkUse.SHARED
    costs_of = None
    if costs is None:
        costs_of = partial(software_costs, software=known, num_ranks=plan.num_ranks)
        costs = costs_of(machine.unshared() if is_shared else machine)
    if slow_link is not None and not 0 < slow_link <= 1:
        raise WorkloadError(f"a slow link keeps a share above 0 up to 1, got {slow_link}")
    if slow_link is not None and not is_shared:
        raise WorkloadError("a slow link slows what shares it: let links be shared (network)")
    if one_more_rail and (not is_shared or costs_of is None):
        raise WorkloadError(
            "what one more rail is worth is told where links are shared (network), by the cost "
            "models of this version"
        )
    sharing = (
        sharing_of(laid_out, costs, machine, least_left=slow_link or 1.0) if is_shared else None
    )
    done = simulated_step(laid_out.graph, costs, inflation or Inflation(), sharing=sharing)
    if unmodelled is None:
        unmodelled = unmodelled_of(model, software, machine)
    knows_host = plan.implementation.launch_times is not None
    spread = interval(done, unmodelled=unmodelled, knows_host=knows_host)
    memory = _memory(model, plan, machine)
    links = shared_links(done, costs_of, inflation or Inflation()) if with_prices else None
    rails: tuple[OneMoreRail, ...] = ()
    if one_more_rail and links is not None and costs_of is not None:
        rails = more_rails(
            laid_out, machine, links,
            step_ns=spread.step_ns, costs_of=costs_of, inflation=inflation or Inflation(),
        )  # fmt: skip
    found = Estimate(
        model=model,
        plan=plan,
        machine=machine,
        laid_out=laid_out,
        timeline=done.timeline,
        costs=done.costs,
        interval=spread,
        footprint=memory,
        flops=plan_flops(model, plan, convention=convention),
        convention=convention,
        peak_flops_per_ns=peak,
        price_per_hour=price_per_hour,
        software=software,
        links=links,
        more_rails=rails,
        slow_links=() if slow_link is None else slow_links(done, slow_link),
        notes=(
            *_notes_on_hosts(machine),
            *_notes_on_software(software),
            *_notes_on_plan(plan, network),
            *(model.notes if isinstance(model, ModuleProgram) else ()),
            *_notes_on_time(done, spread, knows_host=knows_host),
            *_notes_on_links(links, rails),
            *_notes_on_memory(model, memory),
        ),
    )
    _check_share(found)
    return found


def estimate_draft(
    model: Model | ModuleProgram,
    draft: PlanDraft,
    machine: Machine,
    *,
    num_ranks: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[EstimateOptions],
) -> Estimate:
    """One step under a plan that may leave keys open; every legal plan that agrees is tried.

    The first of them is the answer; `Estimate.assumed` has what it assumes, and the spread. Plans
    whose memory does not fit are left out, unless none fits.

    Args:
        model: of any kind that has layers.
        draft: what is stated.
        machine: as in `estimate`.
        num_ranks: chips to use, from which dp follows where the draft does not state it.
        progress: called with plans done and plans in all.
        options: as in `estimate`; the draft states what differs from what the software does.

    Raises:
        WorkloadError: if the batch is not stated, or no plan that agrees is legal for the model.
        MachineError: as `estimate`.
        ValueError: so too.
    """
    num_ranks = ranks_meant(draft, machine, num_ranks)
    if num_ranks is not None:
        machine = with_hosts(machine, num_ranks)
    if (software := options.get("software")) is not None:
        draft = replace(draft, stated={**software_draft(software).stated, **draft.stated})
    found = completions(
        draft,
        model,
        num_ranks,
        fits=lambda plan: _fits(_memory(model, plan, machine)),
        domain=machine.tiers[0].num_ranks,
    )
    plans, total = found.plans, len(found.plans)
    machine = with_hosts(machine, max(plan.num_ranks for plan in plans))
    others = []
    answer = None
    network = options.get("network", NetworkUse.PRIVATE)
    if options.get("costs") is None and network is NetworkUse.PRIVATE:
        most = max(plan.num_ranks for plan in plans)
        options["costs"] = software_costs(machine, software, num_ranks=most)
    for done, plan in enumerate(plans):
        if done == 1:  # only the answer is looked into
            options = {**options, "folded": True, "slow_link": None, "one_more_rail": False}
        one = estimate(model, plan, machine, **options, with_prices=done == 0)
        answer = answer or one
        others.append(_alternative(found, one))
        if progress is not None:
            progress(done + 1, total)
    assert answer is not None  # noqa: S101  completions are never empty
    answer = replace(answer, notes=(*draft.notes, *answer.notes)) if draft.notes else answer
    if num_ranks is None and not draft.states("data") and machine.num_ranks > answer.plan.num_ranks:
        note = (
            "nothing says how many copies of the model there are, so one: "
            f"{answer.plan.num_ranks:,} of {machine.num_ranks:,} chips are used; state dp, or how "
            "many to use"
        )
        answer = replace(answer, notes=(note, *answer.notes))
    if isinstance(model, Transformer) and not any(map(draft.states, DIVISION)):
        answer = replace(answer, notes=(*_notes_on_division(answer), *answer.notes))
    if not found.assumptions:
        return answer
    return replace(answer, assumed=Assumed(found.assumptions, tuple(others)))


def ranks_meant(draft: PlanDraft, machine: Machine, num_ranks: int | None = None) -> int | None:
    """Chips that a draft is for: those that are asked for, that it states, or a lone host's.

    `None`, where nothing tells: of a machine of many hosts a part may be meant.
    """
    stated = draft.sizes.num_ranks if num_ranks is None else num_ranks
    if stated is not None or draft.states("data") or not machine.is_one_host:
        return stated
    plan = draft.plan()
    others = plan.ranks_of_replica
    return max(machine.num_ranks // others, 1) * others


def with_nearest(found: Estimate) -> Estimate:
    """The estimate, with the nearest plans that fit where its own does not."""
    memory, model = found.footprint, found.model
    if memory is None or memory.fits is not False or not isinstance(model, Transformer):
        return found
    most = found.machine.num_ranks * (_MORE_HOSTS if found.machine.can_grow else 1)
    capacity = memory.capacity or 0
    nearest = nearest_plans(
        model, found.plan, chip=found.machine.chip, most_ranks=most, capacity=capacity
    )
    return replace(found, nearest=nearest)


def software_costs(
    machine: Machine, software: TrainingSoftware | None = None, *, num_ranks: int | None = None
) -> CostModel:
    """What predicts durations within a step of software, or where none is stated.

    Args:
        machine: with the chips.
        software: what runs the step.
        num_ranks: chips of the job; several, if left out.
    """
    known = software or unstated_software()
    architecture = machine.chip.architecture
    return step_costs(machine, kernel_factors(known, architecture, is_alone=num_ranks == 1))


def unmodelled_of(
    model: Model | ModuleProgram, software: TrainingSoftware | None, machine: Machine
) -> float:
    """How wide what no cost model knows is, by model, chip and what is known of the software."""
    return unmodelled_width(
        has_experts=isinstance(model, Transformer) and model.experts is not None,
        knowledge=Knowledge.UNKNOWN if software is None else software.knowledge,
        architecture=machine.chip.architecture,
    )


def _notes_on_hosts(machine: Machine) -> Iterator[str]:
    if machine.can_grow and not machine.is_one_host:
        yield (
            f"{machine.name} are taken to be joined by their own cards, each host reaching all "
            "others at full bandwidth: name a machine whose network is another"
        )


def _notes_on_plan(plan: Plan, network: NetworkUse) -> Iterator[str]:
    if plan.local_steps is not None:
        yield (
            f"copies of the model do {plan.local_steps:,} steps by themselves (local_steps): that "
            "is another training algorithm, whose loss is not that of this batch; the state of "
            "its outer optimizer is not counted in memory"
        )
    if plan.first is not None and network is NetworkUse.PRIVATE:
        yield "overlap.first says who goes first where links are shared: see --network shared"


def _notes_on_division(done: Estimate) -> Iterator[str]:
    """That a plan nobody stated is no good one, where nearly all of its time shows it."""
    exposed = done.where.mean.transfer_ns / done.step_ns
    if exposed > _MOST:
        yield (
            f"nothing says how the model is divided, and under what is assumed {100 * exposed:.0f} "
            "% of the step is communication that nothing hides: `foretrace search` finds a plan, "
            "or state --tp, --pp, --ep, --sharding, --micro-batch"
        )


def _notes_on_software(software: TrainingSoftware | None) -> tuple[str, ...]:
    if software is None or software.knowledge is Knowledge.RELEASE:
        return ()
    of_it = (
        f"taken for its class, {software.title}"
        if software.knowledge is Knowledge.CLASS
        else "nothing is known of it, and kernels are as the mean over classes has them"
    )
    text = (
        f"this release of the software is not described: {of_it}; the interval is wider for it "
        "(`foretrace software list` names those that are)"
    )
    return (text,)


def _alternative(found: Completions, one: Estimate) -> Alternative:
    table = plan_table(one.plan)
    paths = [assumption.key.split(".", 1) for assumption in found.assumptions]
    memory = one.footprint
    return Alternative(
        values={f"{part}.{key}": table.get(part, {}).get(key) for part, key in paths},
        step_ns=one.step_ns,
        low_ns=one.interval.low_ns,
        high_ns=one.interval.high_ns,
        peak_bytes=None if memory is None else memory.peak.total,
        fits=None if memory is None else memory.fits,
    )


def _check_share(found: Estimate) -> None:
    """Refuse an answer in which a chip does more than it can."""
    plan, share = found.plan, found.least_ns / found.step_ns
    if share > 1:
        raise SimulationError(
            f"internal error: {found.model.name} on {found.machine.name} would take "
            f"{found.step_ns:,} ns a step, {100 * share:.0f} % of the peak of {plan.num_ranks:,} x "
            f"{found.machine.chip.name} in {plan.precision.products}: a cost is too low; report "
            "it, and check your own constants and chip files if you use any"
        )


def _memory(model: Model | ModuleProgram, plan: Plan, machine: Machine) -> Footprint | None:
    """Bytes of every stage; `None` for a model whose tensors are not known one by one."""
    if isinstance(model, Recommender):
        return recommender_footprint(model, plan, capacity=machine.chip.memory_bytes)
    if not isinstance(model, Transformer | ModuleProgram):
        return None
    return footprint(model, plan, schedule_of(plan), chip=machine.chip)


def _fits(memory: Footprint | None) -> bool:
    return memory is None or memory.fits is not False


def _notes_on_time(done: SimulatedStep, spread: Interval, *, knows_host: bool) -> Iterator[str]:
    """What a reader of the step's time has to know."""
    graph = done.timeline.graph
    unknown = np.unique(graph.operator[done.costs.source == Source.UNKNOWN])
    names = [graph.names[at] for at in unknown.tolist() if at >= 0]
    if names:
        listed = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
        yield f"no cost model knows {listed}: taken to need no time"
    share = sum(one.critical_ns for one in spread.families if one.family == STATED) / spread.step_ns
    if share > _MUCH:
        how = (
            "whose time is as stated for it"
            if knows_host
            else "of which nothing is known, so they may take twice or half the usual: state "
            "launch_times in its description, or implementation.launch_times in the plan"
        )
        yield f"{100 * share:.0f} % of the critical path is launches on the host, {how}"


def _notes_on_links(links: SharedLinks | None, rails: Sequence[OneMoreRail]) -> Iterator[str]:
    worse = {row.links for row in (links.rows if links else ()) if row.gain_ns < 0}
    worse |= {row.links for row in rails if row.saved_ns < 0 and row.links != ALL_LINKS}
    if worse:
        yield (
            f"more bandwidth of {', '.join(sorted(worse))} makes the simulated step longer: "
            "transfers that end sooner run beside other kernels, which they slow, and meet others; "
            "a price or a rail of such links does not say what they are worth"
        )


def _notes_on_memory(model: Model | ModuleProgram, memory: Footprint | None) -> tuple[str, ...]:
    if memory is None:
        return (f"memory of {model.name}, a {model.kind}, is not known",)
    return memory.notes
