"""A transformer's file becomes a `Transformer`."""

from __future__ import annotations

from foretrace.base import MOST_EXPERTS, MOST_LAYERS, Document
from foretrace.workload.models.entries import Entries, EntryField, EntryKind
from foretrace.workload.models.files import ModelFile
from foretrace.workload.models.quantisation import QUANTISATIONS
from foretrace.workload.models.transformer import (
    Experts,
    FeedForward,
    Indexer,
    Latent,
    ModelAttention,
    Norm,
    NormPlace,
    Patches,
    Pooling,
    Positions,
    Reach,
    ReachKind,
    StateRule,
    StateSpace,
    Transformer,
)

_ALL = "all"
_KEPT_STATES = ("bf16", "fp16", "fp32")

_LAYERS = EntryField("layers", EntryKind.COUNTS, "layers that have it, from 0", low=0)

SHAPE_FIELDS = (
    EntryField("layers", EntryKind.COUNT, "layers", is_required=True, high=MOST_LAYERS),
    EntryField("hidden", EntryKind.COUNT, "numbers of a token between layers", is_required=True),
    EntryField("vocabulary", EntryKind.COUNT, "tokens known, padding included"),
    EntryField("context", EntryKind.COUNT, "longest sequence it is made for"),
    EntryField("picture_tokens", EntryKind.COUNT, "of a picture made token by token", low=0),
    EntryField("positions", EntryKind.CHOICE, "how they enter", choices=tuple(Positions)),
    EntryField("norm", EntryKind.CHOICE, "kind of norm", choices=tuple(Norm)),
    EntryField(
        "norm_place", EntryKind.CHOICE, "of attention and feed-forward", choices=tuple(NormPlace)
    ),
    EntryField("embedding_norm", EntryKind.FLAG, "a norm after the embedding"),
    EntryField("tied_embeddings", EntryKind.FLAG, "the output uses the embedding's table"),
    EntryField("capped_logits", EntryKind.FLAG, "logits go through a tangent"),
    EntryField("prediction_modules", EntryKind.COUNT, "further layers that predict ahead", low=0),
    EntryField(
        "weights",
        EntryKind.CHOICE,
        "how its checkpoint keeps those of linear layers; in 16 bit unless stated",
        choices=tuple(QUANTISATIONS),
    ),
)
ATTENTION_FIELDS = (
    EntryField("heads", EntryKind.COUNT, "heads", is_required=True),
    EntryField(
        "kv_heads", EntryKind.COUNT, "heads of keys and values; as many as heads unless stated"
    ),
    EntryField("head_size", EntryKind.COUNT, "numbers of a head", is_required=True),
    EntryField("input_bias", EntryKind.FLAG, "biases of queries, keys and values"),
    EntryField("output_bias", EntryKind.FLAG, "bias of the projection back"),
    EntryField(
        "query_key_norm", EntryKind.FLAG, "a norm with scales over each head's query and key"
    ),
    EntryField("norm_over_heads", EntryKind.FLAG, "that norm is over all heads at once"),
    EntryField("soft_cap", EntryKind.FLAG, "scores go through a tangent"),
    EntryField("sinks", EntryKind.FLAG, "a learned number per head in the softmax"),
    EntryField("reach", EntryKind.CHOICE, "which tokens are seen", choices=(_ALL, *ReachKind)),
    EntryField("reach_tokens", EntryKind.COUNT, "length of chunk or window"),
    EntryField("full_every", EntryKind.COUNT, "every so manieth layer sees all; 0: none", low=0),
    EntryField("full_layers", EntryKind.COUNTS, "layers that see all, from 0", low=0),
    EntryField("latent_rank", EntryKind.COUNT, "latent attention: rank of keys and values"),
    EntryField("query_rank", EntryKind.COUNT, "latent attention: rank of queries; 0: full", low=0),
    EntryField(
        "rotary_size", EntryKind.COUNT, "numbers of a head that positions turn; all unless stated"
    ),
    EntryField("scaled_rotary", EntryKind.FLAG, "what positions turn is longer by a factor too"),
    EntryField("value_size", EntryKind.COUNT, "latent attention: numbers of a head's value"),
    EntryField("output_gate", EntryKind.FLAG, "a product of the token weighs what heads give"),
    EntryField("index_heads", EntryKind.COUNT, "an indexer picks what is seen: its heads"),
    EntryField("index_size", EntryKind.COUNT, "numbers of a head of the indexer"),
    EntryField("index_chosen", EntryKind.COUNT, "tokens that an indexer picks for a query"),
    _LAYERS,
)
FEED_FORWARD_FIELDS = (
    EntryField("width", EntryKind.COUNT, "numbers inside of a dense layer"),
    EntryField("gated", EntryKind.FLAG, "three matrices, not two"),
    EntryField("bias", EntryKind.FLAG, "biases, of experts too"),
    EntryField("clamped", EntryKind.FLAG, "what the gate takes is kept within limits"),
    _LAYERS,
)
EXPERT_FIELDS = (
    EntryField("count", EntryKind.COUNT, "experts of a layer", is_required=True, high=MOST_EXPERTS),
    EntryField("active", EntryKind.COUNT, "experts that a token is sent to", is_required=True),
    EntryField("width", EntryKind.COUNT, "numbers inside of an expert", is_required=True),
    EntryField("shared", EntryKind.COUNT, "experts that all tokens pass", low=0, high=MOST_EXPERTS),
    EntryField("shared_width", EntryKind.COUNT, "numbers inside of one; an expert's unless stated"),
    EntryField("every", EntryKind.COUNT, "every so manieth layer has experts"),
    EntryField("dense_first", EntryKind.COUNT, "layers before the first with experts", low=0),
    EntryField("router_bias", EntryKind.FLAG, "a number per expert beside the router's product"),
    EntryField("shared_gate", EntryKind.FLAG, "a vector that weighs the shared expert"),
    _LAYERS,
)
STATE_FIELDS = (
    EntryField("heads", EntryKind.COUNT, "heads", is_required=True),
    EntryField("head_size", EntryKind.COUNT, "numbers of a head", is_required=True),
    EntryField("state_size", EntryKind.COUNT, "of the state for each of them", is_required=True),
    EntryField("groups", EntryKind.COUNT, "of heads that share what enters and reads a state"),
    EntryField("convolution", EntryKind.COUNT, "tokens it sees; 0: none", is_required=True, low=0),
    EntryField("chunk", EntryKind.COUNT, "tokens worked on at once", is_required=True),
    EntryField("bias", EntryKind.FLAG, "biases of the projections"),
    EntryField("convolution_bias", EntryKind.FLAG, "bias of the convolution"),
    EntryField("norm", EntryKind.FLAG, "a norm of what heads give, by its gate"),
    EntryField("rule", EntryKind.CHOICE, "what tokens do to states", choices=tuple(StateRule)),
    EntryField("gate_rank", EntryKind.COUNT, "of short vectors for gates and decays"),
    EntryField(
        "kept", EntryKind.CHOICE, "number format of states in serving", choices=_KEPT_STATES
    ),
    _LAYERS,
)
PATCH_FIELDS = (
    EntryField("image", EntryKind.COUNT, "pixels of a picture's side", is_required=True),
    EntryField("size", EntryKind.COUNT, "pixels of a patch's side", is_required=True),
    EntryField("channels", EntryKind.COUNT, "of a pixel; 3 unless stated"),
    EntryField("class_token", EntryKind.FLAG, "a token beside the patches"),
    EntryField("pooling", EntryKind.CHOICE, "what tokens become", choices=tuple(Pooling)),
    EntryField("classes", EntryKind.COUNT, "of a classifier", low=0),
)
OPTIONAL_TABLES = {"experts": EXPERT_FIELDS, "states": STATE_FIELDS, "patches": PATCH_FIELDS}
TABLES = {
    "shape": SHAPE_FIELDS,
    "attention": ATTENTION_FIELDS,
    "feed_forward": FEED_FORWARD_FIELDS,
}

