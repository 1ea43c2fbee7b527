"""FLOPs of a model: of one token, or of one sample, by one of the conventions in use.

Papers count differently, so a FLOP/s or an MFU means nothing without its convention. Counted are
products of matrices (and convolutions), a multiply-add as two; norms, activations, softmax and
lookups are not. The backward pass costs twice the forward pass: every product has two. A frozen
weight's has one, for the inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from foretrace.answer import Plain
from foretrace.base import WorkloadError
from foretrace.operators import (
    ModuleProgram,
    OperatorClass,
    ProgramPart,
    attention_shape,
    operator_class,
    work_of,
)
from foretrace.workload.models.parameters import (
    Model,
    attention_weights,
    feed_forward_weights,
    indexer_weights,
    parameters,
    pooling_weights,
    router_weights,
    state_weights,
)
from foretrace.workload.models.parts import (
    ATTENTION,
    BOTTOM,
    CROSS,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    INDEXER,
    OUTPUT,
    POSITIONS,
    PREDICTION,
    ROUTER,
    SHARED_EXPERTS,
    STATES,
    TOP,
    WHOLE,
)
from foretrace.workload.models.published import TotalsOnly
from foretrace.workload.models.recommender import Interaction, Recommender
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import (
    Layer,
    Patches,
    Pooling,
    Reach,
    ReachKind,
    StateSpace,
    Transformer,
)

PRODUCTS = "products"  # of a module's own code
SCORES = "attention scores"  # products of queries and keys, and of their softmax and values
SCANS = "state scans"  # products within chunks and of chunks with states
INTERACTION = "interaction"
ADAPTERS = "low-rank adapters"
_BACKWARD = 2  # of the forward pass: for the inputs, and for the weights


class Convention(StrEnum):
    """What is counted for a token of a transformer."""

    # Scores of earlier tokens only, half of all: Megatron-Bridge, Llama 3.
    CAUSAL = "causal"
    # Scores of all tokens of the sequence, masked or not: PaLM's MFU, llm-foundry.
    FULL = "full"
    # 6 N: two for every active parameter, three times; no scores. Kaplan et al. 2020 leave
    # embeddings out; many use all parameters.
    PARAMETERS = "parameters"
    PARAMETERS_WITHOUT_EMBEDDINGS = "parameters-without-embeddings"


@dataclass(frozen=True)
class FlopsOfPart(Plain):
    """FLOPs of one part of a model."""

    part: str
    forward: float
    backward: float
    recompute: float


@dataclass(frozen=True)
class Flops(Plain):
    """FLOPs of one token, or of one sample."""

    json_also = ("forward", "backward", "recompute", "training")

    unit: str  # "token", "sample", "denoising step"
    convention: Convention | None  # `None`: there is only one way
    sequence: int | None  # tokens of the sequence that the token stands in
    parts: tuple[FlopsOfPart, ...]

    @property
    def forward(self) -> float:
        """Of the forward pass."""
        return sum(part.forward for part in self.parts)

    @property
    def backward(self) -> float:
        """Of the backward pass."""
        return sum(part.backward for part in self.parts)

    @property
    def recompute(self) -> float:
        """Of what is computed a second time; model FLOPs do not count it, hardware FLOPs do."""
        return sum(part.recompute for part in self.parts)

    @property
    def training(self) -> float:
        """Of forward and backward pass: what MFU counts."""
        return self.forward + self.backward


def flops(
    model: Model | ModuleProgram,
    sequence: int | None = None,
    *,
    convention: Convention = Convention.CAUSAL,
    recompute: Recompute = Recompute.NONE,
    has_output: bool = True,
) -> Flops:
    """FLOPs of one token of a transformer, of one sample of another model.

    Args:
        model: any model; one of which only totals are known has them by parameters alone.
        sequence: tokens of the sequence; transformers whose scores are counted need it.
        convention: see there; other models than transformers have only one.
        recompute: what a training step computes again; transformers only.
        has_output: whether a transformer's output projection counts.

    Raises:
        WorkloadError: if the sequence is missing, or the model does not say enough.
    """
    if isinstance(model, TotalsOnly) and model.flops_per_sample is not None:
        return _plain({WHOLE: model.flops_per_sample}, "sample")
    if isinstance(model, Transformer | TotalsOnly):
        if convention in {Convention.PARAMETERS, Convention.PARAMETERS_WITHOUT_EMBEDDINGS}:
            return _by_parameters(model, convention)
        if isinstance(model, Transformer):
            if sequence is None or sequence < 1:
                raise WorkloadError(
                    f"FLOPs of {model.name!r} by the convention {convention.value!r} depend on the "
                    f"length of the sequence, which is {sequence}: give a number of tokens, or use "
                    f"{Convention.PARAMETERS.value!r}"
                )
            counting = _Counting(sequence, convention, has_output=has_output)
            return _of_transformer(model, counting, recompute)
        raise WorkloadError(
            f"only totals are published of {model.name!r}, so its attention cannot be counted: "
            f"use the convention {Convention.PARAMETERS.value!r}"
        )
    if isinstance(model, ModuleProgram):
        return _of_program(model, convention)
    if isinstance(model, Recommender):
        return _plain(_of_recommender(model), "sample")
    counts: Counter[str] = Counter()
    for piece in model.pieces():
        counts[piece.part] += piece.flops
    return _plain(dict(counts), "denoising step")


def with_adapters(whole: Flops, weights: int) -> Flops:
    """Where so many weights of low-rank adapters are trained in the place of the model's own.

    Gradients of frozen weights are left out; scores and scans have no weights, and an indexer is
    trained by gradients of its own.
    """
    halved = {part.part: _BACKWARD for part in whole.parts if part.part not in {SCORES, SCANS}}
    parts = tuple(
        replace(part, backward=part.backward / halved.get(part.part, 1))
        if part.part != INDEXER  # nothing goes through what it picks
        else replace(part, backward=0.0)
        for part in whole.parts
    )
    own = 2.0 * weights
    return replace(whole, parts=(*parts, FlopsOfPart(ADAPTERS, own, _BACKWARD * own, 0.0)))


def mean_keys(sequence: int, reach: Reach | None, convention: Convention) -> float:
    """Keys that a token of a sequence meets in one layer, on average.

    The causal half is taken of the square, as all do: S/2, not (S+1)/2.
    """
    whole = float(sequence)
    if reach is not None and reach.num_tokens < sequence:
        limit = reach.num_tokens
        if reach.kind is ReachKind.CHUNK:
            num_chunks, rest = divmod(sequence, limit)
            whole = (num_chunks * limit * limit + rest * rest) / sequence
        elif convention is Convention.CAUSAL:
            # Half a square, less the half square that lies outside of the window.
            return limit - limit * limit / (2 * sequence)
        else:
            whole = float(limit)
    return whole / 2 if convention is Convention.CAUSAL else whole


@dataclass(frozen=True)
class _Counting:
    sequence: int
    convention: Convention
    has_output: bool

    def scores(self, model: Transformer, reach: Reach | None) -> float:
        attention = model.attention
        per_key = 2 * attention.num_heads * (attention.score_size + attention.value_size)
        if attention.indexer is not None:
            reach = attention.indexer.reach
        # An encoder masks nothing.
        convention = self.convention if model.patches is None else Convention.FULL
        return per_key * mean_keys(self.sequence, reach, convention)

    def indexing(self, model: Transformer, reach: Reach | None = None) -> float:
        """Scores by which tokens are picked: of all that came before, or of those within reach."""
        indexer = model.attention.indexer
        if indexer is None:
            return 0.0
        per_key = 2 * indexer.num_heads * indexer.head_size
        return per_key * mean_keys(self.sequence, reach, self.convention)

    def indexer_backward(self, model: Transformer) -> float:
        """What trains an indexer, of one layer: what it reads has no gradient from it.

        Source:
            DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556, section 2.1.1, sparse training: its
            input is detached, and its loss is over the tokens that it picked.
        """
        attention = model.attention
        if attention.indexer is None:
            return 0.0
        weights = 2.0 * indexer_weights(attention, model.hidden)
        return weights + _BACKWARD * self.indexing(model, attention.indexer.reach)


def scan_flops(states: StateSpace, sequence: int, convention: Convention) -> float:
    """Of one token: products in its chunk, of which a causal mask leaves half, and with states.

    Megatron-LM counts 7 x inner x state size in the place of Mamba-2's (`mamba_layer_flops`). By
    the delta rule keys meet keys and queries, their triangle's inverse meets keys and values, and
    scores meet what is written; states are read by keys and by queries, and written once. The
    inverse itself, C^3 / 3 of a chunk of C tokens against C^2 (3 N + 2 P), is not counted.

    Source:
        Dao and Gu, arXiv:2405.21060, section 6: within a chunk BMM(Q, Q, N) by group and
        BMM(Q, P, Q) by head; to states and from them BMM(N, P, Q) and BMM(Q, P, N). Yang et al.,
        arXiv:2406.06484, section 3.2 (the UT transform), and arXiv:2412.06464, section 3.3.
    """
    keys = mean_keys(min(states.chunk, sequence), None, convention)
    if states.rule.is_delta:
        numbers = states.num_heads * states.state_size
        return 2 * keys * (3 * numbers + 2 * states.inner) + 6 * states.inner * states.state_size
    within = states.num_groups * states.state_size + states.inner
    return 2 * keys * within + 4 * states.inner * states.state_size


def _by_parameters(model: Transformer | TotalsOnly, convention: Convention) -> Flops:
    found = parameters(model)
    count = found.active
    if convention is Convention.PARAMETERS_WITHOUT_EMBEDDINGS:
        if isinstance(model, TotalsOnly):
            raise WorkloadError(
                f"only totals are published of {model.name!r}, so its embeddings are not known: "
                f"use the convention {Convention.PARAMETERS.value!r}"
            )
        count -= sum(found.of(name).active for name in (EMBEDDING, POSITIONS, OUTPUT))
    part = FlopsOfPart(WHOLE, 2.0 * count, 2.0 * _BACKWARD * count, 0.0)
    return Flops("token", convention, None, (part,))


def _of_transformer(model: Transformer, counting: _Counting, recompute: Recompute) -> Flops:
    forward: dict[str, float] = {}
    trained: dict[str, float] = {}  # backward, where it is not twice the forward pass
    indexed = counting.indexer_backward(model)
    for layer, count in Counter(layer.kind for layer in model.layers).items():
        one = _layer(model, layer, counting)
        for part, value in one.items():
            forward[part] = forward.get(part, 0.0) + count * value
        if INDEXER in one:
            trained[INDEXER] = trained.get(INDEXER, 0.0) + count * indexed
    again = dict(forward) if recompute is Recompute.FULL else {}
    if recompute is Recompute.SELECTIVE:
        again = {SCORES: forward.get(SCORES, 0.0)}
    output = 2.0 * model.vocabulary * model.hidden
    if model.patches is not None:
        output, forward[EMBEDDING] = _of_patches(model, model.patches)
    if model.num_prediction_modules:
        last = _layer(model, model.layers[-1], counting)
        module = sum(last.values())
        module += 4 * model.hidden * model.hidden
        again_module = module if recompute is Recompute.FULL else 0.0
        again[PREDICTION] = model.num_prediction_modules * again_module
        forward[PREDICTION] = model.num_prediction_modules * (
            module + (output if counting.has_output else 0)
        )
        if INDEXER in last:
            other = model.num_prediction_modules * (indexed - _BACKWARD * last[INDEXER])
            trained[PREDICTION] = _BACKWARD * forward[PREDICTION] + other
    if counting.has_output:
        forward[OUTPUT] = output
    parts = tuple(
        FlopsOfPart(
            part,
            float(value),
            float(trained.get(part, _BACKWARD * value)),
            float(again.get(part, 0.0)),
        )
        for part, value in forward.items()
        if value
    )
    return Flops("token", counting.convention, counting.sequence, parts)


def _of_patches(model: Transformer, patches: Patches) -> tuple[float, float]:
    """What pools and classifies a picture's tokens, and the projection of patches, by token."""
    hidden, tokens = model.hidden, patches.num_tokens
    pooled = 2.0 * pooling_weights(model, patches)
    if patches.pooling is Pooling.ATTENTION:
        # Keys and values are of all tokens, scores of one query.
        pooled += 4.0 * hidden * hidden * (tokens - 1) + 4.0 * hidden * tokens
    pooled += 2.0 * hidden * patches.num_classes
    return pooled / tokens, 2.0 * patches.num_numbers * hidden * patches.num_patches / tokens


