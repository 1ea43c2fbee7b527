"""`Throughput`: samples and tokens per second of a recorded job, its MFU, and how busy it was.

Samples of a step are what shapes show of a microbatch, times the recorded microbatches, times the
copies of the model. What cannot be known is missing, with the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.analyze import (
    PRODUCTS,
    LayerUse,
    StepUse,
    Utilization,
    calls_of,
    step_time_ns,
    utilization,
)
from foretrace.analyze.questions import breakdown
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Fact,
    Facts,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
    per_second_text,
    percent_text,
    rate_text,
)
from foretrace.base import NS_PER_S, ScenarioError
from foretrace.graph import NO_STEP, WHOLE, operator_classes
from foretrace.machine import Chip
from foretrace.operators import OperatorClass, operator_class
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.resize.read import ReadSizes, read_sizes

_NOT_KNOWN = "not known"


@dataclass(frozen=True, repr=False)
class Throughput(Answer):
    """What a recorded step gets done."""

    json_names: ClassVar = {"step_ns": "step_time_ns", "used": "", "untold": "not_known"}
    json_also: ClassVar = (
        "samples_per_s", "tokens_per_s", "tokens_per_s_per_rank", "mfu", "hfu", "chip",
        "steps", "layers",
    )  # fmt: skip

    step_ns: int  # the job's step time, or that of one step
    num_ranks: int  # of the job, recorded or not
    num_samples: int | None  # of a step, all ranks
    num_tokens: int | None  # likewise
    samples_from: str  # what tells them
    busy_share: float  # of the step in which a rank computes or transfers, mean over ranks
    is_on_device: bool
    used: Utilization
    untold: Mapping[str, str]  # what is not known -> why

    @property
    def samples_per_s(self) -> float | None:
        """Of the whole job."""
        return self._per_s(self.num_samples)

    @property
    def tokens_per_s(self) -> float | None:
        """Of the whole job."""
        return self._per_s(self.num_tokens)

    @property
    def tokens_per_s_per_rank(self) -> float | None:
        """Of each rank of the job."""
        return None if self.tokens_per_s is None else self.tokens_per_s / self.num_ranks

    @property
    def mfu(self) -> float | None:
        """The share of the chips' peak in matrix products, without what is computed again."""
        return self.used.mfu

    @property
    def hfu(self) -> float | None:
        """The same with what is computed again; `None` where nothing is."""
        return self.used.hfu

    @property
    def chip(self) -> str:
        """What the ranks ran on; "" unknown."""
        return self.used.chip

    @property
    def steps(self) -> tuple[StepUse, ...]:
        """Every step's products."""
        return self.used.steps

    @property
    def layers(self) -> tuple[LayerUse, ...]:
        """Every layer's products in every step."""
        return self.used.layers

    @property
    def headline(self) -> str:
        """What is known, in one line."""
        told = "; ".join(f"{one.name} {one.value}" for one in self.facts() if not one.is_missing)
        return f"step of {duration_text(self.step_ns)}: {told}"

    def facts(self) -> tuple[Fact, ...]:
        """Tokens, samples, MFU and the busy share; what is not known says why."""
        ranks = count_text(self.num_ranks, "rank")
        of_each = self.tokens_per_s_per_rank if self.num_ranks > 1 else None
        tokens = "" if of_each is None else f"{per_second_text(of_each)} of each of {ranks}"
        samples = f"{self.num_samples:,} in a step, {self.samples_from}" if self.num_samples else ""
        who = "GPU busy" if self.is_on_device else "busy"
        return (
            self._fact("tokens/s", self.tokens_per_s, tokens),
            self._fact("samples/s", self.samples_per_s, samples),
            self._mfu_fact(),
            Fact(
                who,
                percent_text(100 * self.busy_share),
                "computing or transferring; waiting is not counted",
            ),
        )

    def _fact(self, name: str, per_s: float | None, remark: str) -> Fact:
        if per_s is None:
            return Fact(name, _NOT_KNOWN, self.untold[name], is_missing=True)
        return Fact(name, per_second_text(per_s), remark)

    def _mfu_fact(self) -> Fact:
        used = self.used
        if used.mfu is None or used.peak_flops_per_ns is None:
            return Fact("MFU", _NOT_KNOWN, used.untold, is_missing=True)
        peak = rate_text(used.peak_flops_per_ns * NS_PER_S, "FLOP/s")
        again = "" if used.hfu is None else f"; {percent_text(100 * used.hfu)} with recomputation"
        return Fact(
            "MFU",
            percent_text(100 * used.mfu),
            f"matrix products of {peak} {used.dtype}, {used.chip}{again}",
        )

    def parts(self) -> tuple[Told, ...]:
        """The figures, then steps and layers."""
        return Facts(self.facts()), self._steps_table(), self._layers_table(), self._over_time()

    def tables(self) -> tuple[Table, ...]:
        """Layers in every step, their means, and steps."""
        return self._over_time(), self._layers_table(), self._steps_table()

    def _steps_table(self) -> Table:
        """A step a row; one alone is what the figures say."""
        rows = self.steps if len(self.steps) > 1 else ()
        return Table.of(
            "steps",
            rows,
            Column("step"),
            Column("step_ns"),
            Column("flops", "products", value=lambda one: one.flops or None),
            Column("tokens_per_s", "tokens/s", Unit.COUNT, self._tokens_per_s_of),
            Column("mfu", "MFU", Unit.SHARE),
            title="every step",
        )

    def _tokens_per_s_of(self, one: StepUse) -> float | None:
        return None if self.num_tokens is None else self.num_tokens * NS_PER_S / one.step_ns

    def _layers_table(self) -> Table:
        """A layer a row, mean over steps."""
        rows: dict[int, list[LayerUse]] = {}
        for one in self.layers:
            rows.setdefault(one.layer, []).append(one)
        is_told = self.mfu is not None
        return Table.of(
            "layers",
            sorted(rows.items()),
            Column("layer", value=lambda row: row[0]),
            Column("time_ns", "ms", value=lambda row: _mean(one.time_ns for one in row[1])),
            Column(
                "flops",
                "products, all ranks",
                value=lambda row: _mean(one.flops for one in row[1]) or None,
            ),
            Column("mfu", "MFU", Unit.SHARE, lambda row: _mean(one.mfu or 0.0 for one in row[1]))
            if is_told
            else Column("mfu", "MFU", Unit.SHARE, lambda _: None),
            title="layers, mean over steps",
            lead="Of the time from the begin to the end of each pass, waiting included.",
            chart=_layers_chart() if is_told else None,
        )

    def _over_time(self) -> Table:
        """A layer in a step a row: the same over time."""
        return Table.of(
            "layers-by-step",
            self.layers,
            Column("step"),
            Column("layer"),
            Column("time_ns"),
            Column("flops"),
            Column("mfu", "MFU", Unit.SHARE),
            title="layers, step by step",
            shown=Shown.FILES,
        )

    def _per_s(self, count: int | None) -> float | None:
        return None if count is None else count * NS_PER_S / self.step_ns


