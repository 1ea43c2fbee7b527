"""A transformer as the keys of a model's file ("shape.layers"), from which settings are written."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.workload.configurations.table import Fields
from foretrace.workload.models.transformer import NormPlace, Transformer
from foretrace.workload.models.transformer_file import OPTIONAL_TABLES, TABLES

_TABLES = {*TABLES, *OPTIONAL_TABLES}


def keys_of_model(model: Transformer) -> dict[str, object]:
    """Every key that its file would state; keys of parts that it lacks are left out."""
    attention, dense, experts = model.attention, model.feed_forward, model.experts
    found: dict[str, object] = {
        "shape.layers": model.num_layers,
        "shape.hidden": model.hidden,
        "shape.vocabulary": model.vocabulary,
        "shape.context": model.context or None,
        "shape.positions": model.positions.value,
        "shape.norm": model.norm.value,
        "shape.embedding_norm": model.has_embedding_norm,
        "shape.tied_embeddings": model.ties_embeddings,
        "shape.prediction_modules": model.num_prediction_modules,
        "attention.heads": attention.num_heads,
        "attention.kv_heads": attention.num_kv_heads,
        "attention.head_size": attention.head_size,
        "attention.input_bias": attention.has_input_bias,
        "attention.output_bias": attention.has_output_bias,
        "attention.query_key_norm": attention.has_query_key_norm,
        "attention.sinks": attention.has_sinks,
        "feed_forward.width": dense.width or None,
        "feed_forward.gated": dense.is_gated,
        "feed_forward.bias": dense.has_bias,
    }
    if model.reach is not None:
        found["attention.reach"] = model.reach.kind.value
        found["attention.reach_tokens"] = model.reach.num_tokens
        found["attention.full_every"] = model.reach.full_every
        if model.reach.full_layers is not None:
            found["attention.full_layers"] = list(model.reach.full_layers)
    found |= _seldom(model)
    if attention.latent is not None:
        found["attention.latent_rank"] = attention.latent.rank
        found["attention.query_rank"] = attention.latent.query_rank
        found["attention.rotary_size"] = attention.latent.rotary_size
        found["attention.value_size"] = attention.latent.value_size
    if experts is not None:
        found |= {
            "experts.count": experts.count,
            "experts.active": experts.num_active,
            "experts.width": experts.width,
            "experts.shared": experts.num_shared,
            "experts.shared_width": experts.shared_width if experts.num_shared else None,
            "experts.every": experts.every,
            "experts.dense_first": experts.num_dense_first,
            "experts.router_bias": experts.has_router_bias,
            "experts.shared_gate": experts.has_shared_gate,
        }
    return {key: value for key, value in found.items() if value is not None}


def _seldom(model: Transformer) -> dict[str, object]:
    """Keys that few models have, and that most software cannot say."""
    attention = model.attention
    said = {
        "shape.norm_place": (model.norm_place.value, model.norm_place is not NormPlace.BEFORE),
        "shape.capped_logits": (model.caps_logits, model.caps_logits),
        "attention.norm_over_heads": (attention.norms_all_heads, attention.norms_all_heads),
        "attention.rotary_size": (attention.rotary_size, attention.rotary_size > 0),
        "attention.soft_cap": (attention.has_soft_cap, attention.has_soft_cap),
        "attention.scaled_rotary": (attention.scales_rotary, attention.scales_rotary),
        "attention.output_gate": (attention.has_output_gate, attention.has_output_gate),
        "feed_forward.clamped": (model.feed_forward.is_clamped, model.feed_forward.is_clamped),
    }
    found: dict[str, object] = {key: value for key, (value, is_said) in said.items() if is_said}
    layers_with = {
        "attention": attention.layers,
        "feed_forward": model.feed_forward.layers,
        "experts": None if model.experts is None else model.experts.layers,
    }
    found |= {f"{name}.layers": list(some) for name, some in layers_with.items() if some}
    if (indexer := attention.indexer) is not None:
        found["attention.index_heads"] = indexer.num_heads
        found["attention.index_size"] = indexer.head_size
        found["attention.index_chosen"] = indexer.num_chosen
    return found


def is_model_key(field: str) -> bool:
    """Whether a field is a key of a model's file."""
    return field.partition(".")[0] in _TABLES


def tables_of(fields: Fields) -> Mapping[str, Mapping[str, object]] | None:
    """Keys of a model's file as its tables; `None` if there are none."""
    tables: dict[str, dict[str, object]] = {}
    for field, value in fields.items():
        if is_model_key(field):
            table, _, key = field.partition(".")
            tables.setdefault(table, {})[key] = value
    return tables or None
