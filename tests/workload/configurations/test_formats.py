"""Configurations of other software become plans and models."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    PlanDraft,
    Sharding,
    complete,
    draft_of_configuration,
    load_model,
    load_plan,
    model_of_configuration,
    read_configuration,
    together,
)
from foretrace.workload.configurations.formats import FORMATS, holds_configuration

MEGATRON = """
GPUS=8; NODES=2
MODEL=( --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336
        --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu  # gated
        --max-position-embeddings 8192 --position-embedding-type rope --normalization RMSNorm
        --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 128256 )
torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py ${MODEL[@]} \\
    --tensor-model-parallel-size ${TP:-2} --pipeline-model-parallel-size 2 --sequence-parallel \\
    --num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 1 --global-batch-size 64 \\
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --recompute-granularity full \\
    --recompute-method uniform --recompute-num-layers 1 --lr 1e-4 --cpu-offloading --unheard-of 3
"""
TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
"""
TORCHTITAN_PYTHON = """
from torchtitan.trainer import Trainer
def _base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=ModelSpec(name="llama3", flavor="70B"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=2 * 4096, max_context_length=4096
        ),
        activation_checkpoint=FullAC.Config(),
    )
def large() -> Trainer.Config:
    config = _base()
    config.parallelism = ParallelismConfig(tensor_parallel_degree=4)
    config.parallelism.context_parallel_degree = 2
    return config
"""
BRIDGE = """
from megatron.bridge import AutoBridge
SIZES = {(2, 1): [["embedding", "decoder"], ["decoder"] * 2 + ["loss"]]}
def _common() -> ConfigContainer:
    return ConfigContainer(
        ddp=DDP(use_distributed_optimizer=True, overlap_grad_reduce=True, grad_reduce_in_fp32=True),
        train=TrainingConfig(global_batch_size=32, micro_batch_size=1),
        dataset=Data(seq_length=4096),
        mixed_precision="bf16_with_fp8_current_scaling_mixed",
    )
def qwen3_8b_pretrain_16gpu_h100_config(pp: int = 2) -> ConfigContainer:
    cfg = _common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").to_megatron_provider(load=False)
    cfg.model.tensor_model_parallel_size = 4 if pp > 1 else 8
    cfg.model.pipeline_model_parallel_size = pp
    if pp == 2:
        cfg.model.sequence_parallel = True
    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)
    cfg.ddp.grad_reduce_in_fp32 = False
    return cfg
"""
DEEPSPEED = """{"train_batch_size": 128, "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e7,
    "offload_optimizer": {"device": "cpu"}},
  "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "what": 1}"""
ACCELERATE = """
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_reshard_after_forward: false
  fsdp_version: 2
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
"""
TEXTS = {
    "megatron": MEGATRON,
    "torchtitan": TORCHTITAN,
    "bridge": BRIDGE,
    "deepspeed": DEEPSPEED,
    "accelerate": ACCELERATE,
}


def draft(text: str) -> PlanDraft:
    return draft_of_configuration(read_configuration(text))


def test_megatron_arguments_become_a_plan_and_a_model() -> None:
    found = read_configuration(MEGATRON)
    model = model_of_configuration(found)
    plan = complete(draft_of_configuration(found), model)

    assert (plan.tensor, plan.pipeline, plan.data, plan.num_chunks) == (2, 2, 4, 4)
    assert (plan.micro_batch, plan.global_batch, plan.sequence) == (1, 64, 8192)
    assert (plan.schedule, plan.recompute.value, plan.sharding) == (
        "interleaved",
        "full",
        Sharding.ZERO1,
    )
    assert plan.sequence_parallel
    assert plan.overlap.gradients
    assert not plan.overlap.parameters
    own = load_model("llama3-8b")
    for name in ("num_layers", "hidden", "attention", "feed_forward", "norm", "positions"):
        assert getattr(model, name) == getattr(own, name), name
    assert getattr(model, "vocabulary", 0) == 128256  # divided by 256 already


def test_what_has_no_counterpart_and_what_is_unknown_is_named() -> None:
    notes = read_configuration(MEGATRON).notes

    assert any("cpu-offloading (activations in host memory)" in note for note in notes)
    assert any("not understood: unheard-of" in note for note in notes)
    assert not any(" lr" in note for note in notes)  # no matter for a step


def test_a_variable_that_nothing_sets_is_named_where_it_matters() -> None:
    with pytest.raises(WorkloadError, match=r"'\$MBS', and nothing sets MBS: set it in front"):
        read_configuration("--micro-batch-size $MBS --tensor-model-parallel-size 2")

    found = read_configuration("--micro-batch-size 2 --seq-length 64 --save $OUT")
    assert found.fields["micro_batch"] == 2


