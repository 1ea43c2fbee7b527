"""States of one layer: projections, a convolution, and the scan of states chunk by chunk.

Of lightning attention the scan is the same without a convolution or steps; that by the delta rule
is `delta_rule`'s. Ranks of TENSOR divide heads and groups of them; ranks of CONTEXT take some heads
of all tokens for the convolution and the scan, and give their results back. Kernels that do a
product and something beside it are that product here.

Source:
    Dao and Gu, "Transformers are SSMs", arXiv:2405.21060, section 6; state-spaces/mamba,
    mamba_ssm/ops/triton/ssd_combined.py, `_mamba_chunk_scan_combined_fwd` and `_bwd`, which
    compute convolution, scores and states again; NVIDIA/Megatron-LM, megatron/core/ssm,
    mamba_mixer.py and mamba_context_parallel.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import cast, fused, norm_backward, state_product
from foretrace.workload.blocks.chunked import Chunked
from foretrace.workload.blocks.delta_rule import DeltaScan
from foretrace.workload.blocks.linear import Weight, columns, placed, plain, rows_divided
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import Items, Step, operator
from foretrace.workload.exchanges.activations import heads_for_tokens
from foretrace.workload.exchanges.exchange import Turn
from foretrace.workload.models.transformer import StateSpace

_WIDE = "fp32"
_NORM = "aten::_fused_rms_norm"


def state_steps(setting: Setting, states: StateSpace, *, is_last: bool) -> list[Step]:
    """From the normed input to the sum over ranks of TENSOR.

    Args:
        setting: model and plan.
        states: of the layer.
        is_last: whether its last product is the layer's.
    """
    own, hidden = setting.own_states, setting.model.hidden
    first = Weight("state projection", hidden, own.projected, states.has_bias)
    output = Weight("state output", own.inner, hidden, states.has_bias)
    ups = [
        plain(setting, (Weight(label, own.gate_rank, wide),), setting.tokens, setting.multiplied)
        for label, wide in (("state decays", own.num_decays), ("state gates", own.inner))
        if own.gate_rank
    ]
    return [
        columns(setting, (first,)),
        *ups,
        _scan_step(setting, own),
        _gate_step(setting, own),
        rows_divided(setting, output, is_last=is_last),
    ]


@dataclass(frozen=True)
class _Scan(Chunked):
    """The kernels of a scan whose states decay."""

    @property
    def num_states(self) -> int:
        """Numbers of the states of all chunks."""
        return self.num_chunks * self.states.inner * self.states.state_size

    def product(self, label: str, rows: int, columns: int, inner: int) -> Operator:
        """One product for each group of heads in each chunk."""
        count = self.num_chunks * self.states.num_groups
        return operator(label, state_product(count, (rows, columns, inner), self.dtype))

    def inputs(self) -> Items:
        """What scans read of what was projected; its activation, where nothing is convolved."""
        states = self.states
        convolved = fused((self.tokens, states.convolved), self.dtype, reads=1)
        found = (operator("convolution before states", convolved),)
        if not states.num_decays:
            return found
        steps = fused((self.tokens, states.num_decays), _WIDE, reads=1, writes=2)
        return (*found, operator("steps of heads, summed up", steps))

    def input_gradients(self) -> Items:
        """Gradients of the same."""
        states = self.states
        convolved = fused((self.tokens, states.convolved), self.dtype, reads=2)
        found = (operator("convolution before states, gradient", convolved),)
        if not states.num_decays:
            return found
        steps = fused((self.tokens, states.num_decays), _WIDE, reads=3)
        return (operator("gradients of steps", steps), *found)

    def made_again(self) -> Items:
        """What the backward pass makes once more."""
        states, wide = self.states, self.length
        heads = states.inner // states.num_groups
        return (
            *self.inputs(),
            self.product("states of chunks", states.state_size, heads, wide),
            operator("states passed on", cast((self.num_states,), _WIDE, self.dtype)),
            self.product("scores within chunks", wide, max(wide // 2, 1), states.state_size),
        )

    def forward(self) -> Items:
        """All kernels."""
        states, half = self.states, max(self.length // 2, 1)
        heads = states.inner // states.num_groups
        output = self.product("outputs of chunks", self.length, heads, half + states.state_size)
        return (*self.made_again(), output)

    def backward(self) -> Items:
        """All kernels: the scores' own gradient is multiplied out twice, once for the decays."""
        states, wide, half = self.states, self.length, max(self.length // 2, 1)
        heads, size = states.inner // states.num_groups, states.state_size
        of_decays = (self.product("gradients of decays", wide, half, heads),)
        return (
            *self.made_again(),
            self.product("gradients of states", size, heads, wide),
            operator(
                "gradients of states passed on",
                fused((self.num_states,), _WIDE, reads=2, writes=2),
            ),
            self.product("gradients of heads", wide, heads, half + size),
            self.product("gradients of what enters states", wide, size, heads),
            self.product("gradients of what reads states", wide, size, heads),
            self.product("gradients of scores", wide, half, heads),
            self.product("gradients of scores to what enters", wide, size, half),
            self.product("gradients of scores to what reads", wide, size, half),
            *(of_decays if states.num_decays else ()),
            *self.input_gradients(),
        )


def scan_step(setting: Setting, share: StateSpace) -> Step:
    """Convolution and scan of whole sequences of some heads."""
    scan = _Scan(setting, share)
    if not share.rule.is_delta:
        return Step(scan.forward(), scan.backward())
    delta = DeltaScan(setting, share)
    return Step(
        (*scan.inputs(), *delta.forward()),
        (*scan.inputs(), *delta.backward(), *scan.input_gradients()),
    )


def _scan_step(setting: Setting, own: StateSpace) -> Step:
    """Convolution and scan, with heads for tokens around them."""
    ranks = setting.plan.context
    # Fewer groups than ranks are copied.
    share = replace(
        own, num_heads=own.num_heads // ranks, num_groups=max(own.num_groups // ranks, 1)
    )
    step = scan_step(setting, share)
    if ranks == 1:
        return step
    copies = max(ranks // own.num_groups, 1)
    given = replace(own, num_groups=own.num_groups * copies).projected
    around = heads_for_tokens(setting.plan, given, (1 + own.has_norm) * own.inner)
    return Step(
        placed({Turn.FORWARD: step.forward}, around),
        placed({Turn.INPUT_GRADIENT: step.backward}, around),
    )


def _gate_step(setting: Setting, own: StateSpace) -> Step:
    """What heads give by their gates, normed within each group if at all."""
    dtype = setting.made
    if not own.has_norm:
        shape = (setting.tokens, own.inner)
        forward = operator("states by their gates", fused(shape, dtype, reads=2))
        gradient = fused(shape, dtype, reads=3, writes=2)
        return Step((forward,), (operator("states by their gates, gradient", gradient),))
    rows, width = setting.tokens * own.num_norms, own.inner // own.num_norms
    data = array((rows, width), dtype)
    normed = call(_NORM, data, f"[{width}]", data, array((width,), dtype))
    gradient = norm_backward(f"{_NORM}_backward", rows, width, dtype, num_parameters=1)
    gates = fused((rows, width), dtype, reads=1)  # the gate is read, and its gradient written
    return Step(
        (operator("norm of gated states", normed),),
        (
            operator("norm of gated states, gradient", gradient),
            operator("gradient of gates", gates),
        ),
    )
