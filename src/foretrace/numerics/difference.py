"""`CheckpointDifference`: two checkpoints, tensor by tensor, beside distances that mean something.

A distance alone says nothing. So each is held against two yardsticks: how far the same tensor would
be from itself in a narrower format, and from another initialisation of the same spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from foretrace.answer import Answer, Column, Sentences, Shown, Table, Told, Unit, count_text
from foretrace.base import TraceError
from foretrace.numerics.checkpoints import StoredTensor, stored_tensors
from foretrace.numerics.distances import wasserstein_distance
from foretrace.numerics.formats import FloatFormat, float_format, rounded

_PIECE = 1 << 22  # elements in memory at a time
_SAME, _FORMAT, _TRAINING, _OTHER = "same", "rounding", "training", "another model"
_MEANS = {
    _SAME: "bit by bit",
    _FORMAT: "no farther than rounding to the yardstick's format takes it",
    _TRAINING: "farther than rounding, nearer than another initialisation",
    _OTHER: "as far as another initialisation of the same spread",
}
_OTHER_SHARE = 0.5  # of the distance between two initialisations
_LOST = "not a number"


@dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """One tensor in both."""

    name: str
    num_elements: int
    largest: float
    mean: float
    wasserstein: float  # mean over pieces
    format_mean: float  # yardstick: rounding to a narrower format
    initial_mean: float  # yardstick: another initialisation
    num_not_finite: int
    verdict: str


@dataclass(frozen=True, repr=False)
class CheckpointDifference(Answer):
    """Every tensor, the one that differs most first."""

    json_names: ClassVar = {"rows": "tensors"}

    rows: tuple[TensorDifference, ...]
    yardstick: str
    only_in_first: tuple[str, ...]
    only_in_second: tuple[str, ...]
    other_shapes: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How many tensors are what."""
        counts = {word: sum(one.verdict == word for one in self.rows) for word in (*_MEANS, _LOST)}
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"{count_text(len(self.rows), 'tensor')} in both: {told or 'none'}"

    @property
    def warning(self) -> str:
        """What could not be compared."""
        left = len(self.only_in_first) + len(self.only_in_second) + len(self.other_shapes)
        return f"{count_text(left, 'tensor')} could not be compared" if left else ""

    def parts(self) -> tuple[Told, ...]:
        """Tensors, then what was left out and what verdicts mean."""
        table = Table.of(
            "tensors",
            self.rows,
            Column("name", "tensor", Unit.NAME),
            Column("num_elements"),
            Column("verdict", unit=Unit.WORD),
            Column("largest", unit=Unit.NUMBER),
            Column("mean", unit=Unit.NUMBER),
            Column("wasserstein", unit=Unit.NUMBER),
            Column("format_mean", f"of {self.yardstick}", Unit.NUMBER),
            Column("initial_mean", "of an init", Unit.NUMBER),
            Column("num_not_finite", shown=Shown.FILES),
        )
        left = Sentences.of("not compared", self._left())
        means = Sentences.of("verdicts", (f"{word}: {said}" for word, said in _MEANS.items()))
        return table, left, means

    def _left(self) -> Iterator[str]:
        yield from (f"{name} is in the first alone" for name in self.only_in_first)
        yield from (f"{name} is in the second alone" for name in self.only_in_second)
        yield from self.other_shapes