def test_yaml_of_megatron() -> None:
    found = read_configuration(
        "MODEL_ARGS:\n  --num-layers: 12\n  --tensor-model-parallel-size: 2\n  --bf16: true\n"
    )
    assert found.fields["tensor"] == 2
    assert found.fields["precision.products"] == "bf16"
    nested = "model_parallel:\n  tensor_model_parallel_size: 4\nlanguage_model:\n  num_layers: 3\n"
    assert read_configuration(nested).fields["tensor"] == 4


@pytest.mark.parametrize(
    ("layout", "layers"),
    [
        ("Et*3|(tt|)*2L", (3, 2, 2, 0)),
        ("Ett|tt|t,m,L", (2, 2, 1)),
        ("E|(t|)*3L", (0, 1, 1, 1, 0)),
    ],
)
def test_layouts_of_stages(layout: str, layers: tuple[int, ...]) -> None:
    text = f"--pipeline-model-parallel-size 1 --pipeline-model-parallel-layout '{layout}'"
    assert read_configuration(text).fields["layers_of_chunk"] == layers


def test_stages_with_fewer_layers_at_the_ends() -> None:
    ends = "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3"
    text = f"--num-layers 12 --pipeline-model-parallel-size 4 {ends} --vocab-size 128"
    text += " --hidden-size 64 --num-attention-heads 4"
    assert read_configuration(text).fields["layers_of_chunk"] == (1, 4, 4, 3)
    both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    text = text.replace(ends, both).replace("layers 12", "layers 14")
    assert read_configuration(text).fields["layers_of_chunk"] == (3, 4, 4, 3)


