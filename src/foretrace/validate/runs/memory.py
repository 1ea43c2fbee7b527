"""`peak_gib`: the memory that a published run's tables print, of the same software.

What software keeps, and which figure it logs, was read where it is stated. Time and memory agree
on the plan but for number formats that only memory shows.
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.machine import Machine
from foretrace.validate.runs.steps import few_microbatches, with_microbatches
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import (
    MEGATRON_EARLY_2025,
    MEGATRON_ENGINE_LOSS,
    PYTORCH,
    Implementation,
    Overlap,
    Plan,
    Software,
    Transformer,
    footprint,
    schedule_of,
)

_BYTES_PER_GIB = 1 << 30
# What torchtitan keeps for its backward pass is the same compiled or not, but for what a compiler
# joins: torchtitan/models/llama3.
_TORCHTITAN = Implementation(
    fuses_norms=False,
    fuses_activations=False,
    fuses_rotary=False,
    fuses_loss=False,
    fuses_projections=False,
    repeats_keys=True,
    fuses_gradients=False,
    copies_shards=True,
    selective="operators",
)


def peak_gib(run: PublishedRun, model: Transformer, plan: Plan, machine: Machine) -> float:
    """GiB that the run's software would log: PyTorch's statistics, which leave the context out.

    MLPerf's logs hold the first rank's, a rank of the first stage; others the fullest rank's.

    Raises:
        WorkloadError: if memory of such a plan is not known.
    """
    software, plan = _as_logged(run, plan)
    _, more = few_microbatches(plan)
    plan = with_microbatches(plan, min(plan.num_microbatches, more))
    found = footprint(
        model,
        plan,
        schedule_of(plan),
        capacity=machine.chip.memory_bytes,
        chip=machine.chip,
        software=software,
    )
    is_first_rank = run.software.lower().startswith("mlperf")
    stage = found.stages[0] if is_first_rank else found.peak
    return stage.allocated / _BYTES_PER_GIB


def _as_logged(run: PublishedRun, plan: Plan) -> tuple[Software | None, Plan]:
    name = run.software.lower()
    if name.startswith("torchtitan"):
        # The loss has been compiled since 2025; the runs on H100 are of 2024.
        fuses_loss = run.gpu == "H200"
        return PYTORCH, replace(plan, implementation=replace(_TORCHTITAN, fuses_loss=fuses_loss))
    if name.startswith("megatron-simumax"):
        # Megatron-LM 23e00ed with TransformerEngine 2.11, whose loss is "cef" in the runs' names.
        return MEGATRON_ENGINE_LOSS, replace(plan, implementation=Implementation())
    if name.startswith("mlperf"):
        # FP8_PARAMS=True in config_common.sh, grad_reduce_in_fp32=False in pretrain.py.
        precision = replace(plan.precision, parameters=run.precision, gradients="bf16")
        return MEGATRON_EARLY_2025, replace(
            plan,
            precision=precision,
            implementation=Implementation(),
            overlap=Overlap(),
            bucket_bytes=Plan().bucket_bytes,
        )
    return None, plan