def _layer(model: Transformer, layer: Layer, counting: _Counting) -> dict[str, float]:
    """Forward FLOPs of one token in one layer, by part."""
    hidden, feed_forward, experts = model.hidden, model.feed_forward, model.experts
    found: dict[str, float] = {}
    if layer.has_attention:
        found[ATTENTION] = 2.0 * attention_weights(model.attention, hidden)
        found[SCORES] = counting.scores(model, layer.reach)
        if model.attention.indexer is not None:
            found[INDEXER] = 2.0 * indexer_weights(model.attention, hidden)
            found[INDEXER] += counting.indexing(model)
    if layer.has_states and model.states is not None:
        found[STATES] = 2.0 * state_weights(model.states, hidden)
        found[SCANS] = scan_flops(model.states, counting.sequence, counting.convention)
    if not layer.has_feed_forward:
        return found
    if not layer.has_experts or experts is None:
        width = feed_forward.width
        return {**found, FEED_FORWARD: 2.0 * feed_forward_weights(feed_forward, width, hidden)}
    one = 2.0 * feed_forward_weights(feed_forward, experts.width, hidden)
    shared = 2.0 * feed_forward_weights(feed_forward, experts.shared_width, hidden)
    return {
        **found,
        ROUTER: 2.0 * router_weights(experts, hidden),
        EXPERTS: experts.num_active * one,
        SHARED_EXPERTS: experts.num_shared * shared,
    }