_NO_ATTENTION = ModelAttention(
    num_heads=0,
    num_kv_heads=0,
    head_size=0,
    has_input_bias=False,
    has_output_bias=False,
    has_query_key_norm=False,
    has_sinks=False,
    latent=None,
)


def read_transformer(document: Document) -> Transformer:
    """The transformer that a file describes.

    Raises:
        WorkloadError: if the file is wrong.
    """
    has_experts, has_states, has_patches = (name in document.table for name in OPTIONAL_TABLES)
    # A file without experts may not be told that "experts" is unknown.
    tables = {**TABLES, **OPTIONAL_TABLES}
    left_out = {name for name in OPTIONAL_TABLES if name not in document.table}
    if has_states and "attention" not in document.table:
        left_out.add("attention")
    file = ModelFile(document, {name: tables[name] for name in tables if name not in left_out})
    shape = file["shape"]
    patches = _patches(file) if has_patches else None
    model = Transformer(
        name=document.name,
        title=file.title,
        num_layers=shape.count("layers"),
        hidden=shape.count("hidden"),
        vocabulary=shape.count("vocabulary"),
        context=shape.count("context") if patches is None else patches.num_tokens,
        attention=_NO_ATTENTION if "attention" in left_out else _attention(file),
        feed_forward=FeedForward(
            file["feed_forward"].count("width"),
            is_gated=file["feed_forward"].flag("gated"),
            has_bias=file["feed_forward"].flag("bias"),
            is_clamped=file["feed_forward"].flag("clamped"),
            layers=_layers_with(file, "feed_forward"),
        ),
        experts=_experts(file, file["experts"]) if has_experts else None,
        states=_states(file) if has_states else None,
        patches=patches,
        reach=None if "attention" in left_out else _reach(file),
        positions=Positions(shape.choice("positions", Positions.ROTARY)),
        norm=Norm(shape.choice("norm", Norm.RMS)),
        norm_place=NormPlace(shape.choice("norm_place", NormPlace.BEFORE)),
        has_embedding_norm=shape.flag("embedding_norm"),
        ties_embeddings=shape.flag("tied_embeddings"),
        caps_logits=shape.flag("capped_logits"),
        num_prediction_modules=shape.count("prediction_modules"),
        picture_tokens=shape.count("picture_tokens"),
        quantisation=QUANTISATIONS.get(shape.choice("weights", "")),
        published=file.published,
        entries=file.entries,
        parent=document.parent,
        path=document.path,
    )
    _check(file, model)
    return model


