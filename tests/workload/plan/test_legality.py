from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    Axis,
    ContextExchange,
    Model,
    Plan,
    Precision,
    Scales,
    Sharding,
    TableSharding,
    check_plan,
    load_model,
)

LLAMA = load_model("llama3-405b")  # 126 layers, 128 heads, 8 kv heads, width 53,248
MIXTRAL = load_model("mixtral-8x7b")  # 8 experts of width 14,336
LLAMA_PLAN = Plan(
    tensor=8,
    data=64,
    pipeline=16,
    global_batch=2048,
    sequence=8192,
    schedule="interleaved",
    num_chunks=8,
    sequence_parallel=True,
)


def refusal(plan: Plan, model: Model, num_ranks: int | None = None) -> str:
    with pytest.raises(WorkloadError) as caught:
        check_plan(plan, model, num_ranks)
    return str(caught.value)


def test_the_plan_of_llama_3_is_legal_on_as_many_ranks_or_more() -> None:
    check_plan(LLAMA_PLAN, LLAMA, 8192)
    check_plan(LLAMA_PLAN, LLAMA, 8193)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor": 0}, "tp is 0: it has to be at least 1"),
        ({"contiguous": -1}, "contiguous is -1: it has to be at least 1"),
        ({"order": (Axis.TENSOR,) * 4}, "order is ['tp', 'tp', 'tp', 'tp']: it has to name each"),
        (
            {"precision": Precision(scales=Scales.ROW)},
            "precision.scales is 'row' and products take bf16: scales of rows are for fp8",
        ),
        (
            {"precision": Precision(products="fp8", scales=Scales.ROW, parameters="fp8")},
            "only weights with one scale can be; set precision.parameters to bf16",
        ),
        (
            {"precision": Precision(products="fp8", wide_weight_gradients=True)},
            "precision.wide_weight_gradients needs precision.scales 'row'",
        ),
        ({"precision": Precision(products="fp8", scales=Scales.ROW)}, None),
        ({"tensor": 48}, "tp 48 does not divide 128 heads: tp 32 would"),
        ({"tensor": 128}, None),  # 16 ranks hold each of 8 kv heads; 53,248 = 128 x 416
        ({"data": 65}, "tp 8 x cp 1 x dp 65 x pp 16 = 8,320 ranks, and there are 8,192: dp 64"),
        (
            {"global_batch": 2047},
            (
                "micro_batch 1 x dp 64 = 64 sequences at once do not divide a global batch of "
                "2,047: 1,984 or 2,048 would be divided"
            ),
        ),
        ({"global_batch": 32}, "64 sequences at once do not divide a global batch of 32: 64 would"),
        (
            {"context": 3, "data": 1},
            "2 x cp 3 = 6 pieces do not divide a sequence of 8,192 tokens: 8,190 or 8,196 would",
        ),
        (
            {"context": 32, "data": 2, "context_exchange": ContextExchange.ALL_TO_ALL},
            (
                "tp 8 x cp 32 = 256 does not divide 128 heads, which an all-to-all exchange has "
                "to: cp 16 would"
            ),
        ),
        ({"context": 16, "data": 4, "context_exchange": ContextExchange.ALL_TO_ALL}, None),
        (
            {"sequence": 8196},
            (
                "sequence parallel over tp 8 does not divide the 8,196 tokens of a rank (sequence "
                "8,196 / cp 1): 8,192 or 8,200 tokens would"
            ),
        ),
        ({"sequence": 8196, "sequence_parallel": False}, None),
        ({"expert": 2}, "ep is 2, and llama3-405b has no experts: leave it out"),
        ({"expert_tensor": 2}, "etp is 2, and llama3-405b has no experts: leave it out"),
        ({"token_shares": (1.0,)}, "there are token_shares, and llama3-405b has no experts"),
        (
            {"num_chunks": 9},
            (
                "pp 16 x 9 chunks a stage = 144 chunks for 126 layers, an embedding and an output "
                "leaves some empty: 7 chunks a stage would do"
            ),
        ),
        (
            {"pipeline": 129, "num_chunks": 1, "data": 1, "schedule": "1f1b"},
            "pp 129 x 1 chunks a stage = 129 chunks for 126 layers",
        ),
        ({"layers_of_chunk": (126,)}, "layers_of_chunk has 1 numbers, and pp 16 x 8"),
        ({"shard_ranks": 16}, "sharding over 16 ranks has the level 'none'"),
        (
            {"shard_ranks": 48, "sharding": Sharding.ZERO3},
            "shards over 48 ranks do not divide dp 64 x cp 1 = 64 ranks: 32 would",
        ),
        ({"schedule": "1f1b"}, "one chunk on each stage, not 8"),
        ({"schedule": "zb-h1", "contiguous": 4}, "contiguous is 4 with the schedule 'zb-h1'"),
        ({"tables": TableSharding()}, "there are [tables], and llama3-405b looks nothing up"),
    ],
)
def test_a_plan_that_does_not_fit_llama_is_refused_with_the_arithmetic(
    changes: dict[str, object], message: str | None
) -> None:
    plan = replace(LLAMA_PLAN, **changes)  # type: ignore[arg-type]

    if message is None:
        check_plan(plan, LLAMA)
    else:
        assert message in refusal(plan, LLAMA, 8192)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(expert=3, data=3, global_batch=3), "ep 3 does not divide 8 experts: ep 2 would"),
        (Plan(expert=8, data=4, global_batch=4), "etp 1 x ep 8 = 8 does not divide the ranks of"),
        (Plan(tensor=64), "tp 64 does not divide 32 heads: tp 32 would"),
        (
            Plan(expert_tensor=3, data=3, global_batch=3),
            "etp 3 does not divide the width 14336 of an expert: 2 would",
        ),
        (
            Plan(token_shares=(0.5, 0.5)),
            "token_shares has 2 numbers that sum to 1: expected is one of at least 0 for each of 8",
        ),
        (Plan(token_shares=(0.2,) * 8), "sum to 1.6"),
    ],
)
def test_a_plan_that_does_not_fit_experts_is_refused(plan: Plan, message: str) -> None:
    assert message in refusal(plan, MIXTRAL)


