"""How many weights low-rank adapters have, on a rank and in all, and what training them takes."""

from __future__ import annotations

from dataclasses import replace

from foretrace.operators import ModuleProgram
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.models.flops import Convention, Flops, flops, with_adapters
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import Layer, Transformer
from foretrace.workload.plan.plan import AdaptedModule, Plan


def adapter_count(setting: Setting, layer: Layer) -> int:
    """Parameters of one layer's adapters on a rank."""
    adapters = setting.plan.adapters
    if adapters is None:
        return 0
    shapes = _shapes(setting, layer)
    widths = (sum(shape) for one in adapters.modules for shape in shapes.get(one, ()))
    return adapters.rank * sum(widths)


def adapter_weights(model: Transformer, plan: Plan) -> int:
    """Of all layers, and of modules that predict further tokens."""
    setting = Setting(model, replace(plan, tensor=1))
    behind = [model.layers[-1]] * model.num_prediction_modules
    return sum(adapter_count(setting, layer) for layer in (*model.layers, *behind))


def plan_flops(
    model: Model | ModuleProgram,
    plan: Plan,
    *,
    convention: Convention = Convention.CAUSAL,
    recompute: Recompute = Recompute.NONE,
) -> Flops:
    """FLOPs of one token, or sample, of what a plan trains of a model.

    Raises:
        WorkloadError: if the model does not say enough.
    """
    whole = flops(model, plan.sequence, convention=convention, recompute=recompute)
    if plan.adapters is None or not isinstance(model, Transformer):
        return whole
    return with_adapters(whole, adapter_weights(model, plan))


def _shapes(setting: Setting, layer: Layer) -> dict[AdaptedModule, tuple[tuple[int, int], ...]]:
    """Inputs and outputs, on a rank, of the products that adapters may stand beside."""
    model, attention = setting.model, setting.model.attention
    fuses, hidden = setting.plan.implementation.fuses_projections, model.hidden
    found: dict[AdaptedModule, tuple[tuple[int, int], ...]] = {}
    if layer.has_attention:
        outputs = [
            count * attention.head_size for count in (setting.heads, *2 * (setting.key_heads,))
        ]
        found[AdaptedModule.QKV] = _beside(hidden, outputs, is_one=fuses)
        found[AdaptedModule.OUTPUT] = ((setting.heads * attention.value_size, hidden),)
    if layer.is_dense:
        own = setting.columns(model.feed_forward.width)
        ups = [own] * (2 if model.feed_forward.is_gated else 1)
        found[AdaptedModule.UP] = _beside(hidden, ups, is_one=fuses)
        found[AdaptedModule.DOWN] = ((own, hidden),)
    return found


def _beside(inputs: int, outputs: list[int], *, is_one: bool) -> tuple[tuple[int, int], ...]:
    """Products of the same input: one of all, or one each."""
    return ((inputs, sum(outputs)),) if is_one else tuple((inputs, one) for one in outputs)
