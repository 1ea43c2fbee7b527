"""What autograd of PyTorch saves in a real layer is what the list of kept tensors says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from foretrace.workload import (
    PYTORCH,
    Attention,
    FeedForward,
    Implementation,
    Layer,
    Norm,
    Plan,
    Precision,
    Recompute,
    Transformer,
    load_model,
)
from foretrace.workload.footprint.kept import layer_kept
from foretrace.workload.footprint.parts import head_bytes, layer_bytes
from foretrace.workload.footprint.sizes import sizes_of

_BATCH, _SEQUENCE = 2, 24


def small(*, kv_heads: int, is_gated: bool = True, norm: Norm = Norm.RMS) -> Transformer:
    """A transformer whose layer is the module below."""
    base = load_model("llama3-8b")
    assert isinstance(base, Transformer)
    attention = Attention(
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


class RootMeanSquare(nn.Module):
    """A norm of several operators, in fp32."""

    def __init__(self, size: int) -> None:
        """Scale every one of `size` channels."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Normalised and scaled."""
        wide = inputs.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(inputs) * self.weight


class TorchLayer(nn.Module):
    """A layer of torchtitan's Llama in plain PyTorch, or of GPT-2 with LayerNorm and GELU."""

    def __init__(self, model: Transformer) -> None:
        """Modules of the model's sizes."""
        super().__init__()
        attention, hidden, width = model.attention, model.hidden, model.feed_forward.width
        self.heads, self.kv_heads = attention.num_heads, attention.num_kv_heads
        self.size, self.is_gated = attention.head_size, model.feed_forward.is_gated
        norm = RootMeanSquare if model.norm is Norm.RMS else nn.LayerNorm
        self.first, self.second = norm(hidden), norm(hidden)
        self.query = nn.Linear(hidden, self.heads * self.size, bias=False)
        self.key = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.value = nn.Linear(hidden, self.kv_heads * self.size, bias=False)
        self.output = nn.Linear(self.heads * self.size, hidden, bias=False)
        self.gate = nn.Linear(hidden, width, bias=False)
        self.up = nn.Linear(hidden, width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, inputs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attention and feed-forward part, each beside a residual."""
        middle = inputs + self.attend(self.first(inputs), turns)
        normed = self.second(middle)
        if self.is_gated:
            inner = functional.silu(self.gate(normed)) * self.up(normed)
        else:
            inner = functional.gelu(self.up(normed))
        return middle + self.down(inner)

    def attend(self, inputs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attention with rotary positions and repeated keys."""
        batch, sequence, _ = inputs.shape
        query = rotated(self.query(inputs).view(batch, sequence, -1, self.size), turns)
        key = rotated(self.key(inputs).view(batch, sequence, -1, self.size), turns)
        value = self.value(inputs).view(batch, sequence, -1, self.size)
        copies = self.heads // self.kv_heads
        if copies > 1:
            key, value = (each.repeat_interleave(copies, dim=2) for each in (key, value))
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        joined = mixed.transpose(1, 2).contiguous().view(batch, sequence, -1)
        return self.output(joined)


def rotated(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Queries or keys, turned by their positions as complex numbers."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None, :]).flatten(3).type_as(heads)


def saved_bytes(module: nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes of all distinct storages that autograd saves, without parameters and tables."""
    storages: dict[int, int] = {}
    known = {each.untyped_storage().data_ptr() for each in module.parameters()}
    known |= {each.untyped_storage().data_ptr() for each in inputs[1:]}
    alive: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # else its address would be used again
        if tensor.untyped_storage().data_ptr() not in known and tensor.numel() > 1:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = module(*inputs)
    assert result.requires_grad
    return sum(storages.values())


def plan_of(dtype: torch.dtype, **implementation: object) -> Plan:
    """A plan of one device that runs the module above."""
    number = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    shape = Implementation(
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
        implementation=replace(shape, **implementation),
    )


def torch_bytes(model: Transformer, dtype: torch.dtype) -> int:
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
    dtype: torch.dtype, kv_heads: int
) -> None:
    model, plan = small(kv_heads=kv_heads), plan_of(dtype)

    kept = layer_bytes(model, plan, PYTORCH, model.layers[0]).kept_bytes

    assert kept == torch_bytes(model, dtype)


def test_a_layer_with_gelu_and_layer_norm_saves_what_the_list_says() -> None:
    # In fp32 alone: a CPU keeps LayerNorm's statistics in the format of its input, a GPU in fp32.
    model = small(kv_heads=4, is_gated=False, norm=Norm.LAYER_WITHOUT_BIAS)
    plan = plan_of(torch.float32)

    kept = layer_bytes(model, plan, PYTORCH, model.layers[0]).kept_bytes

    assert kept == torch_bytes(model, torch.float32)


class Head(nn.Module):
    """The last norm, the output projection and the loss."""

    def __init__(self, model: Transformer) -> None:
        """Modules of the model's sizes."""
        super().__init__()
        self.norm = RootMeanSquare(model.hidden)
        self.output = nn.Linear(model.hidden, model.vocabulary, bias=False)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        logits = self.output(self.norm(inputs))
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def test_a_plain_loss_keeps_fp32_log_probabilities_and_no_logits() -> None:
    model, plan = small(kv_heads=4), plan_of(torch.bfloat16)
    head = Head(model).to(torch.bfloat16)
    inputs = torch.randn(_BATCH, _SEQUENCE, model.hidden, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, model.vocabulary, (_BATCH, _SEQUENCE))

    kept = head_bytes(model, plan, PYTORCH).kept_bytes

    assert kept == saved_bytes(head, inputs, labels)


def selective_bytes(model: Transformer) -> int:
    """What PyTorch's selective checkpoint stores under torchtitan's rule, with the input."""
    num_products = 0

    def policy(_context: object, operator: object, *_: object, **__: object) -> CheckpointPolicy:
        nonlocal num_products
        is_product = operator is torch.ops.aten.mm.default
        num_products += is_product
        is_attention = "scaled_dot_product" in str(operator)
        if is_attention or (is_product and num_products % 2 == 1):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    stores, _ = create_selective_checkpoint_contexts(policy)
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
    return sum(stored.values()) + inputs.untyped_storage().nbytes()


def test_recompute_of_operators_stores_what_the_list_says() -> None:
    model = small(kv_heads=1)
    plan = replace(plan_of(torch.bfloat16), recompute=Recompute.SELECTIVE)

    kept = layer_bytes(model, plan, PYTORCH, model.layers[0]).kept_bytes

    assert kept == selective_bytes(model)


def test_the_list_names_every_tensor_once() -> None:
    model, plan = small(kv_heads=4), plan_of(torch.bfloat16)
    sizes = sizes_of(model, plan, PYTORCH)

    kept = layer_kept(model, Layer(0, False, None), plan, software=PYTORCH, sizes=sizes)

    labels = [each.label for each in kept]
    assert len(labels) == len(set(labels))
