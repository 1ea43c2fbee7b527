"""Models by name, by TOML file, or by the `config.json` of Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from foretrace.answer import Answer, Column, Table, Told, Unit, count_text
from foretrace.base import Document, WorkloadError, merged, read_document
from foretrace.workload.configurations.formats import holds_configuration, read_configuration
from foretrace.workload.configurations.table import JobConfiguration
from foretrace.workload.models.account import ModelAccount, account
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.files import MODELS, ModelKind, model_names
from foretrace.workload.models.hugging_face import from_hf_config
from foretrace.workload.models.other_files import read_diffusion, read_recommender, read_totals
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.published import TotalsOnly
from foretrace.workload.models.quantisation import called_quantised
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.models.transformer_file import read_transformer

_READERS: dict[ModelKind, Callable[[Document], Model]] = {
    ModelKind.TRANSFORMER: read_transformer,
    ModelKind.RECOMMENDER: read_recommender,
    ModelKind.DIFFUSION: read_diffusion,
    ModelKind.TOTALS: read_totals,
}

_SAME_SHAPE = {
    "deepseekv3671b": "deepseek-v3",
    "deepseekr1": "deepseek-v3",
    "deepseekv3.1": "deepseek-v3",
    "llama417bx16e": "llama4-scout",
    "llama417bx128e": "llama4-maverick",
    "llama4scout17b16e": "llama4-scout",
    "llama4maverick17b128e": "llama4-maverick",
}
_NO_SHAPE = re.compile(r"meta-|-instruct|-base|-hf|-v0\.\d|-pretrain|-chat|-thinking|-it$|-\d{4}$")


def load_model(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Model:
    """The model of that name, or in that file.

    Args:
        name_or_path: "llama3-405b", a TOML file, a `config.json` of Hugging Face, or a
            configuration of other software that states a model.
        folders: the user's own; looked through before the presets.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    if holds_configuration(name_or_path):
        return model_of_configuration(read_configuration(name_or_path), folders)
    if str(name_or_path).endswith(".json"):
        return from_hf_config(Path(name_or_path))
    document = read_document(name_or_path, MODELS, folders)
    kinds = ", ".join(ModelKind)
    if "kind" not in document.table:
        raise WorkloadError(
            f'{document.where} has no kind: begin it with kind = "..." and one of {kinds}'
        )
    return _READERS[ModelKind(str(document.table["kind"]))](document)