@pytest.mark.parametrize(
    ("flags", "products", "gradients"),
    [
        ("--bf16", "bf16", "fp32"),
        ("--bf16 --grad-reduce-in-bf16", "bf16", "bf16"),
        ("--fp16", "fp16", "fp16"),
        ("--bf16 --fp8-format hybrid", "fp8", "fp32"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8", "fp32"),
        ("--bf16 --fp4-format e2m1", "nvfp4", "fp32"),
    ],
)
def test_number_formats(flags: str, products: str, gradients: str) -> None:
    fields = read_configuration(f"--micro-batch-size 1 --seq-length 8 {flags}").fields
    assert (fields["precision.products"], fields["precision.gradients"]) == (products, gradients)


def test_torchtitan_batch_and_copies_follow_from_the_ranks() -> None:
    found = read_configuration(TORCHTITAN)
    model = model_of_configuration(found)
    plan = complete(draft_of_configuration(found), model, 32)

    assert model.name == "llama3-8b"
    assert (plan.tensor, plan.data, plan.shard_ranks) == (2, 16, 8)
    assert (plan.micro_batch, plan.global_batch) == (2, 32)
    assert plan.sharding is Sharding.ZERO3
    assert plan.precision.products == "fp8"
    assert plan.implementation.launch == "compiled"
    assert plan.implementation.selective == "operators"  # what torchtitan does


@pytest.mark.parametrize(
    ("text", "scales", "is_wide", "parameters"),
    [
        ("", "tensor", False, "bf16"),
        ("enable_fsdp_float8_all_gather = true", "tensor", False, "fp8"),
        ('recipe_name = "rowwise"', "row", False, "bf16"),
        ('recipe_name = "rowwise_with_gw_hp"', "row", True, "bf16"),
    ],
)
def test_recipes_of_float8_are_read(text: str, scales: str, is_wide: bool, parameters: str) -> None:
    written = f"{TORCHTITAN}\n[quantize.linear.float8]\n{text}\n"
    precision = draft_of_configuration(read_configuration(written)).plan().precision

    assert (precision.scales, precision.wide_weight_gradients) == (scales, is_wide)
    assert precision.parameters == parameters


def test_float8_in_a_model_of_torchtitan_scales_rows(tmp_path: Path) -> None:
    made = "model_registry('8B', converters=[Float8LinearConverter.Config(filter_fqns=['x'])])"
    path = tmp_path / "config.py"
    path.write_text(
        "def model_registry(flavor, converters=()):\n"
        "    return ModelSpec(name='llama3', flavor=flavor)\n"
        f"def large() -> Trainer.Config:\n    return Trainer.Config(model_spec={made})\n"
    )
    precision = draft_of_configuration(read_configuration(f"{path}:large")).plan().precision

    assert (precision.products, precision.scales) == ("fp8", "row")


def test_an_unknown_recipe_of_float8_is_named() -> None:
    written = f'{TORCHTITAN}\n[quantize.linear.float8]\nrecipe_name = "columnwise"\n'
    with pytest.raises(WorkloadError, match="'columnwise', which has no counterpart: expected"):
        read_configuration(written)


def test_python_of_torchtitan_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text(TORCHTITAN_PYTHON)
    found = read_configuration(f"{path}:large")
    plan = complete(draft_of_configuration(found), model_of_configuration(found), 16)

    assert (plan.tensor, plan.context, plan.data) == (4, 2, 2)
    assert (plan.micro_batch, plan.sequence, plan.recompute.value) == (2, 4096, "full")
    with pytest.raises(WorkloadError, match="name one behind a colon, of large"):
        read_configuration(f"{path}:small")


def test_recipes_of_bridge_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(BRIDGE)
    found = read_configuration(path)
    model = model_of_configuration(found)
    plan = complete(draft_of_configuration(found), model)

    assert model.name == "qwen3-8b"
    assert plan.num_ranks == 16
    assert (plan.tensor, plan.pipeline, plan.data) == (4, 2, 2)
    assert plan.sequence_parallel
    assert plan.overlap.tensor
    assert plan.precision.products == "fp8"
    assert plan.precision.reduced == "fp32"  # the mixed precision's counts, not the ddp's
    assert plan.implementation.measures_scales


def test_python_beside_a_recipe_is_followed(tmp_path: Path) -> None:
    package = tmp_path / "recipes"
    package.mkdir()
    (package / "__init__.py").write_text("from recipes.common import base\n")
    (package / "common.py").write_text("SIZE = 2\ndef base(n):\n    return Config(train=T(x=n))\n")
    text = (
        "from recipes import base\nfrom .common import SIZE\n"
        "def one() -> Config:\n    cfg = base(1)\n"
        "    cfg.model.tensor_model_parallel_size = 2 * SIZE\n    return cfg\n"
    )
    path = package / "one.py"
    path.write_text(text)

    assert read_configuration(path).fields["tensor"] == 4


def test_deepspeed() -> None:
    found = draft(DEEPSPEED)
    plan = found.plan()

    assert (plan.global_batch, plan.micro_batch, plan.sharding) == (128, 2, Sharding.ZERO2)
    assert plan.overlap.gradients
    assert plan.bucket_bytes == 100_000_000
    assert plan.precision.gradients == "fp32"
    assert any("offload_optimizer.device (states of the optimizer" in one for one in found.notes)
    assert any("not understood: what" in one for one in found.notes)
    with pytest.raises(WorkloadError, match="fill in a template's placeholders first"):
        read_configuration('{"train_batch_size" : CONFIG_BATCH_SIZE}')
    with pytest.raises(WorkloadError, match="expected is 0, 1, 2 or 3"):
        read_configuration('{"zero_optimization": {"stage": 7}}')


def test_accelerate() -> None:
    plan = complete(draft(ACCELERATE).with_keys({"global_batch": 64}), load_model("llama3-8b"))

    assert (plan.num_ranks, plan.tensor, plan.data, plan.shard_ranks) == (16, 2, 8, 4)
    assert not plan.reshard_after_forward
    assert plan.recompute.value == "full"


def test_a_configuration_of_several_files() -> None:
    found = together([read_configuration(MEGATRON), read_configuration(DEEPSPEED)])

    assert found.fields["sharding"] == "zero2"
    assert found.fields["tensor"] == 1  # DeepSpeed's own default counts: it is the later one
    assert found.model is not None
    with pytest.raises(ValueError, match="found must hold"):
        together([])


@pytest.mark.parametrize("name", TEXTS)
def test_each_format_recognises_its_own_alone(name: str) -> None:
    found = next(one.name for one in FORMATS if one.recognises(TEXTS[name]))

    assert found == name


def test_plans_and_models_are_loaded_from_configurations(tmp_path: Path) -> None:
    path = tmp_path / "args.sh"
    path.write_text(MEGATRON)

    assert load_plan(path).plan().tensor == 2
    assert getattr(load_model(path), "num_layers", 0) == 32
    assert not holds_configuration("llama3-8b")
    assert not holds_configuration(tmp_path / "missing.sh")


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(WorkloadError, match="is no configuration that is known"):
        read_configuration("nothing\nof the kind")
    with pytest.raises(WorkloadError, match="cannot be read as a configuration"):
        read_configuration("missing.sh")
    with pytest.raises(WorkloadError, match="expected is one of deepspeed, torchtitan"):
        read_configuration("--tp 8", "megatrom")
    with pytest.raises(WorkloadError, match="describes no model: DeepSpeed"):
        model_of_configuration(read_configuration(DEEPSPEED))
    with pytest.raises(WorkloadError, match="whose shape is not described"):
        model_of_configuration(read_configuration(TORCHTITAN.replace("8B", "9B")))