def _attention(file: ModelFile) -> ModelAttention:
    found = file["attention"]
    heads = found.count("heads")
    kv_heads = found.count("kv_heads", heads)
    if kv_heads > heads or heads % kv_heads:
        raise file.refused(
            f"{heads} heads cannot share {kv_heads} kv_heads evenly: kv_heads has to divide heads"
        )
    latent = _latent(file, found)
    size, rotary = found.count("head_size"), found.count("rotary_size")
    if latent is None and rotary > size:
        raise file.refused(f"rotary_size {rotary} is more than the head_size {size}: state less")
    if found.flag("norm_over_heads") and not found.flag("query_key_norm"):
        raise file.refused("[attention] has norm_over_heads without query_key_norm: state both")
    return ModelAttention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=size,
        has_input_bias=found.flag("input_bias"),
        has_output_bias=found.flag("output_bias"),
        has_query_key_norm=found.flag("query_key_norm"),
        has_sinks=found.flag("sinks"),
        latent=latent,
        norms_all_heads=found.flag("norm_over_heads"),
        rotary_size=0 if latent is not None or rotary == size else rotary,
        has_soft_cap=found.flag("soft_cap"),
        scales_rotary=found.flag("scaled_rotary"),
        has_output_gate=found.flag("output_gate"),
        indexer=_indexer(file, found, latent),
        layers=_layers_with(file, "attention"),
    )


def _latent(file: ModelFile, found: Entries) -> Latent | None:
    keys = ("latent_rank", "rotary_size", "value_size")
    stated = [key for key in (*keys, "query_rank") if key in found.by_key]
    if not stated or stated == ["rotary_size"]:
        return None
    missing = [key for key in keys if key not in found.by_key]
    if missing:
        raise file.refused(
            f"[attention] has {', '.join(stated)} of latent attention but lacks "
            f"{', '.join(missing)}: state all of {', '.join(keys)}, or none"
        )
    return Latent(
        query_rank=found.count("query_rank"),
        rank=found.count("latent_rank"),
        rotary_size=found.count("rotary_size"),
        value_size=found.count("value_size"),
    )


def _indexer(file: ModelFile, found: Entries, latent: Latent | None) -> Indexer | None:
    keys = ("index_heads", "index_size", "index_chosen")
    stated = [key for key in keys if key in found.by_key]
    if not stated:
        return None
    if len(stated) < len(keys):
        raise file.refused(
            f"[attention] has {', '.join(stated)} of an indexer: state all of {', '.join(keys)}"
        )
    if latent is None or not latent.query_rank or "reach" in found.by_key:
        raise file.refused(
            "[attention] has index_heads: an indexer reads the short query of latent attention, in "
            "place of a reach; state query_rank, and leave reach out"
        )
    return Indexer(*(found.count(key) for key in keys))