def checkpoint_difference(
    first: str | Path,
    second: str | Path,
    *,
    yardstick: str = "bf16",
    journal: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckpointDifference:
    """How far two checkpoints are from each other, tensor by tensor.

    Args:
        first: a safetensors or PyTorch file, or a folder of shards; so is the second.
        second: what it is held against.
        yardstick: the format whose rounding a difference is held against.
        journal: a file that finished tensors are written to, and that an ended run goes on from.
        progress: called with elements done and elements in all.

    Raises:
        TraceError: if one cannot be read, or they have no tensor in common.
    """
    kind = float_format(yardstick)
    one, other = stored_tensors(first), stored_tensors(second)
    shared = [name for name in one if name in other]
    alike = [name for name in shared if one[name].shape == other[name].shape]
    if not alike:
        raise TraceError(
            f"{first} and {second} have no tensor of one name and shape in common: the first has "
            f"{', '.join(list(one)[:3])}, the second {', '.join(list(other)[:3])}"
        )
    head = {"first": _as_it_is(first), "second": _as_it_is(second), "yardstick": kind.name}
    kept = _kept(journal, head)
    total = sum(one[name].num_elements for name in alike)
    done = 0
    rows = []
    for name in alike:
        if name not in kept:
            kept[name] = _compared(one[name], other[name], kind)
            _write(journal, kept[name])
        rows.append(kept[name])
        done += one[name].num_elements
        if progress is not None:
            progress(done, total)
    rows.sort(key=lambda row: -(math.inf if row.num_not_finite else _share(row)))
    return CheckpointDifference(
        tuple(rows),
        kind.name,
        tuple(name for name in one if name not in other),
        tuple(name for name in other if name not in one),
        tuple(
            f"{name} is {one[name].shape} in the first and {other[name].shape} in the second"
            for name in shared
            if one[name].shape != other[name].shape
        ),
    )


def _share(row: TensorDifference) -> float:
    return row.mean / row.initial_mean if row.initial_mean else row.mean


def _compared(one: StoredTensor, other: StoredTensor, kind: FloatFormat) -> TensorDifference:
    """Piece by piece; sums in fp64."""
    number = max(one.num_elements, 1)
    largest = total = sets = narrow = spread = 0.0
    lost = 0
    for left, right in zip(one.pieces(_PIECE), other.pieces(_PIECE), strict=True):
        is_whole = left.isfinite() & right.isfinite()
        lost += int((~is_whole).sum())
        left, right = left[is_whole], right[is_whole]  # noqa: PLW2901  what can be compared
        if not left.numel():
            continue
        error = (left.double() - right.double()).abs()
        largest = max(largest, float(error.max()))
        total += float(error.sum())
        sets += wasserstein_distance(left, right) * left.numel()
        narrow += float((rounded(left, kind).double() - left.double()).abs().sum())
        spread += float(left.double().square().sum())
    # Two normal values of one spread are 2 / sqrt(pi) of it from each other on average.
    initial = 2 / math.sqrt(math.pi) * math.sqrt(spread / number)
    row = TensorDifference(
        name=one.name,
        num_elements=one.num_elements,
        largest=largest,
        mean=total / number,
        wasserstein=sets / number,
        format_mean=narrow / number,
        initial_mean=initial,
        num_not_finite=lost,
        verdict="",
    )
    return TensorDifference(**{**asdict(row), "verdict": _verdict(row)})


def _verdict(row: TensorDifference) -> str:
    if row.num_not_finite:
        return _LOST
    if row.largest == 0:
        return _SAME
    if row.mean <= row.format_mean:
        return _FORMAT
    return _OTHER if row.mean >= _OTHER_SHARE * row.initial_mean else _TRAINING


def _as_it_is(checkpoint: str | Path) -> str:
    """Where it lies, its size, and when it was written: one that was saved anew is another."""
    place = Path(checkpoint).resolve()
    files = [one for one in place.iterdir() if one.is_file()] if place.is_dir() else [place]
    known = [one.stat() for one in files]
    size, last = sum(one.st_size for one in known), max(one.st_mtime_ns for one in known)
    return f"{place}, {size} bytes, {last}"


def _kept(journal: Path | None, of: Mapping[str, str]) -> dict[str, TensorDifference]:
    """What an ended run of the same comparison found; its last line may be cut off."""
    if journal is None:
        return {}
    head = msgspec.json.encode(of).decode() + "\n"
    text = journal.read_text(encoding="utf-8") if journal.exists() else ""
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if whole and whole[0] != head:
        raise TraceError(
            f"{journal} is no journal of a comparison of these checkpoints, as they are now, with "
            "this yardstick: give another file"
        )
    journal.write_text("".join(whole or [head]), encoding="utf-8")
    try:
        found = [msgspec.json.decode(line, type=TensorDifference) for line in whole[1:]]
    except msgspec.DecodeError as error:
        raise TraceError(
            f"{journal} is no journal of a comparison: {error}; give another file"
        ) from error
    return {one.name: one for one in found}


def _write(journal: Path | None, row: TensorDifference) -> None:
    if journal is not None:
        with journal.open("a", encoding="utf-8") as file:
            file.write(msgspec.json.encode(row).decode() + "\n")
