"""What is written in other software's words reads back as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.workload import (
    Axis,
    ContextExchange,
    Implementation,
    Overlap,
    Plan,
    Precision,
    Recompute,
    RecomputeModule,
    Scales,
    Sharding,
    Transformer,
    complete,
    draft_of_configuration,
    load_model,
    model_names,
    model_of_configuration,
    read_configuration,
    write_configuration,
)
from tests.models import transformer

LAYERS = 24
MODEL = load_model("gpt2-large")
POWERS = st.sampled_from((1, 2, 4))


@st.composite
def megatron_plans(draw: st.DrawFn) -> Plan:
    """Plans that Megatron-LM's arguments can say."""
    tensor, context, data, pipeline = (draw(POWERS) for _ in range(4))
    chunks = draw(st.sampled_from((1, 2))) if pipeline > 1 else 1
    half = draw(st.sampled_from(("bf16", "fp16", "fp32")))
    products = draw(st.sampled_from((half, "fp8", "mxfp8", "nvfp4")))
    products = half if half == "fp32" else products
    gradients = {"bf16": draw(st.sampled_from(("bf16", "fp32"))), "fp16": "fp16"}.get(half, "fp32")
    flag = st.booleans()
    recompute = draw(st.sampled_from(Recompute))
    is_named = recompute is Recompute.SELECTIVE and draw(flag)
    modules = draw(st.lists(st.sampled_from(RecomputeModule), min_size=1, unique=True))
    return Plan(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=pipeline,
        order=draw(
            st.sampled_from(
                (
                    (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE),
                    (Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE, Axis.DATA),
                )
            )
        ),
        micro_batch=draw(POWERS),
        global_batch=draw(st.sampled_from((64, 128))),
        sequence=1024,
        num_chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        contiguous=draw(st.sampled_from((None, 4))) if chunks > 1 else None,
        layers_of_chunk=draw(
            st.sampled_from((None, (LAYERS - 1, *[0] * (pipeline * chunks - 2), 1)))
            if pipeline * chunks > 1
            else st.none()
        ),
        sequence_parallel=draw(flag),
        context_exchange=draw(st.sampled_from(ContextExchange)),
        sharding=draw(st.sampled_from(Sharding)),
        recompute=recompute,
        recompute_modules=tuple(modules) if is_named else None,
        overlap=Overlap(
            tensor=draw(flag),
            expert=draw(flag),
            pipeline=draw(flag),
            gradients=draw(flag),
            parameters=draw(flag),
        ),
        precision=Precision(
            products=products,
            activations=half,
            gate_inputs="fp8" if products == "fp8" and draw(flag) else None,
            attention="fp8" if products == "fp8" and draw(flag) else None,
            parameters="fp8" if products == "fp8" and draw(flag) else half,
            gradients=gradients,
            reduced=gradients,
            optimizer_bytes=8.0 if half == "fp32" else draw(st.sampled_from((12.0, 8.0))),
        ),
        implementation=Implementation(
            attention=draw(st.sampled_from(("flash", "plain"))),
            fuses_activations=draw(flag),
            fuses_rotary=draw(flag),
            fuses_loss=draw(flag),
            fuses_residuals=draw(flag),
            fuses_gradients=draw(flag),
            measures_scales=products == "fp8" and draw(flag),
            launch=draw(st.sampled_from(("eager", "graph"))),
        ),
    )


@given(plan=megatron_plans(), name=st.sampled_from(("megatron", "bridge")))
@settings(max_examples=150, deadline=None)
def test_plans_go_there_and_back(plan: Plan, name: str) -> None:
    written = write_configuration(plan, name)

    assert written.lost == ()
    back = draft_of_configuration(read_configuration(written.text, name)).plan()
    assert back.order == plan.order
    assert back.precision == plan.precision
    assert back.overlap == plan.overlap
    assert back.layers_of_chunk == plan.layers_of_chunk