def _reach(file: ModelFile) -> Reach | None:
    found = file["attention"]
    kind = found.choice("reach", _ALL)
    if kind == _ALL:
        return None
    if "reach_tokens" not in found.by_key:
        raise file.refused(f"[attention] has reach {kind!r} but no reach_tokens: add its length")
    layers, every = found.counts("full_layers") or None, found.count("full_every")
    if layers is not None and every:
        raise file.refused("[attention] has full_every and full_layers: leave one of them out")
    return Reach(ReachKind(kind), found.count("reach_tokens"), every, layers)


def _experts(file: ModelFile, found: Entries) -> Experts:
    count, active = found.count("count"), found.count("active")
    if active > count:
        raise file.refused(
            f"a token is sent to {active} experts of {count}: active cannot exceed count"
        )
    return Experts(
        count=count,
        num_active=active,
        width=found.count("width"),
        num_shared=found.count("shared"),
        shared_width=found.count("shared_width", found.count("width")),
        every=found.count("every", 1),
        num_dense_first=found.count("dense_first"),
        has_router_bias=found.flag("router_bias"),
        has_shared_gate=found.flag("shared_gate"),
        layers=_layers_with(file, "experts"),
    )


def _patches(file: ModelFile) -> Patches:
    found = file["patches"]
    image, size = found.count("image"), found.count("size")
    if image < size:
        raise file.refused(f"a picture of {image} pixels has no patch of {size}: state a smaller")
    pooling = Pooling(found.choice("pooling", Pooling.NONE))
    if pooling is Pooling.CLASS and not found.flag("class_token"):
        raise file.refused("[patches] pools a class token that it lacks: set class_token to true")
    return Patches(
        image=image,
        size=size,
        channels=found.count("channels", 3),
        has_class_token=found.flag("class_token"),
        pooling=pooling,
        num_classes=found.count("classes"),
    )


def _states(file: ModelFile) -> StateSpace:
    found = file["states"]
    heads, groups = found.count("heads"), found.count("groups", 1)
    if heads % groups:
        raise file.refused(f"{heads} heads of [states] are no {groups} groups: choose a divisor")
    rule, rank = StateRule(found.choice("rule", StateRule.SCAN)), found.count("gate_rank")
    if bool(rank) is not (rule is StateRule.CHANNEL_DELTA):
        raise file.refused(
            f"[states] has the rule {rule.value!r} and a gate_rank of {rank}: short vectors are of "
            f"{StateRule.CHANNEL_DELTA.value!r}, which needs them"
        )
    return StateSpace(
        num_heads=heads,
        head_size=found.count("head_size"),
        state_size=found.count("state_size"),
        num_groups=groups,
        convolution=found.count("convolution"),
        chunk=found.count("chunk"),
        has_bias=found.flag("bias"),
        has_convolution_bias=found.flag("convolution_bias"),
        has_norm=found.flag("norm"),
        layers=_layers_with(file, "states"),
        rule=rule,
        gate_rank=rank,
        kept=found.choice("kept", ""),
    )


def _layers_with(file: ModelFile, table: str) -> tuple[int, ...] | None:
    """Layers that a table lists; none, where a model of states has no feed-forward part at all."""
    layers, count = file[table].counts("layers"), file["shape"].count("layers")
    if layers and max(layers) >= count:
        raise file.refused(
            f"layers of [{table}] names {max(layers)}, and the last of {count} is {count - 1}"
        )
    has_no_width = table == "feed_forward" and not file[table].count("width")
    has_no_part = has_no_width and "states" in file.document.table
    return () if has_no_part else layers or None


def _check(file: ModelFile, model: Transformer) -> None:
    empty = [layer.index for layer in model.layers if not layer.num_branches]
    if empty:
        raise file.refused(
            f"layer {empty[0]} has neither attention nor states nor a feed-forward part: name it "
            "in the layers of one of them"
        )
    num_dense = model.num_dense_layers
    if num_dense and not model.feed_forward.width:
        raise file.refused(
            f"{num_dense} of {model.num_layers} layers have no experts, and [feed_forward] has no "
            "width for them: add it"
        )
    if model.patches is None and not model.vocabulary:
        raise file.refused("[shape] lacks a vocabulary: add it, or [patches] of pictures")
    if model.patches is not None and (model.vocabulary or model.num_prediction_modules):
        raise file.refused(
            "a model of [patches] predicts no tokens: leave vocabulary and prediction_modules out"
        )
    if model.positions is Positions.LEARNED and not model.context:
        raise file.refused("learned positions need a context: add it to [shape]")
