"""The feed-forward part of a layer: dense, or experts, and tokens on their way to these and back.

Tokens are put in order of their experts, sent (an all-to-all over EXPERT), put in order again,
multiplied expert by expert, and taken back the same way. Where the load is not even, all of it is
that of the most loaded rank, for which the others wait.

Source:
    NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from foretrace.base import WorkloadError
from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import (
    batched_product,
    cast,
    elementwise,
    product,
    row_sum,
    rows_of_table,
    scaled_rows,
    softmax,
    top,
)
from foretrace.workload.blocks.linear import (
    Weight,
    accumulation,
    columns,
    quantising,
    quantising_again,
    rows_divided,
    weight_cast,
    weight_cast_again,
    weight_gradient,
)
from foretrace.workload.blocks.pointwise import activation_step, clamp_step
from foretrace.workload.blocks.setting import Setting, divided
from foretrace.workload.blocks.signatures import OperatorCall
from foretrace.workload.blocks.steps import Step, operator, within
from foretrace.workload.exchanges.activations import around_experts, copies_of, gathers_tokens
from foretrace.workload.exchanges.exchange import Anchored, Exchange, Turn, standing
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.models.transformer import Experts
from foretrace.workload.plan.plan import AdaptedModule, Copies, Group

_WIDE = "fp32"


def feed_forward_steps(
    setting: Setting, width: int, *, label: str = "", is_last: bool = True
) -> list[Step]:
    """From the normed input to the sum over ranks of TENSOR.

    Args:
        setting: model and plan.
        width: of the hidden layer, over all ranks.
        label: put before each name.
        is_last: whether its last product is the layer's.
    """
    said, hidden = setting.model.feed_forward, setting.model.hidden
    own = setting.columns(width)
    prefix = f"{label} " if label else ""
    count = 2 if said.is_gated else 1
    weights: tuple[Weight, ...] = (
        Weight(f"{prefix}up projection", hidden, count * own, said.has_bias, AdaptedModule.UP),
    )
    if said.is_gated and not setting.plan.implementation.fuses_projections:
        weights = (
            Weight(f"{prefix}gate projection", hidden, own, said.has_bias, AdaptedModule.UP),
            Weight(f"{prefix}up projection", hidden, own, said.has_bias, AdaptedModule.UP),
        )
    down = Weight(f"{prefix}down projection", own, hidden, said.has_bias, AdaptedModule.DOWN)
    return [
        columns(setting, weights),
        clamp_step(setting, setting.tokens, own),
        activation_step(setting, setting.tokens, own, is_gated=said.is_gated),
        rows_divided(setting, down, is_last=is_last),
    ]


@dataclass(frozen=True)
class Load:
    """Tokens of one microbatch as experts see them; a token of two experts counts twice."""

    setting: Setting
    experts: Experts

    @cached_property
    def own(self) -> int:
        """Tokens that this rank routes."""
        return self.setting.own_tokens

    @cached_property
    def num_local(self) -> int:
        """Experts on this rank."""
        return divided(self.experts.count, self.setting.plan.expert, "experts", "ep")

    @cached_property
    def sent(self) -> int:
        """Tokens that a rank sends, or, if it is more, that the most loaded one receives."""
        chosen = self.own * self.experts.num_active
        is_even = self.setting.plan.token_shares is None
        most = chosen if is_even else max(chosen, sum(self._received))
        copies = copies_of(self.setting.plan, self.experts.num_active)
        return round(most * copies / self.experts.num_active)

    @property
    def is_copied_once(self) -> bool:
        """Whether the exchange itself reads tokens in place, and sums what comes back."""
        plan = self.setting.plan
        return plan.expert > 1 and plan.dispatch.copies is not Copies.BY_EXPERT

    @property
    def is_sorted(self) -> bool:
        """Whether kernels of their own put tokens in order of experts where they arrive."""
        if self.is_copied_once:
            return not self.setting.plan.dispatch.orders_tokens
        return self.num_local > 1

    @cached_property
    def by_expert(self) -> tuple[int, ...]:
        """Tokens of each expert of the most loaded rank, from all that divide it."""
        times = self.setting.expert_tensor if gathers_tokens(self.setting.plan) else 1
        return tuple(times * one for one in self._received)

    @cached_property
    def total(self) -> int:
        """Tokens of all experts of the most loaded rank."""
        return sum(self.by_expert)

    @cached_property
    def around(self) -> tuple[Anchored, ...]:
        """What ranks exchange around the experts' products."""
        width = self.setting.model.hidden
        plan = self.setting.plan
        chosen = self.experts.num_active
        return around_experts(plan, chosen, sent=self.sent * width, total=self.total * width)

    def exchanged(self, group: Group, turn: Turn, *, is_behind: bool) -> tuple[Exchange, ...]:
        """What of it a group exchanges before or behind some products."""
        return standing(self.around, turn, is_behind=is_behind, group=group)

    @cached_property
    def _received(self) -> tuple[int, ...]:
        """By expert of the most loaded rank, of what one rank of EXPERT_TENSOR receives."""
        all_tokens = self.own * self.setting.plan.expert * self.experts.num_active
        shares = self.setting.plan.token_shares
        if shares is None:
            each = -(-all_tokens // self.experts.count)
            return (each,) * self.num_local
        if len(shares) != self.experts.count:
            raise WorkloadError(
                f"token_shares has {len(shares)} numbers, model {self.setting.model.name!r} has "
                f"{self.experts.count} experts: give one share for each"
            )
        by_rank = [
            shares[first : first + self.num_local]
            for first in range(0, self.experts.count, self.num_local)
        ]
        return tuple(round(all_tokens * share) for share in max(by_rank, key=sum))


def expert_steps(setting: Setting, experts: Experts) -> list[Step]:
    """From the normed input to the sum of what experts gave, shared ones among them."""
    load = Load(setting, experts)
    width = setting.model.hidden
    shared: list[Step] = []
    if experts.num_shared:
        all_shared = experts.num_shared * experts.shared_width
        shared = feed_forward_steps(setting, all_shared, label="shared expert", is_last=False)
        shared[1:-1] = within(RecomputeModule.EXPERT_ACTIVATION, shared[1:-1])
        shared = within(RecomputeModule.SHARED_EXPERTS, shared)
    # Beside messages, shared experts stand between them and the operator that waits for them.
    is_beside = setting.plan.overlap.expert
    between = shared if is_beside else []
    steps = [_router(load), *_there(load, between), *_grouped(load), *_back(load)]
    steps += [] if is_beside else shared
    if shared:
        total = elementwise("aten::add", (load.own, width), setting.made, reads=2)
        sums = operator("sum of routed and shared", total)
        steps.append(Step((sums,), is_needed_again=False))
    branches = 2 + bool(shared)  # router, experts, shared experts take the same input
    added = elementwise("aten::add", (load.own, width), setting.made, reads=2)
    first = Step((), (operator("sum of input gradients", added),) * (branches - 1))
    return [first, *steps]


def _router(load: Load) -> Step:
    setting, experts = load.setting, load.experts
    width, dtype = setting.model.hidden, setting.multiplied_wide
    weight = Weight("router", width, experts.count + int(experts.has_shared_gate))
    scores = (load.own, experts.count)
    gradient = softmax("aten::_softmax_backward_data", scores, _WIDE, reads=2)
    return Step(
        (
            operator("router", product(load.own, weight.outputs, width, dtype)),
            operator("router softmax", softmax("aten::_softmax", scores, _WIDE)),
            operator("choice of experts", top(*scores, experts.num_active, _WIDE)),
        ),
        (
            operator("router softmax gradient", gradient),
            operator("router input gradient", product(load.own, width, weight.outputs, dtype)),
            *weight_gradient(setting, weight, load.own, dtype),
        ),
    )


def _there(load: Load, between: list[Step]) -> list[Step]:
    """Tokens in order of experts, sent, and in order again where a rank has several."""
    own, chosen = load.own, load.own * load.experts.num_active
    width, kept = load.setting.model.hidden, load.setting.made
    copied = operator("tokens in order of experts", rows_of_table(own, width, chosen, kept))
    by_token = (own, load.experts.num_active, width)
    summed = operator("sum of token gradients", row_sum(by_token, kept, 1))
    delay = len(between)
    # What is copied once is put in order where it arrives, and summed there before it goes home.
    first = [
        *(() if load.is_copied_once else (Step((copied,), (summed,)),)),
        Step(load.exchanged(Group.EXPERT, Turn.FORWARD, is_behind=False), delay=delay),
        *between,
        Step((), load.exchanged(Group.EXPERT, Turn.INPUT_GRADIENT, is_behind=True), delay=delay),
    ]
    over = Group.EXPERT_TENSOR
    rest = [
        Step(
            load.exchanged(over, Turn.FORWARD, is_behind=False),
            load.exchanged(over, Turn.INPUT_GRADIENT, is_behind=True),
        )
    ]
    if load.is_sorted:
        sort = operator("tokens by expert", _sorted(load))
        back = operator("token gradients by rank", _sorted(load))
        rest.append(Step((sort,), (back,)))
    return [*first, *rest]


def _sorted(load: Load) -> OperatorCall:
    """Tokens of a rank's experts change places."""
    return rows_of_table(load.total, load.setting.model.hidden, load.total, load.setting.made)


def _back(load: Load) -> list[Step]:
    """The same way back; a token's results are weighed and summed."""
    own, chosen = load.own, load.own * load.experts.num_active
    width, kept = load.setting.model.hidden, load.setting.made
    message = load.exchanged(Group.EXPERT, Turn.FORWARD, is_behind=True)
    by_token = (own, load.experts.num_active, width)
    awaited_at = (-1,) if message else ()
    summed = operator("weighted sum of experts", row_sum(by_token, kept, 1), *awaited_at)
    spread = operator("gradients by expert", rows_of_table(own, width, chosen, kept))
    out = load.exchanged(Group.EXPERT, Turn.INPUT_GRADIENT, is_behind=False)
    found: list[Step] = []
    if not load.setting.plan.dispatch.fuses_permutation:
        rows = (load.total, width)
        weighed = operator("rows by their weights", scaled_rows(rows, kept))
        gradient = operator("gradients of weighed rows", scaled_rows(rows, kept))
        found.append(Step((weighed,), (gradient,)))
    if load.is_sorted:
        sort = operator("tokens by rank", _sorted(load))
        back = operator("gradients by expert in order", _sorted(load))
        found.append(Step((sort,), (back,)))
    over = Group.EXPERT_TENSOR
    found.append(
        Step(
            load.exchanged(over, Turn.FORWARD, is_behind=True),
            load.exchanged(over, Turn.INPUT_GRADIENT, is_behind=False),
        )
    )
    if load.is_copied_once:
        found.append(Step(message, out))
    else:
        found.append(Step((*message, summed), (spread, *out)))
    return found


def _grouped(load: Load) -> list[Step]:
    """Products of all experts of a rank: as one in a captured graph, else one for each expert.

    Source:
        NVIDIA/TransformerEngine, transformer_engine/common/gemm/cublaslt_gemm.cu,
        `nvte_multi_tensor_gemm`: a product for each expert, on a few streams.
    """
    setting, experts = load.setting, load.experts
    said, hidden = setting.model.feed_forward, setting.model.hidden
    own = divided(experts.width, setting.expert_tensor, "columns of an expert", "etp")
    gate = 2 if said.is_gated else 1
    clamp = clamp_step(setting, load.total, own)
    activation = activation_step(setting, load.total, own, is_gated=said.is_gated)
    return [
        _products(load, "experts' up projection", (gate * own, hidden)),
        *within(RecomputeModule.EXPERT_ACTIVATION, [clamp, activation]),
        _products(load, "experts' down projection", (hidden, own)),
        *([_biases(load)] if said.has_bias and not _is_captured(load) else []),
    ]


def _is_captured(load: Load) -> bool:
    """Whether experts are kernels for all of them, which a captured graph launches."""
    return load.setting.plan.implementation.launch == "graph"


def _biases(load: Load) -> Step:
    """Biases of the experts' results, weighed as these are: in fp32, expert by expert.

    Source:
        NVIDIA/Megatron-LM, megatron/core/transformer/moe/experts.py, `TEGroupedMLP._apply_bias`.
    """
    width, made = load.setting.model.hidden, load.setting.made
    label = "experts' biases"
    forward: list[Operator] = []
    backward = [operator(f"{label} in fp32, gradient", cast((load.total, width), made, _WIDE))]
    for rows in filter(None, load.by_expert):
        shape = (rows, width)
        weighed = operator(f"{label} weighed", scaled_rows(shape, _WIDE))
        added = operator(label, elementwise("aten::add", shape, _WIDE, reads=2))
        forward += [weighed, added]
        backward += [
            operator(f"{label}, gradient of results", cast(shape, _WIDE, made)),
            weighed,
            operator(f"{label}, gradient", row_sum(shape, _WIDE, 0)),
            weighed,
            operator(f"{label}, gradient of weights", row_sum(shape, _WIDE, 1)),
        ]
    joined = cast((load.total, width), _WIDE, _WIDE)
    forward.append(operator(f"{label} joined", joined))
    forward.append(operator(f"{label} in {made}", cast((load.total, width), _WIDE, made)))
    return Step(tuple(forward), tuple(backward))


def _products(load: Load, label: str, shape: tuple[int, int]) -> Step:
    outputs, inputs = shape
    setting = load.setting
    dtype = setting.multiplied
    # Rows of all experts are quantised at once.
    read = f"input of {label}", (load.total, inputs)
    given = f"gradient of {label}", (load.total, outputs)
    forward = [*quantising(setting, *read)]
    gradients = [*quantising(setting, *given)]
    weights = [*quantising_again(setting, *read), *quantising_again(setting, *given)]
    for count, rows in _groups(load):
        matrix = (count * outputs, inputs)
        forward += weight_cast(setting, label, matrix)
        gradients += weight_cast_again(setting, label, matrix)
        forward.append(operator(label, batched_product(count, (rows, outputs, inputs), dtype)))
        one = batched_product(count, (rows, inputs, outputs), dtype)
        gradients.append(operator(f"{label}, input gradient", one))
        one = batched_product(count, (outputs, inputs, rows), setting.multiplied_for_weights)
        weights.append(operator(f"{label}, weight gradient", one, is_weight_gradient=True))
        if setting.accumulates and not setting.plan.implementation.fuses_gradients:
            weights.append(accumulation(setting, label, matrix))
    return Step(tuple(forward), (*gradients, *weights))


def _groups(load: Load) -> list[tuple[int, int]]:
    """Experts that are multiplied together, and tokens of each; none for an expert without."""
    sizes = load.by_expert
    if len(set(sizes)) == 1 and _is_captured(load):
        return [(len(sizes), sizes[0])]
    return [(1, size) for size in sizes if size]
