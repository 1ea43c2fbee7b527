"""Models by name, by TOML file, or by the `config.json` of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from foretrace.base import Document, WorkloadError, read_document
from foretrace.workload.models.files import MODELS, ModelKind
from foretrace.workload.models.hugging_face import from_hf_config
from foretrace.workload.models.other_files import read_diffusion, read_recommender, read_totals
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.transformer_file import read_transformer

_READERS: dict[ModelKind, Callable[[Document], Model]] = {
    ModelKind.TRANSFORMER: read_transformer,
    ModelKind.RECOMMENDER: read_recommender,
    ModelKind.DIFFUSION: read_diffusion,
    ModelKind.TOTALS: read_totals,
}


def load_model(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Model:
    """The model of that name, or in that file.

    Args:
        name_or_path: "llama3-405b", a TOML file, or a `config.json` of Hugging Face.
        folders: the user's own; looked through before the presets.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    if str(name_or_path).endswith(".json"):
        return from_hf_config(Path(name_or_path))
    document = read_document(name_or_path, MODELS, folders)
    kinds = ", ".join(ModelKind)
    if "kind" not in document.table:
        raise WorkloadError(
            f'{document.where} has no kind: begin it with kind = "..." and one of {kinds}'
        )
    return _READERS[ModelKind(str(document.table["kind"]))](document)
