"""`lumos_report`: two constants from one bar of Lumos' figure 7, and the other eight predicted.

There is no trace of that model to begin with; so each scaling is estimated from its configuration,
with one factor on all kernels and one on all communication, such that the first bar's computation
and total come out. Lumos has more: a trace, and with it every kernel and every transfer at 2x2x4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from foretrace.base import Float64s
from foretrace.cost import Slower, step_costs
from foretrace.estimate import estimate, where
from foretrace.validate.lumos.figure import OTHERS, TEACHER, Bar, FigureRow
from foretrace.validate.lumos.results import LumosReport, LumosRow
from foretrace.validate.runs.machines import machine_of
from foretrace.validate.runs.models import model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import Plan, Transformer

_NS_PER_MS = 1e6
_SEQUENCE = 2_048  # of NVIDIA's MLPerf GPT-3, which Lumos says it follows
# One sequence: 15B parameters on 16 GPUs make 382 TFLOP/s of the first bar's computation with one,
# and 764 with two, which bf16 on an H100 does not reach.
_MICRO_BATCH = 1


@dataclass(frozen=True)
class _Factors:
    """On what is known of kernels and networks elsewhere."""

    kernels: float
    network: float
    sends: float  # on transfers between stages, besides `network`


def lumos_report(
    *, sends: float = 1.0, progress: Callable[[int, int], None] | None = None
) -> LumosReport:
    """Lumos' figure 7, predicted.

    Args:
        sends: how many times as long transfers between stages take as other communication of as
            many bytes; 1: nobody knows otherwise.
        progress: called with scalings done, and of how many.
    """
    found = _fitted(sends)
    rows = []
    for done, figure in enumerate((TEACHER, *OTHERS), start=1):
        rows.append(LumosRow(figure, _predicted(figure, found)))
        if progress is not None:
            progress(done, len(OTHERS) + 1)
    teacher, *others = rows
    return LumosReport(found.kernels, found.network, teacher, tuple(others))


def _fitted(sends: float) -> _Factors:
    """Factors with which the teacher's computation and total are as measured."""
    from scipy.optimize import least_squares  # on demand: it takes longer to import than most

    measured = TEACHER.measured

    def factors(turned: Float64s) -> _Factors:
        kernels, network = np.exp(turned - 1).tolist()  # beside 1: steps are relative to it
        return _Factors(kernels, network, sends)

    def off(turned: Float64s) -> Float64s:
        bar = _predicted(TEACHER, factors(turned))
        return np.log([bar.compute / measured.compute, bar.total / measured.total])

    return factors(least_squares(off, np.ones(2), diff_step=0.02).x)


def _predicted(figure: FigureRow, factors: _Factors) -> Bar:
    run = _run_of(figure)
    model, machine = model_of(run), machine_of(run)
    by_collective = {"": factors.network, "send": factors.network * factors.sends}
    costs = Slower(step_costs(machine), {"": factors.kernels}, by_collective)
    done = estimate(model, _plan_of(run, model), machine, costs=costs)
    mean = where(done.timeline, done.laid_out.roles).mean
    return Bar(
        mean.compute_ns / _NS_PER_MS,
        mean.overlapped_ns / _NS_PER_MS,
        # A stage that waits for another does so in a receive.
        (mean.transfer_ns + mean.waiting_ns) / _NS_PER_MS,
        mean.idle_ns / _NS_PER_MS,
    )


def _plan_of(run: PublishedRun, model: Transformer) -> Plan:
    """NeMo's, but for two overlaps.

    Tensor parallel communication is not overlapped: it would be twice what the first bar shows.
    Stages wait for their transfers: Megatron-LM overlaps them with interleaved schedules only
    (`overlap_p2p_comm` of megatron/core/model_parallel_config.py).
    """
    plan = plans_of(run, model).plans[0]
    return replace(plan, overlap=replace(plan.overlap, tensor=False, pipeline=False))


def _run_of(figure: FigureRow) -> PublishedRun:
    """The scaling as a row of a table of runs; as many microbatches as tensor x pipeline."""
    nothing = dict.fromkeys(field.name for field in fields(PublishedRun))
    stated: dict[str, object] = {
        "id": figure.name,
        "source": "Lumos",
        "family": "lumos",
        "model": "lumos-15b",
        "software": "mlperf-gpt3",
        "gpu": "H100",
        "precision": "bf16",
        "sharding": "zero1",
        "schedule": "1f1b",
        "recompute": "none",
        "notes": "",
        "num_gpus": figure.tensor * figure.pipeline * figure.data,
        "gpus_per_node": 8,
        "tp": figure.tensor,
        "pp": figure.pipeline,
        "dp": figure.data,
        "micro_batch": _MICRO_BATCH,
        "global_batch": figure.tensor * figure.pipeline * _MICRO_BATCH * figure.data,
        "seq_len": _SEQUENCE,
        "sequence_parallel": True,
    }
    return PublishedRun(**{**nothing, **stated})  # type: ignore[arg-type]
