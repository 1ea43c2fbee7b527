"""`Anonymised`: what was written and replaced, and what still says where the trace comes from."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from foretrace.answer import Answer, Column, Json, Plain, Sentences, Table, Told, plain
from foretrace.exchange.anonymised.replacements import Names
from foretrace.workload import Transformer, load_model, model_names

_MAX_SHOWN = 5
_ARCHITECTURE = re.compile(
    r"(?:^|_|\b)(maxwell|volta|turing|ampere|hopper|sm\d{2,3}|gfx\d+[a-z]?|ISA\d+\w?)_"
)
_KERNELS = re.compile(r"(?:cudnn|cutlass|cublas|nccl|rccl|Cijk|miopen|nvjet)", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Anonymised(Answer):
    """What `anonymise` did."""

    path_by_source: dict[str, Path]  # each file read -> the file written
    replaced: dict[str, str]  # text -> neutral name; not for others' eyes
    neutral: dict[str, str]  # the same, with parts of texts, and those of runs before
    removed: tuple[str, ...]  # texts that went with the members that held them
    num_kept: int  # different texts that are public, or were asked to be kept
    found_again: tuple[str, ...]  # replaced or removed texts that stand in what was written
    hints: tuple[Hint, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files written."""
        return tuple(self.path_by_source.values())

    @property
    def headline(self) -> str:
        """What was replaced, removed, kept, and found again in what was written."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return (
            f"wrote {self.paths[0]}{more}: {len(self.replaced):,} names replaced, "
            f"{len(self.removed):,} other texts removed, {self.num_kept:,} public names kept; "
            f"searched for in the new files: {len(self.found_again)} found"
        )

    def parts(self) -> tuple[Told, ...]:
        """What is left; never what was taken out."""
        hints = (f"{one.topic}: {one.text}; to take it away: {one.advice}" for one in self.hints)
        return (Sentences.of("what could still identify the origin", hints),)

    def tables(self) -> tuple[Table, ...]:
        """One row per text replaced; not for others' eyes."""
        columns = (
            Column("text", value=lambda row: row[0]),
            Column("neutral", value=lambda row: row[1]),
        )
        return (Table.of("replaced", self.replaced.items(), *columns),)

    def as_json(self) -> Json:
        """Everything as builtins, but for the texts that were taken out."""
        return {
            "paths": plain(self.paths),
            "num_replaced": len(self.replaced),
            "num_removed": len(self.removed),
            "num_kept": self.num_kept,
            "num_found_again": len(self.found_again),
            "hints": plain(self.hints),
        }


@dataclass(frozen=True)
class Hint(Plain):
    """One thing that could still identify the origin."""

    topic: str  # "devices", "job size", "model", ...
    text: str  # what is left, in a sentence
    advice: str  # how to take it away


@dataclass(frozen=True)
class Left:
    """What the files hold besides texts."""

    devices: tuple[str, ...]
    versions: tuple[str, ...]  # "cuda_driver_version 12000"
    world_size: int
    num_files: int
    shapes: frozenset[int]  # every dimension that is written
    has_values: bool
    has_processes: bool


def hints_of(left: Left, names: Names, *, is_scaled: bool) -> tuple[Hint, ...]:
    """What could still identify the origin, the plainest first."""
    found = [
        *_chips(left, names),
        *_models(left.shapes, is_scaled=is_scaled),
        *_asked_for(names),
        Hint(
            "job size",
            f"{left.world_size} ranks, {left.num_files} files, their groups and messages",
            "publish some of the ranks only",
        ),
        Hint(
            "timing",
            "durations, their order and the number of steps are exact, and as telling as a "
            "fingerprint to somebody who has the original or ran the same program",
            "publish one step only, or a synthetic trace (`foretrace synthesise`)",
        ),
    ]
    if left.has_processes:
        found.append(Hint("numbers", "process and thread numbers and ids stay", "few know them"))
    if left.has_values:
        found.append(
            Hint(
                "values",
                "numbers that operators took (learning rates, epsilons, sizes of views) stay",
                "record without shapes and execution traces",
            )
        )
    return tuple(found)


def _chips(left: Left, names: Names) -> list[Hint]:
    found = []
    devices = [name for name in left.devices if not name.startswith("device_")]
    if devices:
        advice = f"--drop '{devices[0].split()[0]}*'"
        found.append(Hint("devices", f"the chips' names: {_shown(devices)}", advice))
    kernels = [name for name in names.kept if _KERNELS.search(name)]
    chips = sorted({match[1] for name in names.kept for match in _ARCHITECTURE.finditer(name)})
    if kernels:
        of = f", which name the chip ({_shown(chips)})" if chips else ""
        found.append(
            Hint(
                "kernels",
                f"{len(kernels)} names of vendors' kernels{of} and the libraries' versions",
                "--drop 'volta_*' and the like, or --drop '*' for no names at all",
            )
        )
    if left.versions:
        found.append(
            Hint("versions", f"versions: {_shown(left.versions)}", "remove them from the files")
        )
    return found


def _models(shapes: Collection[int], *, is_scaled: bool) -> list[Hint]:
    """Published models whose hidden size, feed-forward width and vocabulary are dimensions."""
    alike = sorted(name for name in model_names() if _is_like(load_model(name), shapes))
    if alike:
        what = f"dimensions that fit {_shown(alike)}"
        return [Hint("model", what, "--scale-shapes 0.9, or any other factor")]
    if not shapes:
        return []
    what = "dimensions say what was computed" + (", though scaled" if is_scaled else "")
    return [Hint("shapes", what, "record without shapes, or --scale-shapes")]


def _is_like(model: object, shapes: Collection[int]) -> bool:
    if not isinstance(model, Transformer) or model.hidden not in shapes:
        return False
    return _is_split(model.feed_forward.width, shapes) and _is_split(model.vocabulary, shapes)


def _is_split(size: int, shapes: Collection[int]) -> bool:
    """Whether a dimension, or its share of 2 to 16 tensor-parallel ranks, is there."""
    return any(size % ranks == 0 and size // ranks in shapes for ranks in (1, 2, 4, 8, 16))


def _asked_for(names: Names) -> list[Hint]:
    asked = sorted(name for name, is_asked in names.kept.items() if is_asked)
    if not asked:
        return []
    text = f"{len(asked)} names that --keep let through: {_shown(asked)}"
    return [Hint("kept names", text, "leave that --keep out")]


def _shown(texts: Collection[str]) -> str:
    listed = sorted(texts)
    more = f" and {len(listed) - _MAX_SHOWN} more" if len(listed) > _MAX_SHOWN else ""
    return ", ".join(listed[:_MAX_SHOWN]) + more
