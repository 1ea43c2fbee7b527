"""`LayerProfiles`: how long a model's layers took on one GPU, by what a step works on.

Files `GPU-MODEL-DTYPE-tpN-KIND.parquet` with what LLMServingSim's profiler measures, in us: `dense`
by tokens, `per_sequence` by sequences, `moe` by tokens and activated experts, `attention` by tokens
of prefills, keys before them, decodes and their keys. Attention falls into three parts, since
other kernels run: prefills alone, decodes alone, both at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import NS_PER_US, Float64s, WorkloadError

if TYPE_CHECKING:
    import polars as pl

_NAME = re.compile(r"(?P<gpu>[^-]+)-(?P<model>.+)-tp(?P<tensor>\d+)-(?P<kind>[a-z_]+)\.parquet")
_COLUMNS = {
    "dense": ("layer", "tokens"),
    "per_sequence": ("layer", "sequences"),
    "moe": ("tokens", "activated_experts"),
    "attention": ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"),
}
_DTYPES = ("bf16", "bfloat16", "fp16", "fp8", "fp32")


@dataclass(frozen=True, eq=False)
class ProfileGrid:
    """Values on the corners of a grid."""

    axes: tuple[Float64s, ...]  # float64[cells + 1] each, rising
    values: Float64s  # float64, one dimension for each axis; ns of one layer

    def scaled(self, factor: float) -> ProfileGrid:
        """The same of so many layers."""
        return ProfileGrid(self.axes, self.values * factor)


@dataclass(frozen=True, eq=False)
class LayerProfiles:
    """What was measured of one model on one GPU at one degree of tensor parallelism."""

    gpu: str
    model: str
    tensor: int
    dense: dict[str, tuple[Float64s, Float64s]]  # by layer: tokens, ns
    per_sequence: dict[str, tuple[Float64s, Float64s]]  # by layer: sequences, ns
    decode: ProfileGrid  # sequences, keys
    prefill: ProfileGrid  # tokens, keys before
    mixed: ProfileGrid  # tokens, keys before, sequences, keys
    experts: ProfileGrid | None  # tokens, activated experts
    expert_shards: int = 1  # parts that each expert is cut in
    # float64 as `decode` and `prefill`: what of them nobody measured. None: all was.
    assumed: tuple[Float64s, Float64s] | None = None


@dataclass(frozen=True)
class ProfileFile:
    """A file of a folder, and what its name says."""

    path: Path
    gpu: str
    model: str
    tensor: int
    kind: str


def profile_files(folder: Path) -> tuple[ProfileFile, ...]:
    """Profiles in a folder.

    Raises:
        WorkloadError: if it has none.
    """
    found = []
    for path in sorted(folder.glob("*.parquet")):
        match = _NAME.fullmatch(path.name)
        if match is not None and match["kind"] in _COLUMNS:
            model, _, dtype = match["model"].rpartition("-")
            model = model if dtype in _DTYPES else match["model"]
            found.append(
                ProfileFile(path, match["gpu"], model, int(match["tensor"]), match["kind"])
            )
    if not found:
        raise WorkloadError(
            f"no layer profiles in {folder}: expected files such as "
            "GPU-MODEL-bf16-tp1-attention.parquet, beside them -dense and -per_sequence"
        )
    return tuple(found)


def plain_name(name: str) -> str:
    """Letters and digits of a name, to compare spellings with."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def read_profiles(
    folder: Path, *, models: Sequence[str], gpus: Sequence[str], tensor: int, has_experts: bool
) -> LayerProfiles:
    """The profiles of a model on a GPU.

    Args:
        folder: of files.
        models: names that it goes by.
        gpus: names that the GPU goes by, the surest first; without any, the folder has one only.
        tensor: degree of tensor parallelism.
        has_experts: whether a file of experts is needed: of any degree, as experts are not cut.

    Raises:
        WorkloadError: if the folder lacks one of the files, or has them of several GPUs.
    """
    files = profile_files(folder)
    names = [plain_name(model) for model in models]
    ours = [one for one in files if any(_is_alike(plain_name(one.model), name) for name in names)]
    if not ours:
        have = ", ".join(sorted({one.model for one in files}))
        raise WorkloadError(f"no profile of {models[0]} in {folder}: it has those of {have}")
    gpu = _chosen_gpu(sorted({one.gpu for one in ours}), gpus, folder)
    by_kind = {
        one.kind: one.path
        for one in sorted(ours, key=lambda one: one.tensor, reverse=True)
        if one.gpu == gpu and (one.tensor == tensor or one.kind == "moe")
    }
    needed = ["dense", "per_sequence", "attention", *(["moe"] if has_experts else [])]
    missing = [kind for kind in needed if kind not in by_kind]
    if missing:
        have_degrees = sorted({one.tensor for one in ours if one.gpu == gpu})
        raise WorkloadError(
            f"no {missing[0]} profile of {models[0]} on {gpu} at tp{tensor} in {folder}: it has "
            f"degrees {', '.join(map(str, have_degrees))}"
        )
    attention = _rows(by_kind["attention"], "attention")
    return LayerProfiles(
        gpu=gpu,
        model=ours[0].model,
        tensor=tensor,
        dense=_by_layer(by_kind["dense"], "dense"),
        per_sequence=_by_layer(by_kind["per_sequence"], "per_sequence"),
        decode=_part(attention, (2, 3), has_prefill=False, has_decodes=True),
        prefill=_part(attention, (0, 1), has_prefill=True, has_decodes=False),
        mixed=_part(attention, (0, 1, 2, 3), has_prefill=True, has_decodes=True),
        experts=grid_of(_rows(by_kind["moe"], "moe")) if has_experts else None,
    )


