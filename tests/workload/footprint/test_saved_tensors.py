"""What autograd of PyTorch saves in a real layer is what the list of kept tensors says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.workload import (
    PYTORCH,
    FeedForward,
    Implementation,
    Layer,
    ModelAttention,
    Norm,
    NormPlace,
    Plan,
    Precision,
    Recompute,
    Transformer,
)
from foretrace.workload.footprint.kept import layer_kept
from foretrace.workload.footprint.parts import head_bytes, layer_bytes
from foretrace.workload.footprint.sizes import sizes_of
from tests.models import transformer

torch = pytest.importorskip("torch")

from torch import Tensor, dtype, nn  # noqa: E402  after the skip

from tests.workload.footprint.networks import (  # noqa: E402  after the skip
    Checkpointed,
    Head,
    TorchLayer,
    selective_stores,
)

_BATCH, _SEQUENCE = 2, 24


def small(*, kv_heads: int, is_gated: bool = True, norm: Norm = Norm.RMS) -> Transformer:
    """A transformer whose layer is the module below."""
    base = transformer("llama3-8b")
    attention = ModelAttention(
        num_heads=4,
        num_kv_heads=kv_heads,
        head_size=8,
        has_input_bias=False,
        has_output_bias=False,
        has_query_key_norm=False,
        has_sinks=False,
        latent=None,
    )
    return replace(
        base,
        hidden=32,
        vocabulary=96,
        attention=attention,
        feed_forward=FeedForward(width=80, is_gated=is_gated, has_bias=False),
        norm=norm,
    )


def saved_bytes(module: nn.Module, *inputs: Tensor) -> int:
    """Bytes of all distinct storages that autograd saves, without parameters and tables."""
    storages: dict[int, int] = {}
    known = {each.untyped_storage().data_ptr() for each in module.parameters()}
    known |= {each.untyped_storage().data_ptr() for each in inputs[1:]}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        alive.append(tensor)  # else its address would be used again
        if tensor.untyped_storage().data_ptr() not in known and tensor.numel() > 1:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = module(*inputs)
    assert result.requires_grad
    return sum(storages.values())


def plan_of(dtype: dtype) -> Plan:
    """A plan of one device that runs the module above."""
    number = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    implementation = Implementation(
        fuses_norms=False,
        fuses_activations=False,
        fuses_rotary=False,
        fuses_loss=False,
        fuses_projections=False,
        repeats_keys=True,
        selective="operators",
    )
    return Plan(
        micro_batch=_BATCH,
        global_batch=_BATCH,
        sequence=_SEQUENCE,
        precision=Precision(products=number, activations=number),
        implementation=implementation,
    )


def torch_bytes(model: Transformer, dtype: dtype) -> int:
    """What PyTorch saves in one layer."""
    torch.manual_seed(0)
    layer = TorchLayer(model).to(dtype)
    inputs = torch.randn(_BATCH, _SEQUENCE, model.hidden, dtype=dtype, requires_grad=True)
    half = model.attention.head_size // 2
    turns = torch.polar(torch.ones(_SEQUENCE, half), torch.rand(_SEQUENCE, half))
    return saved_bytes(layer, inputs, turns)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_a_llama_layer_in_eager_pytorch_saves_what_the_list_says(
    dtype: dtype, kv_heads: int
) -> None:
    model, plan = small(kv_heads=kv_heads), plan_of(dtype)

    kept = layer_bytes(model, plan, PYTORCH, layer=model.layers[0]).kept_bytes

    assert kept == torch_bytes(model, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("place", [NormPlace.BEHIND, NormPlace.BOTH])
def test_a_layer_with_norms_behind_saves_what_the_list_says(place: NormPlace, dtype: dtype) -> None:
    model = replace(small(kv_heads=1), norm_place=place)

    kept = layer_bytes(model, plan_of(dtype), PYTORCH, layer=model.layers[0]).kept_bytes

    assert kept == torch_bytes(model, dtype)


def test_a_layer_with_gelu_and_layer_norm_saves_what_the_list_says() -> None:
    # In fp32 alone: a CPU keeps LayerNorm's statistics in the format of its input, a GPU in fp32.
    model = small(kv_heads=4, is_gated=False, norm=Norm.LAYER_WITHOUT_BIAS)
    plan = plan_of(torch.float32)

    kept = layer_bytes(model, plan, PYTORCH, layer=model.layers[0]).kept_bytes

    assert kept == torch_bytes(model, torch.float32)


@pytest.mark.parametrize("is_capped", [False, True])
def test_a_plain_loss_keeps_fp32_log_probabilities_and_no_logits(is_capped: bool) -> None:
    model, plan = replace(small(kv_heads=4), caps_logits=is_capped), plan_of(torch.bfloat16)
    head = Head(model).to(torch.bfloat16)
    inputs = torch.randn(_BATCH, _SEQUENCE, model.hidden, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, model.vocabulary, (_BATCH, _SEQUENCE))

    kept = head_bytes(model, plan, PYTORCH).kept_bytes

    assert kept == saved_bytes(head, inputs, labels)


def selective_bytes(model: Transformer) -> int:
    """What PyTorch's selective checkpoint stores under torchtitan's rule, with the input."""
    stores, _ = selective_stores()
    layer = TorchLayer(model).to(torch.bfloat16)
    inputs = torch.randn(_BATCH, _SEQUENCE, model.hidden, dtype=torch.bfloat16)
    half = model.attention.head_size // 2
    turns = torch.polar(torch.ones(_SEQUENCE, half), torch.rand(_SEQUENCE, half))
    with stores:
        layer(inputs.requires_grad_(), turns)
    stored: dict[int, int] = {}
    for tensor in torch.utils._pytree.tree_leaves(stores.storage):
        value = getattr(tensor, "val", tensor)
        if isinstance(value, torch.Tensor):
            stored[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    return sum(stored.values()) + int(inputs.untyped_storage().nbytes())


@pytest.mark.slow
def test_recompute_of_operators_stores_what_the_list_says() -> None:
    model = small(kv_heads=1)
    plan = replace(plan_of(torch.bfloat16), recompute=Recompute.SELECTIVE)

    kept = layer_bytes(model, plan, PYTORCH, layer=model.layers[0]).kept_bytes

    assert kept == selective_bytes(model)


@pytest.mark.slow
# PyTorch's own compiler still uses torch.jit.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compiled_recompute_of_operators_keeps_what_the_list_says() -> None:
    model, plan = small(kv_heads=1), plan_of(torch.bfloat16)
    compiled = replace(plan.implementation, launch="compiled")
    plan = replace(plan, recompute=Recompute.SELECTIVE, implementation=compiled)
    # Without rotation: complex numbers do not compile.
    layer = TorchLayer(model).to(torch.bfloat16)
    inputs = torch.randn(_BATCH, _SEQUENCE, model.hidden, dtype=torch.bfloat16)
    torch._dynamo.reset()
    network = torch.compile(Checkpointed(layer), backend="aot_eager_decomp_partition")

    kept = layer_bytes(model, plan, PYTORCH, layer=model.layers[0]).kept_bytes

    assert kept == saved_bytes(network, inputs.requires_grad_())


def test_the_list_names_every_tensor_once() -> None:
    model, plan = small(kv_heads=4), plan_of(torch.bfloat16)
    sizes = sizes_of(model, plan, PYTORCH)

    kept = layer_kept(Layer(0, False, None), software=PYTORCH, sizes=sizes)

    labels = [each.label for each in kept]
    assert len(labels) == len(set(labels))
