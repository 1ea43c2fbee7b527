"""`Explorer`: the step of a model under whatever plan is asked about, at unit grain.

What plans have in common (costs of operators and exchanges, parameters) is found once, so that an
answer takes some 20 to 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from foretrace.base import ModelError, WorkloadError
from foretrace.cost import CostModel, Inflation, Remembered
from foretrace.estimate import UnitRun, on_host, run_units, software_costs, where
from foretrace.graph import NodeKind, Phase
from foretrace.machine import Machine, with_hosts
from foretrace.software import TrainingSoftware
from foretrace.workload import (
    Plan,
    PlanDraft,
    PlanMemory,
    Recompute,
    Sharding,
    Transformer,
    blocks_of_model,
    check_plan,
    unit_layout,
    with_fields,
)

_MOST_GPUS = 65_536
_MOST_UNITS = 6_000  # that a page draws
_SCHEDULES = ("1f1b", "interleaved", "gpipe", "zb-h1", "dualpipe")
_DEGREES = {"tp": 16, "cp": 16, "pp": 64}
_PHASES = {
    Phase.FORWARD: "F",
    Phase.RECOMPUTE: "B",  # a unit is named by what it begins with
    Phase.BACKWARD: "B",
    Phase.OPTIMIZER: "O",
}

_NEXT_NS = 50_000  # between parts of a unit that are drawn as one


@dataclass(frozen=True)
class Slider:
    """One key of a plan, and what it may be."""

    key: str
    label: str
    choices: tuple[int | str, ...]
    value: int | str  # at first

    def as_json(self) -> dict[str, object]:
        """For the page."""
        return {"key": self.key, "label": self.label, "choices": self.choices, "value": self.value}


@dataclass(frozen=True)
class Explorer:
    """Answers about plans of a model on a machine."""

    model: Transformer
    machine: Machine
    start: Plan  # that the page begins with
    software: TrainingSoftware | None = None
    _costs: dict[int, tuple[Machine, CostModel]] = field(default_factory=dict, repr=False)

    @cached_property
    def memory(self) -> PlanMemory:
        """Memory of plans of the model."""
        return PlanMemory(self.model, chip=self.machine.chip)

    @property
    def sliders(self) -> tuple[Slider, ...]:
        """What can be moved, in the order of the page."""
        start = self.start
        most = _MOST_GPUS if self.machine.can_grow else self.machine.num_ranks
        pipeline = min(_DEGREES["pp"], self.model.num_layers)
        found = [
            Slider("gpus", "GPUs", _doubled(1, most, start.num_ranks), start.num_ranks),
            Slider("tp", "tensor", _doubled(1, _DEGREES["tp"], start.tensor), start.tensor),
            Slider("cp", "context", _doubled(1, _DEGREES["cp"], start.context), start.context),
            Slider("pp", "pipeline", _doubled(1, pipeline, start.pipeline), start.pipeline),
        ]
        if self.model.experts is not None:
            count = self.model.experts.count
            found.append(Slider("ep", "experts", _doubled(1, count, start.expert), start.expert))
        batch, micro = start.global_batch, start.micro_batch
        chunks = tuple(range(1, min(16, self.model.num_layers) + 1))
        sequences = _doubled(512, max(131_072, start.sequence), start.sequence)
        return (
            *found,
            Slider("global_batch", "global batch", _doubled(1, 16_384, batch), batch),
            Slider("micro_batch", "microbatch", _doubled(1, 64, micro), micro),
            Slider("sequence", "sequence", sequences, start.sequence),
            Slider("schedule", "schedule", _SCHEDULES, start.schedule),
            Slider("chunks", "chunks", chunks, start.num_chunks),
            Slider("sharding", "sharding", tuple(Sharding), start.sharding),
            Slider("recompute", "recompute", tuple(Recompute), start.recompute),
        )

    def plan(self, asked: Mapping[str, str]) -> Plan:
        """The plan that sliders stand for; dp follows.

        Raises:
            WorkloadError: if a value is none of its slider's, or the degrees do not divide.
        """
        values = {one.key: _read(one, asked.get(one.key)) for one in self.sliders}
        gpus = int(values["gpus"])
        own = int(values["tp"]) * int(values["cp"]) * int(values["pp"])
        if gpus % own:
            raise WorkloadError(f"tp x cp x pp is {own:,}, which does not divide {gpus:,} GPUs")
        keys: dict[str, object] = {
            **{key: values[key] for key in ("tp", "cp", "pp", "ep") if key in values},
            **{key: values[key] for key in ("global_batch", "micro_batch", "schedule", "chunks")},
            "dp": gpus // own,
            "batch.sequence": values["sequence"],
            "sharding.level": values["sharding"],
            "recompute": values["recompute"],
            "sequence_parallel": int(values["tp"]) > 1,
        }
        if values["pp"] == 1:
            keys |= {"schedule": "1f1b", "chunks": 1}
        elif (values["schedule"] == "interleaved") != (int(values["chunks"]) > 1):
            keys |= {"schedule": "interleaved" if int(values["chunks"]) > 1 else "1f1b"}
        if "ep" in values:
            keys["etp"] = 1
        # What belongs to other degrees goes; all else is as the plan to begin with has it.
        base = replace(self.start, layers_of_chunk=None, contiguous=None, shard_ranks=None)
        return with_fields(replace(base, name="", path=None), PlanDraft().with_keys(keys).stated)

    def answer(self, asked: Mapping[str, str]) -> dict[str, object]:
        """The step, its memory, its parts and the timeline of its stages; or why it cannot run."""
        try:
            plan = on_host(self.plan(asked), self.machine)
            check_plan(plan, self.model, plan.num_ranks)
            machine, costs = self._costs_on(plan.num_ranks)
            layout = unit_layout(blocks_of_model(self.model, plan), plan)
            run = run_units(layout, costs, Inflation())
        except ModelError as err:
            return {"refusal": str(err)}
        return {**_told(run, plan), **self._memory_told(plan, machine)}

    def _costs_on(self, num_ranks: int) -> tuple[Machine, CostModel]:
        if num_ranks not in self._costs:
            machine = with_hosts(self.machine, num_ranks)
            costs = Remembered(software_costs(machine, self.software, num_ranks=num_ranks))
            self._costs[num_ranks] = machine, costs
        return self._costs[num_ranks]

    def _memory_told(self, plan: Plan, machine: Machine) -> dict[str, object]:
        stages = self.memory.stage_bytes(plan)
        capacity = machine.chip.memory_bytes
        return {
            "memory_bytes": [int(one) for one in stages],
            "capacity_bytes": capacity,
            "fits": bool(stages.max() <= capacity),
        }


def _told(run: UnitRun, plan: Plan) -> dict[str, object]:
    """A simulated step as plain values."""
    step_ns = run.step_ns
    return {
        "step_ns": step_ns,
        "tokens_per_s": plan.global_batch * plan.sequence * 1e9 / step_ns,
        "dp": plan.data,
        "microbatches": plan.num_microbatches,
        "schedule": plan.schedule,
        "parts": where(run.timeline, run.laid_out.roles).mean.by_name(),
        "stages": _stages(run),
    }


def _stages(run: UnitRun) -> list[list[tuple[int, int, str, int]]]:
    """Units of every stage: begin, end, phase and microbatch; in ns from the step's begin."""
    graph, timeline = run.timeline.graph, run.timeline
    nodes = np.flatnonzero(graph.kind == NodeKind.KERNEL)
    nodes = nodes[np.argsort(timeline.start_ns[nodes], kind="stable")]
    begin_ns = int(timeline.start_ns.min())
    stage_of = {role.rank: role.stage for role in run.laid_out.roles}
    found: dict[int, list[tuple[int, int, str, int]]] = {}
    left = _MOST_UNITS
    for rank, start, end, phase, microbatch in zip(
        graph.rank[nodes].tolist(),
        (timeline.start_ns[nodes] - begin_ns).tolist(),
        (timeline.end_ns[nodes] - begin_ns).tolist(),
        graph.phase[nodes].tolist(),
        graph.microbatch[nodes].tolist(),
        strict=True,
    ):
        own = found.setdefault(stage_of[rank], [])
        unit = (_PHASES.get(Phase(phase), ""), microbatch)
        if own and own[-1][2:] == unit and start - own[-1][1] < _NEXT_NS:
            own[-1] = (own[-1][0], end, *unit)
        elif left:
            own.append((start, end, *unit))
            left -= 1
    return [found[stage] for stage in sorted(found)]


def _doubled(first: int, last: int, own: int) -> tuple[int, ...]:
    """Doubled numbers up to the last one, and the one to begin with."""
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return tuple(sorted({*found, own}))


def _read(slider: Slider, text: str | None) -> int | str:
    if text is None:
        return slider.value
    for choice in slider.choices:
        if str(choice) == text:
            return choice
    raise WorkloadError(
        f"{slider.key} is {text!r}: it is one of {', '.join(map(str, slider.choices))}"
    )