def _is_alike(one: str, other: str) -> bool:
    return one in other or other in one


def _chosen_gpu(have: Sequence[str], names: Sequence[str], folder: Path) -> str:
    for name in names:
        for gpu in have:
            if plain_name(gpu) in plain_name(name) or plain_name(name) in plain_name(gpu):
                return gpu
    if len(have) > 1:
        raise WorkloadError(
            f"{folder} has profiles of {', '.join(have)}, and nothing says which GPU serves: name "
            "it with --gpu, or have the engine's file say hardware.device_name"
        )
    return have[0]


def _rows(path: Path, kind: str) -> Float64s:
    """Sizes and durations of a file, float64[rows, sizes + 1], in ns.

    Raises:
        WorkloadError: if columns are missing.
    """
    frame = _frame(path, kind)
    sizes = [frame[name].to_numpy() for name in _COLUMNS[kind]]
    stacked: Float64s = np.stack([*sizes, frame["time_us"].to_numpy() * NS_PER_US], axis=1)
    return stacked.astype(np.float64)


def _frame(path: Path, kind: str) -> pl.DataFrame:
    import polars as pl  # on demand: it takes longer to import than a short command

    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as err:
        raise WorkloadError(f"cannot read {path}: {str(err).splitlines()[0]}") from err
    missing = [name for name in (*_COLUMNS[kind], "time_us") if name not in frame.columns]
    if missing or frame.is_empty():
        raise WorkloadError(
            f"cannot read {path} as a profile of {kind}: "
            + (f"it has no column {missing[0]!r}" if missing else "it has no rows")
            + f", expected {', '.join(_COLUMNS[kind])} and time_us"
        )
    return frame


def _by_layer(path: Path, kind: str) -> dict[str, tuple[Float64s, Float64s]]:
    size = _COLUMNS[kind][1]
    frame = _frame(path, kind).sort("layer", size)
    return {
        str(layer): (
            rows[size].to_numpy().astype(np.float64),
            rows["time_us"].to_numpy() * float(NS_PER_US),
        )
        for (layer,), rows in frame.group_by("layer", maintain_order=True)
    }


def _part(
    rows: Float64s, sizes: tuple[int, ...], *, has_prefill: bool, has_decodes: bool
) -> ProfileGrid:
    here = ((rows[:, 0] > 0) == has_prefill) & ((rows[:, 2] > 0) == has_decodes)
    if not here.any():
        raise WorkloadError(
            "a profile of attention has no rows of "
            + " beside ".join(["prefills"] * has_prefill + ["decodes"] * has_decodes)
        )
    return grid_of(rows[here][:, (*sizes, 4)])


def grid_of(rows: Float64s) -> ProfileGrid:
    """Measured points as a grid: what was not measured lies on the line between its neighbours.

    Of several axes the one whose neighbours are nearest counts; beyond the outermost point of an
    axis the last one holds.

    Args:
        rows: float64[points, sizes + 1], ns last.
    """
    sizes = rows[:, :-1]
    axes = tuple(np.unique(column) for column in sizes.T)
    axes = tuple(axis if len(axis) > 1 else np.array([axis[0], axis[0] + 1]) for axis in axes)
    values = np.full([len(axis) for axis in axes], np.nan)
    at = tuple(np.searchsorted(axis, column) for axis, column in zip(axes, sizes.T, strict=True))
    values[at] = rows[:, -1]
    while np.isnan(values).any():
        filled = _between_neighbours(axes, values)
        if not (np.isnan(values) & ~np.isnan(filled)).any():
            filled = _held_at_ends(values)
        values = filled
    return ProfileGrid(axes, values)


def _between_neighbours(axes: Sequence[Float64s], values: Float64s) -> Float64s:
    nearest, found = np.full(values.shape, np.inf), values.copy()
    for number, axis in enumerate(axes):
        lines = np.moveaxis(values, number, -1)
        known, places = ~np.isnan(lines), np.arange(len(axis))
        below = np.maximum.accumulate(np.where(known, places, -1), axis=-1)
        turned = np.where(known, places, len(axis))[..., ::-1]
        above = np.minimum.accumulate(turned, axis=-1)[..., ::-1]
        has_both = ~known & (below >= 0) & (above < len(axis))
        first, last = np.clip(below, 0, None), np.clip(above, None, len(axis) - 1)
        apart = np.where(has_both, axis[last] - axis[first], 1)
        part = (axis - axis[first]) / apart
        low = np.take_along_axis(lines, first, -1)
        between = low + part * (np.take_along_axis(lines, last, -1) - low)
        wide = np.where(has_both, apart / np.maximum(axis[last], 1), np.inf)
        wide, between = np.moveaxis(wide, -1, number), np.moveaxis(between, -1, number)
        found = np.where(wide < nearest, between, found)
        nearest = np.minimum(nearest, wide)
    return found


def _held_at_ends(values: Float64s) -> Float64s:
    """Each unknown value becomes that of a known neighbour, the last axis first."""
    found = values.copy()
    for number in reversed(range(values.ndim)):
        lines = np.moveaxis(found, number, -1)
        for step in (range(1, lines.shape[-1]), range(lines.shape[-1] - 2, -1, -1)):
            for place in step:
                other = lines[..., place - 1 if step.step == 1 else place + 1]
                lines[..., place] = np.where(np.isnan(lines[..., place]), other, lines[..., place])
        if not np.isnan(found).any():
            break
    return found