def test_experts_may_be_divided_as_neither_tensor_nor_data_ranks_are() -> None:
    check_plan(Plan(tensor=2, data=4, expert=8, expert_tensor=1, global_batch=4), MIXTRAL)
    check_plan(Plan(token_shares=(0.3, *(0.1,) * 7)), MIXTRAL)


@pytest.mark.parametrize(
    ("model", "plan", "message"),
    [
        ("gpt2", Plan(), "2,048 tokens is longer than the 1,024 positions that gpt2 has learned"),
        ("llama4-behemoth", Plan(), "of llama4-behemoth only totals are known"),
        ("dlrm-criteo-kaggle", Plan(tensor=2), "tp is 2, and dlrm-criteo-kaggle is a recommender"),
        ("stable-diffusion-1.5", Plan(pipeline=2), "pp is 2, and stable-diffusion-1.5 is a diff"),
    ],
)
def test_a_model_that_cannot_be_laid_out_so_is_refused(
    model: str, plan: Plan, message: str
) -> None:
    assert message in refusal(plan, load_model(model))


def test_other_models_are_divided_by_data() -> None:
    for name in ("dlrm-criteo-kaggle", "stable-diffusion-1.5"):
        check_plan(Plan(data=8, micro_batch=8, global_batch=64), load_model(name))


def test_a_refusal_names_the_plan_that_has_a_name() -> None:
    assert refusal(Plan(name="mine", tensor=3), LLAMA).startswith("plan 'mine': tp 3")


@given(st.integers(1, 140))
def test_the_number_of_tensor_ranks_that_an_error_proposes_is_legal(tensor: int) -> None:
    plan = Plan(tensor=tensor)
    legal = 128 % tensor == 0  # of heads; 8 kv heads are then shared, and the width is divided

    if legal:
        check_plan(plan, LLAMA)
    else:
        proposed = re.search(r"tp (\d+) would", refusal(plan, LLAMA))
        assert proposed is not None
        check_plan(replace(plan, tensor=int(proposed[1])), LLAMA)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 400))
def test_the_batch_that_an_error_proposes_is_legal(
    micro_batch: int, data: int, global_batch: int
) -> None:
    plan = Plan(micro_batch=micro_batch, data=data, global_batch=global_batch)

    if global_batch % (micro_batch * data) == 0:
        check_plan(plan, LLAMA)
        return
    _, _, advice = refusal(plan, LLAMA).rpartition(": ")
    proposed = [int(number) for number in re.findall(r"\d+", advice)]
    assert proposed
    for number in proposed:
        assert math.isclose(number, global_batch, abs_tol=micro_batch * data)
        check_plan(replace(plan, global_batch=number), LLAMA)
