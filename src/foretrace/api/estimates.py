"""A step that has not been run: from names, files or values to an `Estimate` and its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretrace import __version__, exchange
from foretrace.analyze import (
    busy_fraction,
    class_labels,
    collective_times,
    critical_path,
    diagnosis,
    idle,
    operators,
    roofline,
    sensitivity,
    steps,
    what_helps,
)
from foretrace.api.balancing import documents_named
from foretrace.api.edited import Edited
from foretrace.api.named import (
    Named,
    draft_named,
    machine_named,
    model_named,
    software_named,
)
from foretrace.api.tracks import found_tracks
from foretrace.balance import EVEN, Documents, ExpertLoad, ExpertPlacement, expert_load_named
from foretrace.base import NetworkUse, WorkloadError
from foretrace.cost import CostModel, Inflation
from foretrace.estimate import (
    Estimate,
    EstimateOptions,
    document_mix,
    estimate_draft,
    expert_mixes,
    loaded_plan,
    software_costs,
    with_nearest,
)
from foretrace.estimate import estimate as estimated
from foretrace.machine import Machine
from foretrace.operators import ModuleProgram
from foretrace.report import ESTIMATED, Answers, EstimatePage, write_estimate_page
from foretrace.software import TrainingSoftware
from foretrace.whatif import Edit, Prediction, predict_estimate
from foretrace.workload import (
    Convention,
    Model,
    Plan,
    PlanDraft,
    Recommender,
    TableScheme,
    Transformer,
    draft_of,
    plan_table,
    read_torchrec_plan,
)


@dataclass(frozen=True)
class EditableEstimate(Estimate):
    """An estimate that remembers what costed it, so that it can be edited as a job can."""

    own_costs: CostModel | None = None
    own_inflation: Inflation | None = None

    @property
    def title(self) -> str:
        """The model, and on what."""
        return f"{self.model.name} on {self.plan.num_ranks:,} x {self.machine.chip.name}"

    def edit(self, *edits: Edit, name: str = "") -> Edited:
        """This estimate with something different about it.

        Args:
            edits: as of a recorded job. Sizes, plan and machine make another estimate; edits of
                work change its graph and durations.
            name: of the scenario, for tables.
        """
        return Edited(None, edits, self, name)

    def predict(self, edits: tuple[Edit, ...], name: str = "") -> Prediction:
        """The estimated step with these edits."""
        return predict_estimate(
            self, edits, name=name, costs=self.own_costs, inflation=self.own_inflation
        )


def estimate(
    model: Model | ModuleProgram | Named,
    plan: Plan | PlanDraft | Mapping[str, object] | Named,
    machine: Machine | Named,
    *,
    num_ranks: int | None = None,
    software: TrainingSoftware | Named | None = None,
    convention: Convention | str = Convention.CAUSAL,
    price_per_hour: float | None = None,
    documents: Documents | Sequence[int] | Named | None = None,
    expert_load: ExpertLoad | Named = EVEN,
    expert_capacity: float | None = None,
    expert_replicas: int | None = None,
    tables: Named | None = None,
    ids: str | None = None,
    folded: bool = True,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    network: NetworkUse | str = NetworkUse.PRIVATE,
    slow_link: float | None = None,
    one_more_rail: bool = False,
    folders: Sequence[Path] = (),
    progress: Callable[[int, int], None] | None = None,
) -> EditableEstimate:
    """One training step of a model under a plan on a machine, with nothing run.

    Args:
        model: a name ("llama3-405b"), a TOML file, a `config.json` of Hugging Face, a model, or
            what `capture` gives.
        plan: keys of a plan file ({"tp": 8, "global_batch": 512}), a preset's name, a TOML file,
            or a plan. What it leaves open is assumed, and the spread over it told.
        machine: a name ("dgx-h100"), a TOML file, or a machine.
        num_ranks: chips to use, from which dp follows where the plan does not state it.
        software: what runs it: a name ("nemo-25.11"), a TOML file, or a description. The plan
            states what differs from what it does. A name that nobody described is taken for its
            class, or for software of which nothing is known, with a note.
        convention: how FLOPs are counted: "causal", "full", "parameters" or
            "parameters-without-embeddings".
        price_per_hour: of one chip, in any currency.
        documents: of a dataset, as in `balance`: steps of its documents are told too.
        expert_load: how tokens are spread over experts: "even", "power:1.2" (a power law with this
            exponent), a file of measured counts (a row for each layer, a column for each expert),
            or a load. The step is that of the mean load of the fullest rank.
        expert_capacity: tokens that an expert takes, in mean loads; what is above is dropped.
        expert_replicas: experts that are held once more, over all ranks, the fullest first, with
            all of them dealt so that ranks have alike loads; in order, if left out.
        tables: where a recommender's tables stand: a sharding plan of TorchRec as JSON.
        ids: how often rows of its tables are looked up: "even", "zipf:1.05" (or an exponent for
            each table), or a file of counts (.csv of table, row, count; .npz).
        folded: simulate one rank of each role instead of all.
        costs: what predicts durations; the fitted models of this version if left out.
        inflation: how much slower kernels are beside communication; the published mean if left
            out.
        network: "private": each collective takes as long as alone; "shared": those that meet on a
            link of the machine divide it, and the answer says what each level of links is asked.
        slow_link: with shared links, the share of its bandwidth that one link keeps (a degraded
            port, a card that flaps, loss): the step is told for the worst link of each level.
        one_more_rail: with shared links, tell what one more card of every host saves, and one
            more uplink of each level: by the price of links, and simulated again.
        folders: of files that names are looked up in, before the presets.
        progress: called with plans done and plans in all.

    Raises:
        WorkloadError: if the model or the plan is wrong, or they do not fit each other.
        MachineError: if there is no such machine, it is too small, or it cannot be costed.
    """
    found_model = model if isinstance(model, ModuleProgram) else model_named(model, folders)
    found_machine = machine_named(machine, folders)
    known = software_named(software, folders)
    if tables is not None or ids is not None:
        plan = draft_with_tables(
            found_model, _draft_of(plan, folders), found_machine, tables=tables, ids=ids
        )
    options: EstimateOptions = {
        "software": known,
        "costs": costs,
        "inflation": inflation,
        "convention": Convention(convention),
        "folded": folded,
        "price_per_hour": price_per_hour,
        "network": NetworkUse(network),
        "slow_link": slow_link,
        "one_more_rail": one_more_rail,
    }
    if isinstance(plan, Plan):
        found = estimated(found_model, plan, found_machine, **options)
    else:
        draft = draft_named(plan, folders)
        found = estimate_draft(
            found_model, draft, found_machine, num_ranks=num_ranks, progress=progress, **options
        )
    if expert_load != EVEN or expert_capacity is not None:
        load = _load_of(expert_load, expert_capacity)
        found = _under_load(found, load, expert_replicas, options)
    if documents is not None:
        if not isinstance(found_model, Transformer):
            raise WorkloadError(f"{found_model.name} is no transformer: it has no documents")
        mix = document_mix(
            found_model,
            found.plan,
            found_machine,
            documents=documents_named(documents),
            costs=costs or software_costs(found_machine, known, num_ranks=found.plan.num_ranks),
        )
        found = replace(found, mix=mix)
    found = with_nearest(found)
    return EditableEstimate(**vars(found), own_costs=costs, own_inflation=inflation)


def _load_of(load: ExpertLoad | Named, capacity: float | None) -> ExpertLoad:
    if not isinstance(load, ExpertLoad):
        return expert_load_named(str(load), capacity=capacity)
    return load if capacity is None else replace(load, capacity=capacity)


def _under_load(
    even: Estimate,
    load: ExpertLoad,
    replicas: int | None,
    options: EstimateOptions,
) -> Estimate:
    """The estimate whose fullest rank has its mean load, and steps by placement of experts."""
    if not isinstance(even.model, Transformer):
        raise WorkloadError(f"{even.model.name} is no transformer: it has no experts")
    ranks = even.plan.expert
    spare = ranks if even.model.experts is None else -even.model.experts.count % ranks or ranks
    asked = [ExpertPlacement(replicas)] if replicas is not None else []
    others = [ExpertPlacement(), ExpertPlacement(0), ExpertPlacement(spare)]
    mixes = expert_mixes(
        even.model, even.plan, even.machine, load=load,
        placements=[*asked, *(one for one in others if one not in asked)],
        costs=options["costs"]
        or software_costs(even.machine, even.software, num_ranks=even.plan.num_ranks),
        inflation=options["inflation"],
    )  # fmt: skip
    note = (
        f"experts have the load of {load.name}: the fullest rank's mean, {mixes[0].imbalance:.2f} "
        f"times all ranks', in every layer, experts {mixes[0].placement}"
    )
    plan = loaded_plan(even.plan, even.model, mixes[0].imbalance)
    found = estimated(even.model, plan, even.machine, **options)
    return replace(
        found, assumed=even.assumed, experts=mixes, notes=(*dict.fromkeys((note, *even.notes)),)
    )


def _draft_of(
    plan: Plan | PlanDraft | Mapping[str, object] | Named, folders: Sequence[Path]
) -> PlanDraft:
    return draft_of(plan_table(plan)) if isinstance(plan, Plan) else draft_named(plan, folders)


def draft_with_tables(
    model: Model | ModuleProgram,
    draft: PlanDraft,
    machine: Machine,
    *,
    tables: Named | None,
    ids: str | None,
) -> PlanDraft:
    """A draft that says where a recommender's tables stand, and how often rows are looked up.

    Args:
        model: a recommender.
        draft: what else is stated.
        machine: whose hosts divide rows, where a table's stand on one host.
        tables: a sharding plan of TorchRec; `None`: as the draft has it.
        ids: as in `estimate`; `None`: as the draft has it.

    Raises:
        WorkloadError: if the model has no tables, or the file is none of its.
    """
    if not isinstance(model, Recommender):
        raise WorkloadError(f"{model.name} is no recommender: it has no tables to place or look up")
    if ids is not None:
        draft = draft.with_fields({"tables.ids": ids})
    if tables is None:
        return draft
    places = read_torchrec_plan(Path(tables), model)
    draft = draft.with_fields({"tables.places": places})
    if any(one.scheme is TableScheme.TABLE_ROW for one in places):
        draft = draft.with_fields({"shard_ranks": machine.host.num_chips})
    return draft


def write_estimate_trace(path: str | Path, found: Estimate) -> None:
    """Write the simulated step as a file that opens in Perfetto.

    Args:
        path: where to. Perfetto's own format if the name ends in `.pftrace`, else Chrome's JSON;
            compressed if `.gz` follows.
    """
    exchange.write_trace(
        Path(path),
        {ESTIMATED: found.timeline},
        tracks_by_title={ESTIMATED: found_tracks(found.timeline)},
    )


def write_estimate_report(path: str | Path, found: Estimate, *, title: str = "") -> None:
    """Write everything that is known of an estimate as one self-contained HTML page.

    Args:
        path: where to; the page opens offline, in any browser.
        title: of the page; the model's name and the number of ranks, if left out.
    """
    timeline = found.timeline
    answers = _answers(found)
    chosen = title or f"{found.model.name} on {found.plan.num_ranks:,} x {found.machine.chip.name}"
    page = EstimatePage(
        title=chosen,
        version=__version__,
        estimate=found,
        collectives=collective_times(timeline),
        steps=steps(timeline),
        busy=busy_fraction(timeline),
        labels=class_labels(timeline.graph),
        answers=answers,
    )
    write_estimate_page(Path(path), page)


def _answers(found: Estimate) -> Answers:
    """What the analyses say of the simulated step."""
    timeline = found.timeline
    levers = sensitivity(timeline)
    table = operators(timeline)
    return Answers(
        path_by_title={ESTIMATED: critical_path(timeline)},
        helps=what_helps(levers),
        lost=diagnosis(timeline),
        idle_by_title={ESTIMATED: idle(timeline)},
        by_question={"operators": table, "sensitivity": levers},
        roofline=roofline(table, chip=found.machine.chip),
    )