def _layers_chart() -> Chart:
    return Chart(
        kind=ChartKind.COLUMNS,
        label="share of the chip's peak that every layer reaches in the time that it takes",
        category="layer",
        category_unit=Unit.IDENTIFIER,
        series=(Series("mfu", "MFU", "compute"),),
        unit=Unit.SHARE,
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def throughput(
    baseline: Baseline,
    *,
    chip: Chip | None = None,
    step: str | int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
) -> Throughput:
    """What a recorded step gets done: samples, tokens, FLOPs beside the peak, busy time.

    Args:
        baseline: of the recording, with what is stated about it.
        chip: what it ran on.
        step: by name or number; the mean of the run's steps, if left out.
        global_batch: samples of a step over all ranks, where shapes do not tell.
        sequence: tokens of a sample, likewise.

    Raises:
        GraphError: if there is no such step.
        ScenarioError: if a stated size is below 1.
    """
    timeline = baseline.program.recording.measured
    used = utilization(timeline, chip=chip, step=step)
    parts = breakdown(timeline, step=step).overall
    counted, untold = _counted(baseline, global_batch, sequence)
    step_ns = step_time_ns(timeline, step)
    return Throughput(
        step_ns=step_ns,
        num_ranks=baseline.before.plan.num_ranks,
        num_samples=counted.num_samples,
        num_tokens=counted.num_tokens,
        samples_from=counted.source,
        busy_share=1 - (parts.idle_ns + parts.waiting_for_ranks_ns) / max(parts.total_ns, 1),
        is_on_device=bool(timeline.graph.is_device.any()),
        used=used,
        untold={**untold, **({"MFU": used.untold} if used.untold else {})},
    )


@dataclass(frozen=True)
class _Counted:
    """What a step takes in."""

    num_samples: int | None
    num_tokens: int | None
    source: str


def _counted(
    baseline: Baseline, global_batch: int | None, sequence: int | None
) -> tuple[_Counted, dict[str, str]]:
    """Samples and tokens of a step, and why they are not known."""
    if any(one is not None and one < 1 for one in (global_batch, sequence)):
        raise ScenarioError(
            f"a step of {global_batch} samples of {sequence} tokens holds nothing: state both as "
            "whole numbers from 1 on"
        )
    read = read_sizes(baseline.program)
    samples = global_batch
    if samples is None:
        reason = _why_no_samples(baseline, read)
        if reason is not None:
            return _without_samples(baseline, read, reason)
        samples = _rows(baseline, read)
    length = sequence or _length(read, baseline.before.plan.context)
    tokens = None if length is None else samples * length
    untold = {}
    if length is None:
        untold["tokens/s"] = "shapes tell no sequence: state its tokens with --sequence"
    return _Counted(samples, tokens, _source(baseline, read, global_batch)), untold


def _without_samples(
    baseline: Baseline, read: ReadSizes, reason: str
) -> tuple[_Counted, dict[str, str]]:
    """What a step takes in where shapes tell no samples: tokens, where rows are these."""
    if baseline.program.doubts or not _holds_tokens(baseline, read):
        return _Counted(None, None, "stated"), {"samples/s": reason, "tokens/s": reason}
    return _Counted(None, _rows(baseline, read), "stated"), {"samples/s": reason}


def _rows(baseline: Baseline, read: ReadSizes) -> int:
    """What shapes show of a microbatch, for a whole step."""
    plan = baseline.before.plan
    return plan.num_microbatches * (read.micro_batch or 1) * plan.data


def _length(read: ReadSizes, context: int) -> int | None:
    """Tokens of a sample; attention over several lengths tells none, but of ranks of CONTEXT."""
    is_one = context > 1 or len(read.lengths) <= 1
    return read.sequence if is_one and (read.sequence or 1) > 1 else None


def _why_no_samples(baseline: Baseline, read: ReadSizes) -> str | None:
    """Why what shapes show is no number of samples; `None` where it is."""
    if read.micro_batch is None:
        return "no shapes tell a microbatch: state it with --global-batch"
    if baseline.program.doubts:
        return f"the plan is not known, {baseline.program.doubts[0]}"
    if len(read.batches) > 1:
        few, many = read.batches[0], read.batches[-1]
        return (
            f"attention is over {few:,} to {many:,} sequences: state the samples of a step with "
            "--global-batch"
        )
    if _holds_tokens(baseline, read):
        return "sequences lie behind one another: state their number with --global-batch"
    num_passes = _passes(baseline)
    if num_passes > baseline.before.plan.num_microbatches:
        return (
            f"no steps are marked, and {num_passes:,} passes look alike: state the samples of all "
            "with --global-batch"
        )
    return None


def _passes(baseline: Baseline) -> int:
    """How often everything that multiplies is run where no steps are marked; 1 where they are.

    What a model has once, its first or its last layer, tells passes from layers that are alike.
    """
    timeline = baseline.program.recording.measured
    graph = timeline.graph
    if graph.step_names not in ((), (WHOLE,)) or not graph.ranks:
        return 1
    calls = calls_of(timeline, NO_STEP, graph.rank == graph.ranks[0])
    is_first = np.diff(calls.call, prepend=-1) != 0
    is_product = [
        one.operator != "" and operator_class(one.operator) in PRODUCTS for one in calls.kinds
    ]
    kind = calls.kind[is_first & np.array(is_product, np.bool_)[calls.kind]]
    counts = Counter[tuple[str, str]]()
    for at, count in zip(*np.unique(kind, return_counts=True), strict=True):
        one = calls.kinds[int(at)]
        counts[one.operator, one.signature] += int(count)
    return math.gcd(*counts.values()) or 1


def _holds_tokens(baseline: Baseline, read: ReadSizes) -> bool:
    """Whether rows are tokens: there is attention, and no shape that tells its sequences.

    So do engines that serve, and training on packed documents.
    """
    if read.lengths or read.sequence != 1 or read.micro_batch is None:
        return False
    graph = baseline.program.graph
    _, classes = operator_classes(graph, np.flatnonzero(graph.is_device))
    return OperatorClass.ATTENTION in classes


def _source(baseline: Baseline, read: ReadSizes, global_batch: int | None) -> str:
    """What a step's samples follow from."""
    if global_batch is not None or read.micro_batch is None:
        return "stated"
    plan = baseline.before.plan
    length = f" of {read.sequence:,}" if (read.sequence or 1) > 1 else ""
    count = f"{plan.num_microbatches:,} x" if plan.num_microbatches > 1 else "microbatch"
    copies = f" on {plan.data:,} copies" if plan.data > 1 else ""
    return f"{count} {read.micro_batch:,}{length}{copies}"
