"""No estimate promises more than a chip can do, and no arithmetic in it is free."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import MachineError, SimulationError, WorkloadError
from foretrace.cost import FittedCosts, KernelRequests, Slower, Source, step_costs
from foretrace.estimate import Estimate, estimate, estimate_draft
from foretrace.machine import Chip, host_names, load_machine, machine_names
from foretrace.operators import OperatorClass, operator_class
from foretrace.workload import Copies, Plan, PlanDraft, Recompute, Sharding, load_model

_MODELS = ("llama3-8b", "qwen3-8b", "megatron-18.4b", "llama3.2-1b", "mixtral-8x7b", "gpt2-large")
_FORMATS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32", "tf32")
_ARITHMETIC = (OperatorClass.GEMM, OperatorClass.ATTENTION, OperatorClass.CONVOLUTION)
_H100 = load_machine("dgx-h100")


@st.composite
def drafts(draw: st.DrawFn) -> PlanDraft:
    """Plans of at most four ranks; with large batches chips come nearest their peaks."""
    tensor, pipeline, data = draw(
        st.sampled_from([(1, 1, 1), (1, 1, 4), (4, 1, 1), (1, 4, 1), (2, 2, 1)])
    )
    micro_batch = draw(st.sampled_from([1, 4]))
    keys: dict[str, object] = {
        "tp": tensor,
        "pp": pipeline,
        "dp": data,
        "micro_batch": micro_batch,
        "global_batch": data * micro_batch * draw(st.sampled_from([1, 4])),
        "batch.sequence": draw(st.sampled_from([512, 4096, 16_384])),
        "precision.products": draw(st.sampled_from(_FORMATS)),
        "sharding.level": draw(st.sampled_from(list(Sharding))).value if data > 1 else "none",
        "recompute": draw(st.sampled_from(list(Recompute))).value,
        "implementation.attention": draw(st.sampled_from(["flash", "plain"])),
        "implementation.launch": draw(st.sampled_from(["eager", "graph"])),
        "overlap.tensor": draw(st.booleans()),
    }
    if draw(st.booleans()):
        keys["precision.attention"] = "fp8"
    if data > 1:
        keys["ep"] = draw(st.sampled_from([1, data]))
        keys["dispatch.copies"] = draw(st.sampled_from(list(Copies))).value
    return PlanDraft().with_keys(keys)


@settings(max_examples=60)
@given(st.sampled_from(_MODELS), st.sampled_from((*machine_names(), *host_names())), drafts())
def test_no_estimate_is_faster_than_its_chip_and_no_product_is_free(
    model: str, machine: str, draft: PlanDraft
) -> None:
    with suppress(MachineError, WorkloadError):  # a sentence is an answer
        found = estimate_draft(load_model(model), draft, load_machine(machine))

        assert found.mfu is not None
        assert found.mfu < 0.95
        _check_nothing_is_free(found)


def _check_nothing_is_free(found: Estimate) -> None:
    graph = found.graph
    names = {at: graph.names[at] for at in np.unique(graph.operator).tolist() if at >= 0}
    arithmetic = [at for at, name in names.items() if operator_class("", name) in _ARITHMETIC]
    chosen = np.isin(graph.operator, arithmetic) & graph.is_device
    assert chosen.any()
    assert (found.costs.duration_ns[chosen] > 0).all()
    assert not (found.costs.source[chosen] == Source.UNKNOWN).any()


@pytest.mark.parametrize(
    ("machine", "wanted"), [("dgx-a100", "fp8"), ("dgx-h100", "nvfp4"), ("tpu-v5p-pod", "fp8")]
)
def test_formats_that_a_chip_lacks_are_refused_with_those_it_has(machine: str, wanted: str) -> None:
    draft = PlanDraft().with_keys({"global_batch": 8, "precision.products": wanted})

    with pytest.raises(MachineError, match=rf"no products in {wanted}: it has .*bf16"):
        estimate_draft(load_model("llama3-8b"), draft, load_machine(machine))


def test_products_that_no_model_knows_are_an_error() -> None:
    chip = _H100.chip
    without = {name: peak for name, peak in chip.peak_by_dtype.items() if name != "bf16"}
    machine = replace(_H100, host=replace(_H100.host, chip=_without(chip, without)))

    with pytest.raises(MachineError, match="no cost model knows the time of 'aten::"):
        # The formats of the plan are those of the whole chip; only costs miss one.
        estimate(load_model("llama3.2-1b"), Plan(sequence=512), _H100, costs=step_costs(machine))


def _without(chip: Chip, peaks: dict[str, float]) -> Chip:
    return replace(chip, peak_by_dtype=peaks)


def test_more_than_the_peak_is_an_internal_error() -> None:
    costs = Slower(FittedCosts(_H100), {"": 1e-3})
    plan = Plan(global_batch=64, micro_batch=64, sequence=4096)

    with pytest.raises(SimulationError, match="internal error: llama3-8b on dgx-h100 would take"):
        estimate(load_model("llama3-8b"), plan, _H100, costs=costs)


def test_a_chip_known_by_its_data_sheet_alone_reaches_less_than_its_peak() -> None:
    machine = load_machine("tpu-v5p-pod")
    square, dtype = [8192, 8192], "c10::BFloat16"
    signature = json.dumps({"dims": [square, square], "types": [dtype, dtype]})
    one = np.zeros(1, np.int32)
    request = KernelRequests(one, one, one - 1, ("aten::mm",), (signature,), ())

    found = FittedCosts(machine).kernel_costs(request)

    peak = machine.chip.peak_flops_per_ns("bf16")
    assert peak is not None
    assert found.source[0] == Source.ROOFLINE
    assert 0.5 * peak < 2 * 8192**3 / found.duration_ns[0] < 0.8 * peak
    assert found.low_ns[0] == pytest.approx(2 * 8192**3 / peak, rel=1e-6)
