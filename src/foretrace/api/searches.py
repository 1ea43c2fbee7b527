"""The best plan for a model on a machine: from names, files or values to a `PlanSearch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from foretrace import __version__
from foretrace.api.edited import Edited, basis_of
from foretrace.api.job import Job
from foretrace.api.named import (
    Named,
    draft_named,
    machine_named,
    model_named,
    software_named,
)
from foretrace.base import NetworkUse, SweepEngine, WorkloadError
from foretrace.cost import CostModel, Inflation, rule_named
from foretrace.machine import Machine
from foretrace.report import plan_pages, search_drawings, write_answer_page
from foretrace.risk import Campaign, Variation, load_campaign, variation_named
from foretrace.search import (
    Limits,
    LinksToBuy,
    Objective,
    PlanSearch,
    Progress,
    SearchOptions,
    TableSearch,
    Target,
    links_tried,
    searched,
    searched_recording,
    searched_tables,
)
from foretrace.software import TrainingSoftware
from foretrace.workload import (
    MemoryTier,
    Model,
    PlanDraft,
    Recommender,
    TableScheme,
    Transformer,
    complete,
    write_torchrec_plan,
)

_Member = TypeVar("_Member", TableScheme, MemoryTier)


def search(
    subject: Model | Named | Job | Edited,
    machine: Machine | Named | None = None,
    *,
    num_ranks: int | Sequence[int],
    plan: PlanDraft | Mapping[str, object] | Named | None = None,
    objective: Objective | str | Sequence[Objective | str] = Objective.STEP,
    price_per_hour: float | None = None,
    campaign: Campaign | Named | None = None,
    num_tokens: float | None = None,
    variation: Variation | str | None = None,
    where: str | None = None,
    margin: float = 0.0,
    beside: PlanDraft | Mapping[str, object] | Named | None = None,
    vary: Sequence[str] = (),
    alone: bool = False,
    network: NetworkUse | str = NetworkUse.PRIVATE,
    links: str | None = None,
    time_s: float | None = 120.0,
    gap: float = 0.01,
    resume: str | Path | None = None,
    software: TrainingSoftware | Named | None = None,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    substitutes: Sequence[str] = (),
    folders: Sequence[Path] = (),
    workers: int = 1,
    engine: SweepEngine | str = SweepEngine.PROCESSES,
    progress: Callable[[Progress], None] | None = None,
) -> PlanSearch:
    """The best plan of a space, and how much better one that was not simulated could be.

    Args:
        subject: a transformer: a name, a file, or a model; or a recorded job, whose plans are
            those that `whatif` can predict: `job.edit(model=..., machine=...)` says what it is.
        machine: of a model: a name, a file, or a machine.
        num_ranks: chips to use, from which dp follows; or several numbers to choose from.
        plan: what every plan of the space has: {"global_batch": 2048, "batch.sequence": 8192} at
            least. Degrees, microbatch, schedule and chunks, sharding and recompute that it does
            not state are searched. Of a recorded job the batch grows with the chips.
        objective: what is best: "step", "throughput", "cost", "gpus", "headroom", "p95",
            "effective" or "days". Of several the first decides, and the front is about all.
        price_per_hour: of one chip, for the cost.
        campaign: what fails and how it is mended, as in `risk campaign`: a name, a file, or a
            campaign. Its hosts become the plan's; the interval of checkpoints and the way to
            recover are chosen for each plan.
        num_tokens: of the whole training, for the days.
        variation: how times vary, for "p95": a preset of `risk steps`, or a variation.
        where: a constraint on plans, as in "tp <= 8 and peak_gb < 70 and days <= 60".
        margin: share of a chip's memory that plans leave free, for what is not counted: holes of
            the allocator, NCCL's buffers.
        beside: a plan of a model that the best is held beside; what it leaves open is as in `plan`,
            or as `estimate` would take it.
        vary: more variables to search: "order" of axes over the network, "contiguous" microbatches
            of a chunk, "shard_ranks", "overlap", "precision", "layers" fewer on the first and the
            last chunk, "outer_dp", "experts", "buckets", "reduced"; or "placement", "schedule" and
            "network", which are several of these.
        alone: look for the best of degrees, placement, schedule and network alone too, all else as
            in `beside` or as `estimate` takes it.
        network: "shared": the best are simulated on links that collectives divide.
        links: a figure of the machine's links and its values, as in
            "network.region.oversubscription=1:1,2:1,7:1": a search under each, and the best of
            all by the objective. `time_s` is each one's. Tiers say what links cost.
        time_s: seconds after which the best so far is the answer; `None`: no limit.
        gap: share of the best step below which what could still be gained is let be.
        resume: a file that what is found is kept in, and gone on from.
        software: what runs it, as in `estimate`.
        costs: as in `estimate`.
        inflation: as in `estimate`.
        substitutes: rules of substitution, as in "strassen:1", whose kernels take the place of
            those that are there where they are faster; what they hold meanwhile is not counted.
        folders: as in `estimate`.
        workers: processes that simulate plans beside each other.
        engine: where they run: "processes" of this machine, or "ray", on its cluster.
        progress: called now and then with how far it is.

    Raises:
        WorkloadError: if the space is not stated well, or no plan of it can run and fits.
        MachineError: if there is no such machine, it is too small, or it cannot be costed.
    """
    stated = [objective] if isinstance(objective, str) else list(objective)
    first, *others = (Objective(one) for one in stated)
    target = Target(
        objective=first,
        also=tuple(others),
        price_per_hour=price_per_hour,
        campaign=(
            load_campaign(campaign, folders) if isinstance(campaign, str | Path) else campaign
        ),
        num_tokens=num_tokens,
    )
    options = SearchOptions(
        target=target,
        limits=Limits(time_s=time_s, gap=gap),
        where=where,
        margin=margin,
        alone=alone,
        resume=None if resume is None else Path(resume),
        workers=workers,
        engine=SweepEngine(engine),
        progress=progress or (lambda _: None),
        version=__version__,
    )
    draft = PlanDraft() if plan is None else draft_named(plan, folders)
    if not isinstance(subject, str | Path | Model):
        if any(
            one is not None for one in (software, costs, inflation, machine, beside, *substitutes)
        ):
            raise WorkloadError(
                "a recording shows its own software, costs and slowdowns: state model and machine "
                "of the job with job.edit(model=..., machine=...), and nothing else"
            )
        if vary or alone or links or NetworkUse(network) is NetworkUse.SHARED:
            raise WorkloadError(
                f"{', '.join(vary) or 'dimensions alone, or shared links,'} cannot be searched for "
                "a recorded job: name a model and a machine instead of files"
            )
        base = basis_of(subject, "plans are searched for").baseline
        return searched_recording(base, draft, num_ranks=num_ranks, options=options)
    found = model_named(subject, folders)
    if not isinstance(found, Transformer):
        raise WorkloadError(
            f"{found.name} is no transformer: only a transformer's plans have what is searched for"
        )
    if machine is None:
        raise WorkloadError("a search needs to know the machine: name one, as in dgx-h100")
    one = partial(
        searched,
        found,
        draft,
        num_ranks=num_ranks,
        options=options,
        vary=vary,
        network=NetworkUse(network),
        software=software_named(software, folders),
        variation=variation_named(variation) if isinstance(variation, str) else variation,
        costs=costs,
        inflation=inflation,
        rules=tuple(map(rule_named, substitutes)),
        beside=None if beside is None else draft.with_fields(draft_named(beside, folders).stated),
    )
    hardware = machine_named(machine, folders)
    if links is None:
        return one(hardware)
    if resume is not None:
        raise WorkloadError(
            "what was found under other links cannot be gone on with: leave out resume"
        )
    return links_tried(LinksToBuy.of(links), hardware, target=target, search=one)


def tables(
    model: Model | Named,
    machine: Machine | Named,
    *,
    num_ranks: int,
    plan: PlanDraft | Mapping[str, object] | Named,
    ids: str | None = None,
    schemes: Sequence[TableScheme | str] = tuple(TableScheme),
    tiers: Sequence[MemoryTier | str] = (MemoryTier.HBM,),
    time_s: float = 8.0,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    folders: Sequence[Path] = (),
    progress: Callable[[str], None] | None = None,
) -> TableSearch:
    """Where a recommender's embedding tables stand so that its simulated step is short.

    Args:
        model: a recommender: a name, a file, or a model.
        machine: a name, a file, or a machine.
        num_ranks: chips to use.
        plan: what is stated of the plan: {"micro_batch": 2048}, samples of one rank, or
            "global_batch" at least; {"tables.optimizer": "adagrad"}, ... besides.
        ids: how often rows are looked up, as in `estimate`.
        schemes: that tables may have: "table-wise", "row-wise", "column-wise", "table-row-wise",
            "data-parallel".
        tiers: that they may be in: "hbm", "host", "ssd".
        time_s: seconds to spend.
        costs: as in `estimate`.
        inflation: as in `estimate`.
        folders: as in `estimate`.
        progress: called with what is done.

    Raises:
        WorkloadError: if the model has no tables, they fit nowhere, or the plan is not legal.
        MachineError: if there is no such machine or tier, or it cannot be costed.
    """
    found = model_named(model, folders)
    if not isinstance(found, Recommender):
        raise WorkloadError(f"{found.name} is no recommender: it has no tables to place")
    hardware = machine_named(machine, folders)
    draft = draft_named(plan, folders).with_fields({"data": num_ranks})
    if ids is not None:
        draft = draft.with_fields({"tables.ids": ids})
    return searched_tables(
        found,
        complete(_with_batches(draft, num_ranks), found, num_ranks),
        hardware,
        schemes=_members(schemes, TableScheme, "scheme"),
        tiers=_members(tiers, MemoryTier, "tier"),
        time_s=time_s,
        costs=costs,
        inflation=inflation,
        progress=progress,
    )


def write_tables(path: str | Path, found: TableSearch) -> None:
    """Write where tables stand as a sharding plan of TorchRec.

    Raises:
        WorkloadError: if the file cannot be written.
    """
    write_torchrec_plan(Path(path), found.placed)


def _members(given: Sequence[_Member | str], kind: type[_Member], name: str) -> tuple[_Member, ...]:
    wrong = [one for one in given if one not in list(kind)]
    if wrong or not given:
        raise WorkloadError(
            f"there is no {name} {wrong[0] if wrong else ''!r}: choose some of {', '.join(kind)}"
        )
    return tuple(kind(one) for one in given)


def _with_batches(draft: PlanDraft, num_ranks: int) -> PlanDraft:
    """A step is one batch of every rank, so either batch says the other."""
    plan = draft.plan()
    if draft.states("micro_batch") and not draft.states("global_batch"):
        return draft.with_fields({"global_batch": plan.micro_batch * num_ranks})
    if draft.states("global_batch") and not draft.states("micro_batch"):
        return draft.with_fields({"micro_batch": max(1, plan.global_batch // num_ranks)})
    return draft


def write_search_report(path: str | Path, found: PlanSearch) -> None:
    """Write one self-contained page: figures, tables, the Pareto front, the gap over time."""
    drawings, pages = search_drawings(found), plan_pages(found)
    title = f"Search: {found.model} on {found.machine}"
    write_answer_page(Path(path), title, found, drawings=drawings, behind=pages)
