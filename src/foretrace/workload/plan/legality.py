"""Whether a model can run under a plan; if not, the arithmetic and the nearest number that would.

Source:
    The checks are those of Megatron-LM's `TransformerConfig` and `parallel_state`, unless a
    comment names another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter, is_not

from foretrace.base import WorkloadError
from foretrace.operators import ModuleProgram
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.published import TotalsOnly
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import Positions, StateSpace, Transformer
from foretrace.workload.plan.groups import (
    axis_sizes,
    expert_tensor_size,
    group_size,
    innermost_first,
    nearest_divisor,
)
from foretrace.workload.plan.of_program import problems_of_program
from foretrace.workload.plan.plan import (
    AdaptedModule,
    Adapters,
    Axis,
    Channels,
    ContextExchange,
    Copies,
    Group,
    Plan,
    Precision,
    Scales,
    Sharding,
    chunk_layers,
    plan_of_layer,
)
from foretrace.workload.schedule.catalogue import check_order

_SIZES = (
    ("tensor", "tp"),
    ("context", "cp"),
    ("data", "dp"),
    ("pipeline", "pp"),
    ("expert", "ep"),
    ("micro_batch", "micro_batch"),
    ("global_batch", "global_batch"),
    ("sequence", "sequence"),
    ("num_chunks", "chunks"),
    ("contiguous", "contiguous"),
    ("expert_tensor", "etp"),
    ("outer_data", "outer_dp"),
    ("expert_stride", "expert_stride"),
    ("shard_ranks", "ranks of [sharding]"),
    ("bucket_bytes", "bucket_bytes"),
    ("local_steps", "local_steps"),
)
# Searches ask this of a hundred thousand plans, so that loops of Python's own would be felt.
_sizes_of = attrgetter(*(name for name, _ in _SIZES))
_is_stated = partial(is_not, None)
_AXES = sorted(Axis)
# How far shares of tokens may miss a sum of 1: they are written with a few digits.
_SHARES_TOLERANCE = 1e-3


def check_plan(plan: Plan, model: Model | ModuleProgram, num_ranks: int | None = None) -> None:
    """Refuse a plan under which the model cannot run.

    Args:
        num_ranks: ranks that there are, if that is known: the plan may take fewer.

    Raises:
        WorkloadError: for the first thing that is wrong.
    """
    for problem in _problems(plan, model, num_ranks):
        raise WorkloadError(f"plan {plan.name!r}: {problem}" if plan.name else problem)
    if isinstance(model, Transformer | ModuleProgram):
        chunk_layers(plan, model.num_layers)
    innermost_first(plan)
    group_size(plan, Group.EXPERT)
    group_size(plan, Group.SHARD)
    check_order(plan)


def _problems(plan: Plan, model: Model | ModuleProgram, num_ranks: int | None) -> Iterator[str]:
    """Everything wrong that numbers alone show, in the order in which it should be mended."""
    yield from size_problems(plan)
    if isinstance(model, Transformer):
        attention = model.attention
        key_heads = None if attention.latent is not None else attention.num_kv_heads
        yield from head_problems(plan, attention.num_heads, key_heads)
        yield from width_problems(_widths_of(plan, model))
        yield from _of_states(plan, model.states)
        yield from _of_indexer(plan, model)
        yield from _of_patches(plan, model)
        yield from token_problems(plan, attention.num_heads)
        yield from _of_positions(plan, model)
        yield from _of_experts(plan, model)
        yield from _of_layers(plan, model)
        yield from recompute_problems(plan)
        yield from _of_single_layers(plan, model.num_layers)
        if plan.tables is not None:
            yield f"there are [tables], and {model.name} looks nothing up in any: leave them out"
    elif isinstance(model, ModuleProgram):
        yield from problems_of_program(plan, model)
        if plan.recompute_of_layer is not None:
            yield f"{model.name} is a module, all of whose layers are alike: leave layers out"
    else:
        yield from _of_other_model(plan, model)
    if isinstance(model, Recommender):
        yield from _of_recommender(plan, model)
    if plan.adapters is not None:
        yield from _of_adapters(plan, plan.adapters, model)
    yield from _of_channels(plan, model)
    yield from _of_ranks(plan, num_ranks)
    yield from run_problems(plan)


def _of_adapters(plan: Plan, adapters: Adapters, model: Model | ModuleProgram) -> Iterator[str]:
    """Whether there are products that adapters can stand beside, and who holds the rest."""
    if not isinstance(model, Transformer):
        yield (
            f"there are [adapters], and {model.name} is no transformer with layers to adapt: leave "
            "them out"
        )
        return
    modules = set(adapters.modules)
    is_latent = model.attention.latent is not None and AdaptedModule.QKV in modules
    inside = modules & {AdaptedModule.UP, AdaptedModule.DOWN} if model.experts is not None else ()
    if is_latent or inside:
        what = "vectors of latent attention" if is_latent else "experts"
        yield (
            f"adapters stand beside {', '.join(sorted(modules))}, and {model.name} has {what} "
            "there, whose adapters are not known: name other modules of [adapters]"
        )
    if plan.sharding is Sharding.ZERO3:
        yield (
            "the sharding is zero3, and there are [adapters], whose frozen weights nobody is known "
            "to gather: choose none, zero1 or zero2"
        )


def size_problems(plan: Plan) -> Iterator[str]:
    """Degrees and sizes that no job has."""
    sizes = _sizes_of(plan)
    if min(filter(_is_stated, sizes)) < 1:
        for (_, key), value in zip(_SIZES, sizes, strict=True):
            if value is not None and value < 1:
                yield f"{key} is {value}: it has to be at least 1"
    if sorted(plan.order) != _AXES:
        yield (
            f"order is {[axis.value for axis in plan.order]}: it has to name each of "
            f"{', '.join(Axis)} once"
        )


def _of_channels(plan: Plan, model: Model | ModuleProgram) -> Iterator[str]:
    """Whether NCCL sends what takes the channels that are stated."""
    if isinstance(model, Recommender) and plan.channels != Channels():
        yield (
            f"there are [channels], and what {model.name}'s tables exchange is not known by "
            "channels: leave them out"
        )
    if plan.channels.expert is not None and plan.dispatch.copies is not Copies.BY_EXPERT:
        yield (
            f"channels.expert is {plan.channels.expert}, and tokens are sent by a library of its "
            f"own (dispatch.copies {plan.dispatch.copies.value}): leave one of them out"
        )


def _of_ranks(plan: Plan, num_ranks: int | None) -> Iterator[str]:
    if num_ranks is None or plan.num_ranks <= num_ranks:
        return
    others = plan.num_ranks // plan.data
    advice = (
        f"dp {num_ranks // others} would fit" if others <= num_ranks else "take smaller tp or pp"
    )
    yield f"{_product(plan)} = {plan.num_ranks:,} ranks, and there are {num_ranks:,}: {advice}"


def _product(plan: Plan) -> str:
    sizes = axis_sizes(plan)
    return " x ".join(f"{axis.value} {sizes[axis]}" for axis in plan.order)


def run_problems(plan: Plan) -> Iterator[str]:
    """What numbers say of batch, schedule and sharding, whatever the model."""
    at_once = plan.micro_batch * plan.data
    if plan.global_batch % at_once:
        below = plan.global_batch // at_once * at_once
        nearest = f"{below:,} or {below + at_once:,}" if below else f"{at_once:,}"
        yield (
            f"micro_batch {plan.micro_batch} x dp {plan.data} = {at_once:,} sequences at once do "
            f"not divide a global batch of {plan.global_batch:,}: {nearest} would be divided"
        )
    if plan.contiguous is not None and plan.schedule != "interleaved":
        yield (
            f"contiguous is {plan.contiguous} with the schedule {plan.schedule!r}, which has no "
            "use for it: choose 'interleaved', or leave it out"
        )
    # Where rows of tables are divided in a host, the shard ranks are the host's.
    divides_rows = plan.tables is not None and plan.tables.divides_rows_in_hosts
    if plan.sharding is Sharding.NONE and (plan.shard_ranks or 1) > 1 and not divides_rows:
        yield (
            f"sharding over {plan.shard_ranks} ranks has the level 'none', which divides nothing: "
            "choose zero1, zero2 or zero3, or leave the ranks out"
        )
    yield from _of_scales(plan.precision)
    yield from _of_local_steps(plan)


def _of_scales(precision: Precision) -> Iterator[str]:
    """Whether there are operands whose rows could have scales of their own."""
    if precision.scales is Scales.ROW and not precision.scales_rows:
        yield (
            f"precision.scales is 'row' and products take {precision.products}: scales of rows "
            "are for fp8; leave them out"
        )
    elif precision.scales_rows and precision.parameters == precision.products:
        yield (
            f"parameters are gathered in {precision.products} and precision.scales is 'row': only "
            "weights with one scale can be; set precision.parameters to bf16, or scales to "
            "'tensor'"
        )
    if precision.wide_weight_gradients and not precision.scales_rows:
        yield (
            "precision.wide_weight_gradients needs precision.scales 'row' and products of fp8: "
            "leave it out"
        )


def _of_local_steps(plan: Plan) -> Iterator[str]:
    """Whether there are copies that could do steps by themselves."""
    if plan.local_steps is None:
        return
    divided = plan.sharding is not Sharding.NONE
    copies = plan.data * plan.context // (plan.shard_ranks or plan.data * plan.context)
    if plan.expert > 1 or (copies < 2 if divided else plan.data * plan.context < 2):  # noqa: PLR2004
        yield (
            f"local_steps is {plan.local_steps}, and no copies of a whole model hold dense "
            "parameters alone and could do steps by themselves: state [sharding] ranks below dp "
            "times cp, or the level 'none', with ep 1"
        )


def recompute_problems(plan: Plan) -> Iterator[str]:
    """Whether parts of layers are named where they are done again."""
    if plan.recompute_modules is not None and plan.recompute is not Recompute.SELECTIVE:
        names = ", ".join(plan.recompute_modules)
        yield (
            f"recompute is {plan.recompute.value!r}, and modules of [memory] names {names}: set "
            "recompute to 'selective', or leave the modules out"
        )


def _of_single_layers(plan: Plan, num_layers: int) -> Iterator[str]:
    """Whether what single layers compute again is said of each."""
    words = plan.recompute_of_layer
    if words is None:
        return
    if len(words) != num_layers:
        yield (
            f"layers of [memory] has {len(words)} words, and the model {num_layers} layers: say of "
            "each what it computes again, first to last"
        )
    else:
        for layer in range(num_layers):
            plan_of_layer(plan, layer)
    if plan.recompute_modules is not None:
        yield "layers of [memory] says what each computes again: leave modules out"


def head_problems(plan: Plan, heads: int | None, key_value_heads: int | None) -> Iterator[str]:
    """Whether ranks of TENSOR divide heads; `None`: nothing tells how many, or they need not."""
    tensor = plan.tensor
    if heads is not None and heads % tensor:
        nearest = nearest_divisor(heads, tensor)
        yield f"tp {tensor} does not divide {heads} heads: tp {nearest} would"
        return
    # Beyond the number of key-value heads, several ranks hold the same one.
    if key_value_heads is not None and key_value_heads % tensor and tensor % key_value_heads:
        nearest = nearest_divisor(math.gcd(key_value_heads, heads or 0), tensor)
        yield (
            f"tp {tensor} does not divide {key_value_heads} kv heads, nor do they divide it: "
            f"tp {nearest} would"
        )


def _of_states(plan: Plan, states: StateSpace | None) -> Iterator[str]:
    """Whether ranks divide heads that carry states, and the groups of them.

    Source:
        NVIDIA/Megatron-LM, megatron/core/ssm, mamba_mixer.py and mamba_context_parallel.py.
    """
    if states is None:
        return
    heads, groups = states.num_heads, states.num_groups
    tensor = nearest_divisor(math.gcd(heads, groups), plan.tensor)
    if tensor != plan.tensor:
        what = f"{groups} groups of" if groups % plan.tensor else f"{heads}"
        yield f"tp {plan.tensor} does not divide {what} heads with states: tp {tensor} would"
        return
    own, ranks = groups // plan.tensor, plan.context
    if (heads // plan.tensor) % ranks or (own % ranks and ranks % own):
        yield (
            f"cp {ranks} does not divide {heads} heads with states in {groups} groups over tp "
            f"{plan.tensor}: cp {nearest_divisor(own, ranks)} would"
        )


def _of_indexer(plan: Plan, model: Transformer) -> Iterator[str]:
    """Whether a rank of CONTEXT has all keys that its queries may pick."""
    is_whole = plan.context == 1 or plan.context_exchange is ContextExchange.ALL_GATHER
    if model.attention.indexer is not None and not is_whole:
        yield (
            f"queries of {model.name} pick keys of the whole sequence (index_heads), which context "
            f"ranks have with context_exchange {ContextExchange.ALL_GATHER.value!r}, not "
            f"{plan.context_exchange.value!r}"
        )


def width_problems(widths: Iterable[tuple[str, int, int | None, str]]) -> Iterator[str]:
    """Whether ranks divide widths; of each the key and number of ranks, and whose it is."""
    for key, ranks, width, of_what in widths:
        if width is not None and (ranks < 1 or width % ranks):
            nearest = nearest_divisor(width, ranks)
            yield f"{key} {ranks} does not divide the width {width} {of_what}: {nearest} would"


def _widths_of(plan: Plan, model: Transformer) -> Iterator[tuple[str, int, int | None, str]]:
    if model.num_dense_layers:
        yield "tp", plan.tensor, model.feed_forward.width, "of the feed-forward part"
    experts = model.experts
    if experts is not None:
        yield "etp", expert_tensor_size(plan), experts.width, "of an expert"
        if experts.num_shared:
            width = experts.num_shared * experts.shared_width
            yield "tp", plan.tensor, width, "of the shared experts"


def token_problems(plan: Plan, heads: int | None) -> Iterator[str]:
    """Whether ranks of CONTEXT and TENSOR divide a sequence as the plan says."""
    if plan.context > 1:
        yield from _of_context(plan, heads)
    own = plan.sequence // plan.context
    if plan.sequence_parallel and own % plan.tensor:
        yield (
            f"sequence parallel over tp {plan.tensor} does not divide the {own:,} tokens of a rank "
            f"(sequence {plan.sequence:,} / cp {plan.context}): {_multiples(own, plan.tensor)} "
            "tokens would be divided"
        )


def _of_patches(plan: Plan, model: Transformer) -> Iterator[str]:
    patches = model.patches
    if patches is not None:
        if plan.sequence != patches.num_tokens:
            yield (
                f"a sequence of {plan.sequence:,} tokens is no picture of {patches.image} pixels: "
                f"in patches of {patches.size} it has {patches.num_tokens:,} tokens"
            )
        if plan.context > 1:
            yield (
                f"cp is {plan.context}, and {model.name} has no causal mask whose work its ranks "
                "share out: leave cp out"
            )


def _of_positions(plan: Plan, model: Transformer) -> Iterator[str]:
    if model.positions is Positions.LEARNED and plan.sequence > model.context:
        yield (
            f"a sequence of {plan.sequence:,} tokens is longer than the {model.context:,} "
            f"positions that {model.name} has learned: take at most these"
        )


def _of_context(plan: Plan, heads: int | None) -> Iterator[str]:
    if plan.context_exchange is ContextExchange.ALL_TO_ALL:
        parts, text = plan.context, f"cp {plan.context} pieces"
        if heads is not None and heads % (plan.tensor * parts):
            yield (
                f"tp {plan.tensor} x cp {parts} = {plan.tensor * parts} does not divide {heads} "
                "heads, which an all-to-all exchange has to: cp "
                f"{nearest_divisor(heads // plan.tensor, parts)} would"
            )
    else:
        # Each rank takes one piece from the front and one from the back, so that all have as
        # much to do under a causal mask.
        parts, text = 2 * plan.context, f"2 x cp {plan.context} = {2 * plan.context} pieces"
    if plan.sequence % parts:
        yield (
            f"{text} do not divide a sequence of {plan.sequence:,} tokens: "
            f"{_multiples(plan.sequence, parts)} would be divided"
        )


def _multiples(number: int, of: int) -> str:
    below = number // of * of
    return f"{below:,} or {below + of:,}" if below else f"{of:,}"


def expert_problems(plan: Plan, count: int | None) -> Iterator[str]:
    """Whether ranks of EXPERT divide so many experts."""
    if count is not None and count % plan.expert:
        nearest = nearest_divisor(count, plan.expert)
        yield f"ep {plan.expert} does not divide {count} experts: ep {nearest} would"


def _of_experts(plan: Plan, model: Transformer) -> Iterator[str]:
    experts = model.experts
    if experts is None:
        if plan.expert > 1 or plan.token_shares is not None:
            what = f"ep is {plan.expert}" if plan.expert > 1 else "there are token_shares"
            yield f"{what}, and {model.name} has no experts: leave it out"
        if plan.expert_tensor not in {None, 1, plan.tensor}:
            yield f"etp is {plan.expert_tensor}, and {model.name} has no experts: leave it out"
        return
    yield from expert_problems(plan, experts.count)
    shares = plan.token_shares
    if shares is not None and (
        len(shares) != experts.count or min(shares) < 0 or abs(sum(shares) - 1) > _SHARES_TOLERANCE
    ):
        yield (
            f"token_shares has {len(shares)} numbers that sum to {sum(shares):.4g}: expected is "
            f"one of at least 0 for each of {experts.count} experts, with a sum of 1"
        )


def _of_layers(plan: Plan, model: Transformer) -> Iterator[str]:
    chunks = plan.pipeline * plan.num_chunks
    # The embedding and the output may each stand where a layer would: Llama 3, arXiv:2407.21783.
    most = model.num_layers + 2
    if chunks > most:
        nearest = max(model.num_layers // plan.pipeline, 1)
        advice = (
            f"pp {model.num_layers} at most"
            if plan.pipeline > most
            else f"{nearest} chunk{'s' if nearest > 1 else ''} a stage would do"
        )
        yield (
            f"pp {plan.pipeline} x {plan.num_chunks} chunks a stage = {chunks} chunks for "
            f"{model.num_layers} layers, an embedding and an output leaves some empty: {advice}"
        )


def _of_other_model(plan: Plan, model: Model) -> Iterator[str]:
    if isinstance(model, TotalsOnly):
        yield (
            f"of {model.name} only totals are known, so no plan can lay out its layers: "
            "describe its shape in a file of its own"
        )
    for name, key in _SIZES:
        value = getattr(plan, name)
        if name in {"tensor", "context", "pipeline", "expert", "num_chunks"} and value > 1:
            yield (
                f"{key} is {value}, and {model.name} is a {model.kind} model, whose layers only "
                f"dp divides: leave {key} out"
            )


def _of_recommender(plan: Plan, model: Recommender) -> Iterator[str]:
    if plan.sharding is not Sharding.NONE:
        yield (
            f"sharding is {plan.sharding.value!r}, and {model.name} divides its tables already, "
            "while its networks are small: set it to 'none'; [tables] says how tables are divided"
        )
    id_bytes = 8 if plan.tables is None else plan.tables.id_bytes
    if id_bytes not in {4, 8}:
        yield f"id_bytes of [tables] is {id_bytes}: ids are numbers of 4 or 8 bytes"
    at_once = plan.micro_batch * plan.data
    if plan.global_batch != at_once:
        yield (
            f"rows of {model.name}'s tables are updated in every backward pass, so gradients are "
            f"not accumulated: micro_batch {plan.micro_batch} x dp {plan.data} = {at_once:,}, and "
            f"global_batch is {plan.global_batch:,}: make them equal"
        )