def model_called(name: str, folders: Sequence[Path] = ()) -> Model:
    """The model of that name or in that file, or the one that a hub's identifier is of.

    Args:
        name: as for `load_model`, or "owner/model", with the owner or without.
        folders: as there.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    plain, how = called_quantised(name)
    is_ours = Path(name).exists() or name in model_names(folders)
    if is_ours or ("/" not in name and _same_shape(plain, folders) is None):
        return load_model(name, folders)
    model = load_model(_called(plain, folders), folders)
    if how is not None and isinstance(model, Transformer):
        return replace(model, quantisation=how)
    return model


def model_of_configuration(found: JobConfiguration, folders: Sequence[Path] = ()) -> Model:
    """The model that a configuration of other software states, or names.

    Raises:
        WorkloadError: if it states none, or one that cannot be described.
    """
    where = f"the {found.software} configuration"
    if found.model_name:
        name = _called(found.model_name, folders)
        base = read_document(name, MODELS, folders)
        changed = {table: dict(keys) for table, keys in (found.model or {}).items()}
        return read_transformer(replace(base, table=merged(base.table, changed)))
    if found.model is None:
        raise WorkloadError(f"{where} describes no model: {found.no_model}, as in --model NAME")
    table = {"kind": "transformer", "title": where, **found.model}
    return read_transformer(Document(f"{found.software}-model", Path(where), MODELS, table, ""))


def _called(wanted: str, folders: Sequence[Path]) -> str:
    """The model that others call so: "meta-llama/Llama-3.1-70B", "llama3 405B"."""
    found = _same_shape(wanted, folders)
    if found is None:
        raise WorkloadError(
            f"the model is {wanted!r}, whose shape is not described: name one that is, its "
            "config.json of Hugging Face, or a file of its shape"
        )
    return found


def _same_shape(wanted: str, folders: Sequence[Path]) -> str | None:
    short = _spelled(_NO_SHAPE.sub("", wanted.rpartition("/")[2].lower()))
    known = {_spelled(name): name for name in model_names(folders)}
    return _SAME_SHAPE.get(short) or known.get(short)


def _spelled(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@dataclass(frozen=True, repr=False)
class ModelList(Answer):
    """Models with their counts."""

    note = "`foretrace model show NAME` has every number with its source"

    models: tuple[ModelAccount, ...]

    @property
    def headline(self) -> str:
        """How many there are."""
        return count_text(len(self.models), "model")

    def parts(self) -> tuple[Told, ...]:
        """A table for each kind of model."""
        return tuple(self._of(kind, *told) for kind, told in _COLUMNS.items())

    def _of(self, kind: type, title: str, columns: tuple[Column, ...]) -> Table:
        return Table.of(
            kind.__name__.lower(),
            [one for one in self.models if isinstance(one.model, kind)],
            Column("model", unit=Unit.WORD, value="model.name"),
            Column("total", unit=Unit.PARAMETERS, value="parameters.total"),
            *columns,
            title=title,
        )


def _active(one: ModelAccount) -> int | None:
    is_sparse = isinstance(one.model, Transformer) and one.model.experts is not None
    return one.parameters.active if is_sparse else None


def _heads(one: ModelAccount) -> str:
    if not isinstance(one.model, Transformer):
        return ""
    heads, shared = one.model.attention.num_heads, one.model.attention.num_kv_heads
    return str(heads) if heads == shared else f"{heads}/{shared}"


_FORWARD = Column("flops", "GFLOP", Unit.GIGAFLOPS, lambda one: one.flops[0].forward)
_TRANSFORMERS = (
    "transformers: training GFLOP of a token, causal, in sequences as long as made for or 8192; "
    "KV: keys and values of a token, bf16"
)
_COLUMNS: dict[type, tuple[str, tuple[Column, ...]]] = {
    Transformer: (
        _TRANSFORMERS,
        (
            Column("active", unit=Unit.PARAMETERS, value=_active),
            Column("layers", unit=Unit.IDENTIFIER, value="model.num_layers"),
            Column("hidden", unit=Unit.IDENTIFIER, value="model.hidden"),
            Column("heads", unit=Unit.WORD, value=_heads),
            Column("flops", "GFLOP", Unit.GIGAFLOPS, lambda one: one.flops[0].training),
            Column("cache_bytes_per_token", "KV", Unit.BYTES),
        ),
    ),
    Recommender: (
        "recommenders: forward GFLOP of a sample",
        (
            Column("tables", unit=Unit.COUNT, value="model.num_tables"),
            Column("size", unit=Unit.COUNT, value="model.size"),
            Column("lookups", unit=Unit.COUNT, value="model.num_lookups"),
            Column("interaction", unit=Unit.WORD, value="model.interaction.value"),
            _FORWARD,
        ),
    ),
    Diffusion: (
        "diffusion networks: forward GFLOP of a denoising step",
        (
            Column("height", unit=Unit.COUNT, value="model.height"),
            Column("width", unit=Unit.COUNT, value="model.width"),
            Column("frames", unit=Unit.COUNT, value="model.frames"),
            Column(
                "positions",
                unit=Unit.WORD,
                value=lambda one: " ".join(map(str, one.model.sequence_lengths)),
            ),
            _FORWARD,
        ),
    ),
    TotalsOnly: (
        "of which only totals are published: forward GFLOP",
        (
            Column("active", unit=Unit.PARAMETERS, value="model.active_parameters"),
            _FORWARD,
            Column("of_a", value=lambda one: one.flops[0].unit),
        ),
    ),
}


def accounts(folders: Sequence[Path] = ()) -> ModelList:
    """Every model that is described, with its counts.

    Args:
        folders: the user's own; looked through before the presets.

    Raises:
        WorkloadError: if a file is wrong.
    """
    return ModelList(tuple(account(load_model(name, folders)) for name in model_names(folders)))