@st.composite
def fsdp_plans(draw: st.DrawFn, software: str) -> Plan:
    """Plans that torchtitan, DeepSpeed or Accelerate can say."""
    is_titan = software == "torchtitan"
    tensor = draw(POWERS) if software != "deepspeed" else 1
    data = draw(st.sampled_from((2, 4, 8)))
    level = draw(st.sampled_from(("none", "zero3") if is_titan else tuple(Sharding)))
    half = draw(st.sampled_from(("bf16", "fp32") if is_titan else ("bf16", "fp16")))
    is_narrow = is_titan and half == "bf16" and draw(st.booleans())
    scales = draw(st.sampled_from(Scales)) if is_narrow else Scales.TENSOR
    titan = Implementation(
        fuses_residuals=True,
        fuses_projections=False,
        repeats_keys=True,
        fuses_gradients=False,
        copies_shards=True,
        selective="operators",
        stops_recompute_early=True,
        measures_scales=is_narrow and scales is Scales.TENSOR,
        launch=draw(st.sampled_from(("compiled", "eager"))),
    )
    micro = draw(POWERS)
    return Plan(
        tensor=tensor,
        data=data,
        sequence_parallel=is_titan and draw(st.booleans()),
        overlap=Overlap(tensor=is_titan and draw(st.booleans())),
        micro_batch=micro if software != "accelerate" else 1,
        global_batch=micro * data * 2 if software != "accelerate" else 1,
        sequence=4096 if is_titan else 2048,
        sharding=Sharding(level),
        shard_ranks=data // 2
        if is_titan and data > 2 and level == "zero3" and draw(st.booleans())
        else None,
        recompute=draw(st.sampled_from(Recompute)) if is_titan else Recompute.NONE,
        precision=Precision(
            products="fp8" if is_narrow else half,
            scales=scales,
            wide_weight_gradients=scales is Scales.ROW and draw(st.booleans()),
            activations=half,
            parameters=half,
            gradients="fp32",
            reduced="fp32" if is_titan else draw(st.sampled_from((half, "fp32"))),
            optimizer_bytes=12.0,
        ),
        implementation=titan if is_titan else Implementation(),
        bucket_bytes=10**8 if software == "deepspeed" and level != "none" else None,
    )


@given(plan=fsdp_plans("torchtitan"))
@settings(max_examples=60, deadline=None)
def test_torchtitan_goes_there_and_back(plan: Plan) -> None:
    assert write_configuration(plan, "torchtitan").lost == ()


@given(plan=fsdp_plans("deepspeed"))
@settings(max_examples=60, deadline=None)
def test_deepspeed_goes_there_and_back(plan: Plan) -> None:
    # It says neither how long sequences are nor what it fuses.
    assert write_configuration(plan, "deepspeed").lost == ()


def test_accelerate_goes_there_and_back() -> None:
    text = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nfsdp_config:\n"
        "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\nparallelism_config:\n"
        "  parallelism_config_tp_size: 2\n  parallelism_config_dp_replicate_size: 2\n"
        "  parallelism_config_dp_shard_size: 4\n"
    )
    plan = draft_of_configuration(read_configuration(text)).plan()
    written = write_configuration(replace(plan, sequence_parallel=False), "accelerate")
    back = read_configuration(written.text, "accelerate")

    assert written.lost == ()
    assert back.fields == read_configuration(text).fields
    assert back.num_ranks == 16


@pytest.mark.parametrize("name", model_names())
def test_models_go_there_and_back(name: str) -> None:
    model = load_model(name)
    if not isinstance(model, Transformer):
        pytest.skip(f"{name} is no transformer: Megatron-LM's arguments do not describe it")
    written = write_configuration(Plan(), "megatron", model)
    if written.lost:  # said by name: norms without biases, windows by chunk, experts that differ
        assert all(one.split(" = ")[0].count(".") == 1 for one in written.lost)
        return
    back = model_of_configuration(read_configuration(written.text, "megatron"))

    for field in ("num_layers", "hidden", "vocabulary", "attention", "reach", "positions", "norm"):
        assert getattr(back, field) == getattr(model, field), field
    assert isinstance(back, Transformer)
    assert back.ties_embeddings == model.ties_embeddings
    if model.experts is not None and model.experts.num_shared < 2:
        assert back.experts is not None
        assert replace(back.experts, shared_width=0) == replace(model.experts, shared_width=0)


def test_most_models_can_be_said() -> None:
    models = [one for one in map(load_model, model_names()) if isinstance(one, Transformer)]
    lost = {one.name for one in models if write_configuration(Plan(), "megatron", one).lost}

    assert len(models) > 50
    assert len(lost) < 0.4 * len(models)


def test_what_has_no_counterpart_is_named() -> None:
    plan = Plan(pipeline=4, schedule="zb-h1", global_batch=64)

    assert "pipeline.schedule = zb-h1" in write_configuration(plan, "megatron").lost
    assert "parallelism.pp = 4" in write_configuration(plan, "deepspeed").lost
    model = transformer("llama3-8b")
    lost = write_configuration(plan, "torchtitan", model).lost
    assert "the shape of the model: this software has models by name" in lost


def test_ranks_are_kept() -> None:
    plan = complete(
        draft_of_configuration(
            read_configuration("--tensor-model-parallel-size 2 --bf16")
        ).with_keys({"global_batch": 64, "dp": 8}),
        MODEL,
    )
    for name in ("megatron", "accelerate"):
        written = write_configuration(plan, name)
        assert read_configuration(written.text, name).num_ranks == 16, name