def _of_recommender(model: Recommender) -> dict[str, float]:
    counts: dict[str, float] = {}
    counts[BOTTOM] = sum(2 * inputs * outputs for inputs, outputs in model.dense_shapes("bottom"))
    if model.interaction is Interaction.DOT:
        counts[INTERACTION] = 2 * (model.num_tables + 1) ** 2 * model.size
    if model.interaction is Interaction.CROSS:
        width = model.interaction_width
        counts[CROSS] = model.num_cross_layers * 4 * width * model.cross_rank
    counts[TOP] = sum(2 * inputs * outputs for inputs, outputs in model.dense_shapes("top"))
    return counts


def _of_program(program: ModuleProgram, convention: Convention) -> Flops:
    """Products that a module's own code runs forward; per token, where it has some.

    Operators of one rank of a tensor group count as often as there are ranks.
    """
    units = program.batch * (program.sequence or 1)
    unit = "sample" if program.sequence is None else "token"
    if convention in {Convention.PARAMETERS, Convention.PARAMETERS_WITHOUT_EMBEDDINGS}:
        ends = (program.before, program.behind)
        left_out = sum(part.num_parameters for part in ends if part is not None)
        is_whole = convention is Convention.PARAMETERS
        count = program.tensor * (program.num_parameters - (0 if is_whole else left_out))
        part = FlopsOfPart(WHOLE, 2.0 * count, 2.0 * _BACKWARD * count, 0.0)
        return Flops(unit, convention, None, (part,))
    counts: Counter[str] = Counter()
    for each in program.all_parts:
        for kind, count in _products_of_part(each, convention).items():
            counts[kind] += count * program.tensor
    parts = tuple(
        FlopsOfPart(kind, count / units, _BACKWARD * count / units, 0.0)
        for kind, count in counts.items()
        if count
    )
    return Flops(unit, convention, program.sequence, parts)


def _products_of_part(part: ProgramPart, convention: Convention) -> Counter[str]:
    """FLOPs by kind of operator, by name."""
    found: Counter[str] = Counter()
    for one in part.forward:
        work = None if one.is_exchange else work_of(one.name, one.signature)
        if work is None or not work.is_product:
            continue
        if operator_class(one.name) is OperatorClass.ATTENTION:
            shape = attention_shape(one.name, one.signature)
            is_half = shape is not None and shape.is_causal and convention is Convention.FULL
            pairs = shape.query_length * shape.kv_length if shape is not None else 1
            whole = work.flops * pairs // shape.num_pairs if shape is not None and is_half else 0
            found[SCORES] += whole or work.flops
        else:
            found[PRODUCTS] += work.flops
    return found


def _plain(counts: Mapping[str, float], unit: str) -> Flops:
    parts = tuple(
        FlopsOfPart(part, float(count), float(_BACKWARD * count), 0.0)
        for part, count in counts.items()
        if count
    )
    return Flops(unit, None, None, parts)
