"""The `config.json` of a Hugging Face model becomes a `Transformer`.

Of a model that also sees only the part that reads text is read; of SigLIP the part that sees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from foretrace.base import Document, WorkloadError
from foretrace.workload.models.files import MODELS
from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader
from foretrace.workload.models.hugging_face_families import FAMILIES
from foretrace.workload.models.hugging_face_linear import LINEAR_FAMILIES
from foretrace.workload.models.hugging_face_others import (
    ENCODER_FAMILIES,
    OLDER_FAMILIES,
    STATE_FAMILIES,
)
from foretrace.workload.models.quantisation import quantisation_of
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.models.transformer_file import read_transformer

_SOURCE = "config"

_TABLES: dict[str, Reader] = {
    **FAMILIES,
    **LINEAR_FAMILIES,
    **OLDER_FAMILIES,
    **STATE_FAMILIES,
    **ENCODER_FAMILIES,
}

_SCAN = "it is the scan of Mamba-1 or another, which is not costed; Mamba-2 is"
_SHARED = "layers that share one set of weights cannot be described"
# Types that are known and unlike a `Transformer`: the field that says so, and why.
_UNLIKE: dict[str, tuple[str, str]] = {
    "falcon_mamba": ("state_size", _SCAN),
    "jamba": ("mamba_d_state", _SCAN),
    "mamba": ("state_size", _SCAN),
    "olmo": ("layer_norm", "its norms have no parameters, which no norm here lacks"),
    "phi": ("input_layernorm", "attention and feed-forward part stand beside each other"),
    "zamba": ("attn_layer_period", _SHARED),
    "zamba2": ("hybrid_layer_ids", _SHARED),
}


def from_hf_config(config: Mapping[str, object] | str | Path) -> Transformer:
    """The model that a Hugging Face configuration describes.

    Args:
        config: what `config.json` holds, or the file, or the folder it stands in.

    Raises:
        WorkloadError: if it cannot be read, its `model_type` is unknown, or it holds a setting
            that a `Transformer` cannot express.
    """
    if isinstance(config, Mapping):
        return replace(_read(config, Path("config.json")), path=None)
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise WorkloadError(f"{str(path)!r} cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise WorkloadError(f"{str(path)!r} is not a JSON file: {err}") from err
    if not isinstance(values, Mapping):
        raise WorkloadError(f"{str(path)!r} holds no object, where a configuration is expected")
    return _read(values, path)


def _read(values: Mapping[str, object], path: Path) -> Transformer:
    model, where = _shaped(values, path), f"configuration {str(path)!r}"
    inner = values.get("text_config")
    nested = inner.get("quantization_config") if isinstance(inner, Mapping) else None
    stated = values.get("quantization_config", nested)
    if stated is None:
        return model
    if not isinstance(stated, Mapping):
        raise WorkloadError(f"'quantization_config' of {where} is {stated!r}: expected a mapping")
    return replace(model, quantisation=quantisation_of(stated, model, where))


def _shaped(values: Mapping[str, object], path: Path) -> Transformer:
    """The model without what is said of its weights' formats."""
    kind = values.get("model_type")
    inner = values.get("text_config")
    if isinstance(inner, Mapping) and inner.get("model_type") in _TABLES:
        values, kind = inner, inner["model_type"]
    seeing = values.get("vision_config")
    if kind == "siglip" and isinstance(seeing, Mapping):
        values, kind = seeing, "siglip_vision_model"
    where = f"configuration {str(path)!r}"
    if isinstance(inner, Mapping) and inner.get("model_type") in _UNLIKE:
        values, kind = inner, inner["model_type"]
    if isinstance(kind, str) and kind in _UNLIKE:
        field, why = _UNLIKE[kind]
        raise WorkloadError(
            f"{where} has the model_type {kind!r}, whose {field!r} cannot be described: {why}; "
            "estimate it as a PyTorch module instead (--module FILE:FUNCTION)"
        )
    if not isinstance(kind, str) or kind not in _TABLES:
        near = get_close_matches(str(kind), _TABLES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise WorkloadError(
            f"{where} has the model_type {kind!r}, where one of {', '.join(sorted(_TABLES))} "
            f"is expected{hint}: write its shape as a model file of your own instead"
        )
    tables = _TABLES[kind](HuggingFaceConfig(values, where))
    sourced: dict[str, object] = {
        name: {key: {"value": value, "source": _SOURCE} for key, value in entries.items()}
        for name, entries in tables.items()
    }
    # A configuration in its folder is called after that.
    name = path.stem if path.stem != "config" else path.absolute().parent.name
    table = {
        "kind": "transformer",
        "title": str(values.get("_name_or_path") or f"a model of the type {kind}"),
        "sources": {_SOURCE: {"title": f"Hugging Face {path.name}, model_type {kind}"}},
        **sourced,
    }
    return read_transformer(Document(name, path, MODELS, table, ""))
