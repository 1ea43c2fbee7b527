"""How far off predictions were, and of which steps: one definition for every report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from foretrace.base import ModelError


def no_such_steps(wanted: Collection[str], names: Sequence[str]) -> ModelError:
    """What to raise where steps are asked for by names that a recording's steps do not have."""
    unknown = sorted(set(wanted) - set(names))
    have = ", ".join(map(repr, names[:8])) or "none"
    return ModelError(
        f"no such steps: {unknown[:5]} asked for, the recording has {len(names)} ({have}). "
        "Choose among those."
    )


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """Predicted over measured, less 1; `None` where one of them is not known."""
    return None if predicted is None or not measured else predicted / measured - 1


def is_inside(measured: float | None, low: float | None, high: float | None) -> bool | None:
    """Whether what was measured lies in the predicted interval."""
    if measured is None or low is None or high is None:
        return None
    return low <= measured <= high


def mean_size(errors: Iterable[float]) -> float | None:
    """Mean size of errors, whatever their sign; `None` of none."""
    sizes = np.abs(list(errors))
    return float(np.mean(sizes)) if len(sizes) else None
