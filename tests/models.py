"""Models of the catalogue, of the kind that a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foretrace.workload import Transformer, load_model


def transformer(name: str | Path, folders: Sequence[Path] = ()) -> Transformer:
    """The transformer of that name, or in that file."""
    model = load_model(name, folders)
    assert isinstance(model, Transformer)
    return model
