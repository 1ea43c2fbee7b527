"""Which cost models answer for the recorded and for the edited job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace import cost
from foretrace.base import Int32s, Int64s, ScenarioError, numbered_rows
from foretrace.cost import (
    CostModel,
    Costs,
    KernelRequests,
    RecordedCosts,
    Source,
    costs_of_recording,
)
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.resize.recorded_blocks import is_on_host, operator_nodes
from foretrace.whatif.scenario import Scenario


@dataclass(frozen=True)
class Models:
    """Models of kernels and collectives, before and after; and the recording's own."""

    before: CostModel
    after: CostModel
    recorded: RecordedCosts  # stands in where the others know nothing
    is_of_recording: bool  # nothing but the recording was there to fit to
    is_other_chip: bool
    is_other_network: bool
    notes: tuple[str, ...] = ()


def models_of(
    program: Program,
    before: Scenario,
    after: Scenario,
    *,
    costs: CostModel | None,
    has_new_shapes: bool,
) -> Models:
    """Models for both machines: those given, else fitted ones of the machine, else the recording's.

    Given ones know one machine: where it changes, fitted ones of both answer.

    Raises:
        ScenarioError: if the machine changes and nobody said what it was, or there is no GPU.
    """
    graph = program.graph
    # Fitting takes its time; where no shape changes, nobody asks.
    recorded = program.once(recorded_costs) if has_new_shapes else RecordedCosts({})
    old, new = before.machine, after.machine
    is_other_chip, is_other_network = False, False
    if new is not None and new != old:
        if old is None:
            raise ScenarioError(
                f"the job is moved to machine {new.name!r}, and nobody said what it was recorded "
                "on: state that machine too (--machine NAME), so that their models can be compared."
            )
        is_other_chip = old.chip != new.chip
        is_other_network = (old.tiers, old.host) != (new.tiers, new.host) or is_other_chip
    if is_other_chip and is_on_host(graph):
        raise ScenarioError(
            "the job ran on CPUs alone, and no model says what its operators take on another "
            "machine: change the network's tiers or the number of cores instead."
        )
    before_model: CostModel = recorded
    after_model: CostModel = recorded
    if is_other_network and old is not None and new is not None:
        before_model, after_model = cost.step_costs(old), cost.step_costs(new)
    elif costs is not None and not (is_on_host(graph) and _is_of_gpus(costs)):
        before_model = after_model = costs
    elif old is not None and not is_on_host(graph):
        before_model = after_model = cost.step_costs(old)
    return Models(
        before_model,
        after_model,
        recorded,
        is_of_recording=after_model is recorded,
        is_other_chip=is_other_chip,
        is_other_network=is_other_network,
        notes=_notes(costs, is_other=is_other_network, is_recorded=after_model is recorded),
    )


def _notes(costs: CostModel | None, *, is_other: bool, is_recorded: bool) -> tuple[str, ...]:
    if is_other and costs is not None and not _is_of_gpus(costs):
        return ("the given costs know one machine: fitted models of both took their place",)
    if is_recorded:
        return ("no model of the machine: rates are fitted to the recording's own operators",)
    return ()


def _is_of_gpus(costs: CostModel) -> bool:
    """Whether a model was fitted to GPUs, which says nothing of a job on CPUs alone."""
    return isinstance(costs, cost.FittedCosts | cost.Slower)


def recorded_costs(program: Program) -> RecordedCosts:
    """Lines through a recording's own operators."""
    graph = program.graph
    nodes = operator_nodes(graph)
    nodes = nodes[(graph.operator_signature[nodes] >= 0) & (graph.measured_ns[nodes] > 0)]
    requests = requests_of(
        graph.operator[nodes], graph.operator_signature[nodes], graph.name[nodes], graph.names
    )
    return costs_of_recording(requests, graph.measured_ns[nodes])


def requests_of(
    operator: Int32s, signature: Int32s, kernel: Int32s, texts: tuple[str, ...]
) -> KernelRequests:
    """Requests whose texts stand in one table."""
    return KernelRequests(operator, signature, kernel, texts, texts, texts)


def filled(costs: Costs, other: Costs) -> Costs:
    """Costs, and others' where nothing is known."""
    is_open = costs.source == Source.UNKNOWN
    return Costs(
        duration_ns=np.where(is_open, other.duration_ns, costs.duration_ns),
        low_ns=np.where(is_open, other.low_ns, costs.low_ns),
        high_ns=np.where(is_open, other.high_ns, costs.high_ns),
        source=np.where(is_open, other.source, costs.source).astype(np.uint8),
        family=np.where(is_open, other.family + len(costs.families), costs.family).astype(np.int32),
        families=(*costs.families, *other.families),
    )


def distinct_rows(*columns: Int32s) -> tuple[Int32s, Int64s]:
    """Distinct rows of columns, and for each row its place among them."""
    number = numbered_rows(columns)
    first = np.empty(int(number.max(initial=-1)) + 1, np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return np.stack([column[first] for column in columns], axis=1).astype(np.int32), number
