"""`Job`: one training run, loaded and understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.base import MachineError, NetworkUse, TraceError
from foretrace.graph import LACKING, ExecutionGraph, Finding, Recording, Timeline
from foretrace.simulate import simulate
from foretrace.trace import TraceMeta

if TYPE_CHECKING:  # what a job that is not edited need not load
    from foretrace.api.edited import Basis, Edited
    from foretrace.api.named import Named
    from foretrace.cost import CostModel
    from foretrace.machine import Chip, Machine
    from foretrace.simulate import Cores
    from foretrace.whatif import Edit, Sizes
    from foretrace.workload import Model, PlanDraft

_ONLY_RANK = re.compile(r"rank[-_]?\d+(\.(kineto|pt|trace|json|gz|zst))*", re.IGNORECASE)
# Folders of these names say nothing without the one above them.
PLAIN_NAMES = frozenset({"log", "logs", "profile", "profiles", "trace", "traces"})


@dataclass(frozen=True)
class Job:
    """What `load` returns: the recording of a run, and where it came from."""

    recording: Recording
    metas: tuple[TraceMeta, ...]  # one per file, by rank

    @property
    def graph(self) -> ExecutionGraph:
        """Who waits for whom."""
        return self.recording.graph

    @property
    def measured(self) -> Timeline:
        """What was observed, on one clock for all ranks."""
        return self.recording.measured

    def check_times(self, doing: str) -> None:
        """Refuse a run of which nothing says how long anything took, as in execution traces.

        Raises:
            TraceError: naming the run.
        """
        if not self.measured.end_ns.any():
            raise TraceError(
                f"{self.title} has no times, as execution traces have none: there is nothing to "
                f"{doing}. Give the profiler's files of the run; for a benchmark of it, `foretrace "
                "bench generate`; for a tool that costs it, `foretrace convert`."
            )

    @cached_property
    def replayed(self) -> Timeline:
        """Every rank's run rebuilt from its dependencies alone; worked out once."""
        return simulate(self.graph)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The recorded ranks, rising."""
        return self.graph.ranks

    @property
    def steps(self) -> tuple[str, ...]:
        """The recorded steps' names, in order."""
        return self.graph.step_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of any result must know about the recording."""
        return self.recording.findings

    @property
    def lacks(self) -> tuple[str, ...]:
        """What the recording lacks that bears on every number of it, a sentence each."""
        return tuple(one.text for one in self.findings if one.topic in LACKING)

    @property
    def title(self) -> str:
        """The name of the folder that holds the first file, or of the file if it is alone.

        A file whose name says no more than its rank is named by its folder too.
        """
        first = self.metas[0].path.resolve()
        is_alone = len({meta.path for meta in self.metas}) == 1  # several ranks may be merged
        if is_alone and not _ONLY_RANK.fullmatch(first.name):
            return first.name
        folder = first.parent
        return f"{folder.parent.name}/{folder.name}" if folder.name in PLAIN_NAMES else folder.name

    def edit(
        self,
        *edits: Edit,
        name: str = "",
        machine: Machine | Named | None = None,
        model: Model | Named | None = None,
        plan: PlanDraft | Mapping[str, object] | Named | None = None,
        sizes: Sizes | None = None,
        costs: CostModel | None = None,
        cores: Cores | None = None,
        without_profiler: bool = False,
        network: NetworkUse | str = NetworkUse.PRIVATE,
        folders: Sequence[Path] = (),
    ) -> Edited:
        """This job with something different about it, to be predicted from its recording.

        Args:
            edits: what is different: `ft.Layers(96)`, `ft.Parallelism(dp=64)`, ... Whatever their
                order, they make one scenario.
            name: of the scenario, for tables.
            machine: what the job ran on, by name or file or as a machine: it predicts durations
                at other sizes, and its network other groups.
            model: what was trained, by name or file or as a model: for memory, and for what the
                recording's pieces cannot answer.
            plan: keys of the plan under which it ran ({"tp": 2}), a preset, a file, or a draft:
                only what the recording does not show.
            sizes: widths of the model, where the recording has no shapes.
            costs: what predicts durations; the machine's, if that is stated, else what the
                recording itself shows.
            cores: processor cores that the recorded ranks shared, where the host computes.
            without_profiler: predict the job as it runs when nobody records it; `foretrace.record`
                times such steps.
            network: "private": a transfer takes as long as recorded, whoever it meets; "shared":
                those that meet on a link of the machine divide it, as far as they did not so
                when they were recorded.
            folders: of files that names are looked up in, before the presets.

        Raises:
            WorkloadError: if there is no such model or plan.
            MachineError: if there is no such machine, or the job ran on other devices.
        """
        # on demand: a job that is not edited need not load what edits need
        from foretrace.api.edited import Basis, Edited
        from foretrace.api.named import draft_named, machine_named, model_named

        use = NetworkUse(network)
        stated = (machine, model, plan, sizes, costs, cores)
        if not without_profiler and use is NetworkUse.PRIVATE and stated.count(None) == len(stated):
            return Edited(self, edits, self._basis, name)
        on = None if machine is None else machine_named(machine, folders)
        recorded = self._ran_on(on)
        basis = Basis(
            recording=self.recording,
            machine=on,
            model=None if model is None else model_named(model, folders),
            plan=None if plan is None else draft_named(plan, folders),
            sizes=sizes,
            costs=costs,
            cores=cores,
            chip=recorded,
            without_profiler=without_profiler,
            network=use,
        )
        return Edited(self, edits, basis, name)

    @cached_property
    def _basis(self) -> Basis:
        """What predictions start from where nothing is stated; made once for all of them."""
        from foretrace.api.edited import Basis  # on demand, as what edits need

        return Basis(recording=self.recording, chip=self._ran_on(None))

    def _ran_on(self, machine: Machine | None) -> Chip | None:
        """The chip that the files name.

        Raises:
            MachineError: if a machine is stated whose chips are others.
        """
        # on demand, as what edits need
        from foretrace.analyze import chip_of

        names = {name for meta in self.metas for name in meta.device_names}
        recorded = chip_of(names)
        if machine is None or recorded is None:
            return recorded
        if recorded.architecture != machine.chip.architecture:
            raise MachineError(
                f"the recording is of {', '.join(sorted(names))}, and {machine.name} has "
                f"{machine.chip.name}: state the machine that it ran on, or name the other one as "
                "an edit (--on-machine, OnMachine)"
            )
        return replace(recorded, costs=machine.chip.costs)

    def __repr__(self) -> str:
        """One line: ranks, steps and size."""
        return (
            f"Job(ranks={self.ranks!r}, steps={self.steps!r}, "
            f"nodes={self.graph.num_nodes:,}, edges={self.graph.num_edges:,})"
        )
