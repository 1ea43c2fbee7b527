"""The files of a run, whatever their kind, become files without names.

Files are looked at twice: once for the earliest moment and for PyTorch's operators, once to be
written. Names of the new files say the rank and the kind only.
"""

from __future__ import annotations

import glob
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import msgspec

from foretrace.base import TraceError, inputs_kept, write_whole, written_beside, written_together
from foretrace.exchange.anonymised import execution, kineto
from foretrace.exchange.anonymised.chakra import ChakraAnonymiser, earliest_micros
from foretrace.exchange.anonymised.execution import ExecutionAnonymiser, execution_content
from foretrace.exchange.anonymised.kineto import VERSIONS, KinetoAnonymiser, taken_apart
from foretrace.exchange.anonymised.public import folded, is_number_text
from foretrace.exchange.anonymised.replacements import DimensionScale, Names
from foretrace.exchange.anonymised.result import Anonymised, Left, hints_of
from foretrace.exchange.chakra.messages import copied_metadata, write_nodes
from foretrace.trace import (
    EXECUTION,
    GRAPHS,
    PROFILES,
    CutShortError,
    ProcessGroup,
    StepTimes,
    format_of,
    opened_source,
    rank_in_name,
    read_graph,
    step_times_beside,
    step_times_path,
    write_step_times,
)

_KINETO, _EXECUTION, _CHAKRA = "kineto", "et", "chakra"
_ENDINGS = (".json", ".json.gz", ".tgz", ".tar.gz", ".et", ".et.gz", ".et.tar.gz")
_LEVEL = 6  # of gzip: 9 takes three times as long for 3% less on v100-ddp2
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_LEAST_SEARCHED = 4  # shorter texts stand in others by chance


def anonymise(
    paths: Iterable[str | Path] | str | Path,
    out: str | Path,
    *,
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    scale_shapes: float = 1.0,
    known_names: Mapping[str, str] | None = None,
) -> Anonymised:
    """Write a run's traces again without the names that are somebody's.

    Args:
        paths: Kineto traces, execution traces and Chakra files of one run: files, globs, folders.
        out: the folder for the new files.
        keep: shell patterns of texts to keep though they are not known to be public.
        drop: shell patterns of texts to replace though they are.
        scale_shapes: what to multiply every dimension above 1 with.
        known_names: neutral names given before (`Anonymised.neutral`), to be given again.

    Raises:
        TraceError: if a file cannot be read, or none is found.
        OutputError: if one would be written over.
    """
    files, folder = _found(paths), Path(out)
    names = Names(keep=keep, drop=drop, known=known_names)
    run = _Run(names, DimensionScale(scale_shapes), _glance(files, names))
    with inputs_kept(file.path for file in files), written_together():
        written = {file: _write(run, file, folder, files) for file in files}
        _write_steps(run, written)
        _write_groups(files, folder)
    return Anonymised(
        path_by_source={str(file.path): path for file, path in written.items()},
        replaced=dict(sorted(names.replaced.items())),
        neutral=names.neutral,
        removed=tuple(sorted({text for texts in names.removed.values() for text in texts})),
        num_kept=len(names.kept),
        found_again=_found_again(names, [*written.values()]),
        hints=hints_of(run.left(files), names, is_scaled=run.scale.is_on),
    )


@dataclass(frozen=True)
class _File:
    path: Path
    kind: str
    rank: int | None


class _Run:
    """What is the same for all files, and what they were found to hold."""

    def __init__(self, names: Names, scale: DimensionScale, earliest: Decimal | None) -> None:
        self.names = names
        self.scale = scale
        self.kineto = KinetoAnonymiser(names, scale, earliest or Decimal(0))
        self.execution = ExecutionAnonymiser(names, scale, earliest=earliest, events=self.kineto)
        self.chakra = ChakraAnonymiser(names, scale, int(earliest or 0))
        self.devices: set[str] = set()
        self.versions: set[str] = set()
        self.world_size = 0

    def note(self, members: Mapping[str, object]) -> None:
        """Remember what a Kineto file says about its job."""
        devices = members.get("deviceProperties")
        for device in devices if isinstance(devices, list) else ():
            name = str(device.get("name", "")) if isinstance(device, dict) else ""
            self.devices.add(self.names.device(name))
        self.versions.update(f"{name} {members[name]}" for name in VERSIONS if name in members)
        info = members.get("distributedInfo")
        if isinstance(info, dict) and isinstance(size := info.get("world_size"), int):
            self.world_size = max(self.world_size, size)

    def left(self, files: list[_File]) -> Left:
        """What could give the origin away."""
        kinds = {file.kind for file in files}
        ranks = {file.rank for file in files} - {None}
        num_chakra = sum(file.kind == _CHAKRA for file in files)
        return Left(
            devices=tuple(sorted(self.devices - {""})),
            versions=tuple(sorted(self.versions)),
            world_size=max(self.world_size, len(ranks), num_chakra, 1),
            num_files=len(files),
            shapes=frozenset(self.kineto.shapes | self.execution.shapes),
            has_values=_EXECUTION in kinds or _CHAKRA in kinds,
            has_processes=_KINETO in kinds,
        )


def _found(paths: Iterable[str | Path] | str | Path) -> list[_File]:
    listed = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    found: dict[Path, _File] = {}
    for named in listed:
        path = Path(named)
        is_folder = path.is_dir()
        for one in _in_folder(path) if is_folder else _matches(str(named)):
            kind = _kind(one)
            if kind is not None:
                found[one] = _File(one, kind, rank_in_name(one))
            elif not is_folder:
                raise TraceError(
                    f"cannot anonymise {one}: it is no Kineto trace, no execution trace and no "
                    "Chakra file; name a file of these"
                )
    if not found:
        raise TraceError(
            f"nothing to anonymise in {', '.join(map(repr, map(str, listed[:5])))}: expected "
            "Kineto traces, execution traces or Chakra files"
        )
    return list(found.values())


def _in_folder(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name.endswith(_ENDINGS)
    )


def _matches(pattern: str) -> list[Path]:
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  absolute patterns too
    if not found:
        raise TraceError(f"cannot read {pattern!r}: no such file, and no file matches it")
    return [Path(match) for match in found]


def _kind(path: Path) -> str | None:
    try:
        found = format_of(path)
    except TraceError:
        return None
    if found is EXECUTION:
        return _EXECUTION
    return _CHAKRA if found in GRAPHS else _KINETO if found in PROFILES else None


def _text(path: Path) -> bytes:
    try:
        with opened_source(path) as source:
            return b"".join(source.pieces)
    except CutShortError as err:
        raise TraceError(f"cannot read {path}: {err}; copy it again") from err


def _glance(files: list[_File], names: Names) -> Decimal | None:
    """The earliest moment of all files in micros; tells `names` which operators there are."""
    operators: set[str] = set()
    earliest: list[Decimal] = []
    for file in files:
        at: Decimal | None
        if file.kind == _CHAKRA:
            micros = earliest_micros(read_graph(file.path))
            at, found = Decimal(micros) if micros else None, set[str]()
        else:
            with _damage_told(file.path):
                at, found = (
                    execution.glance(execution_content(_text(file.path)))
                    if file.kind == _EXECUTION
                    else kineto.glance(taken_apart(_text(file.path)))
                )
        operators |= found
        earliest += [at] if at is not None else []
    names.operators = frozenset(map(folded, operators))
    return min(earliest, default=None)


def _write(run: _Run, file: _File, out: Path, files: list[_File]) -> Path:
    if file.kind == _CHAKRA:
        return _write_chakra(run, file, out, files)
    path = out / f"{_stem(file, files)}.{file.kind}.json.gz"
    with (
        written_beside(path) as beside,
        beside.open("wb") as raw,
        # Neither a name nor a time in the head of the file.
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        _damage_told(file.path),
    ):
        for piece in _pieces(run, file):
            packed.write(piece)
    return path


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """What is no whole JSON, or no value of its kind, becomes a sentence."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeError, RecursionError, ArithmeticError) as err:
        raise TraceError(
            f"cannot anonymise {path}: {str(err) or type(err).__name__}; the file is cut off or "
            "damaged: record or copy it again"
        ) from err


def _pieces(run: _Run, file: _File) -> Iterator[bytes]:
    if file.kind == _EXECUTION:
        yield run.execution.text(execution_content(_text(file.path)))
        return
    parts = taken_apart(_text(file.path))
    run.note(parts.members)
    yield from run.kineto.pieces(parts)


def _write_chakra(run: _Run, file: _File, out: Path, files: list[_File]) -> Path:
    trace = read_graph(file.path)
    same = [one for one in files if one.kind == _CHAKRA]
    path = out / f"trace.{same.index(file) if trace.rank is None else trace.rank}.et"
    metadata = copied_metadata(run.chakra.version(trace.metadata))
    with written_beside(path) as beside, beside.open("wb") as raw:
        raw.write(metadata)
        write_nodes(raw, run.chakra.nodes(trace.nodes))
    return path


def _stem(file: _File, files: list[_File]) -> str:
    """The rank, if the name says it and no other file's of the same kind does; else the place."""
    same = [one for one in files if one.kind == file.kind]
    ranks = [one.rank for one in same]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return f"rank{file.rank}"
    return f"trace{same.index(file):04d}" if len(same) > 1 else "trace"


def _write_steps(run: _Run, written: Mapping[_File, Path]) -> None:
    """Step times that lie beside a Kineto trace, so that replays still know them."""
    for file, path in written.items():
        times = step_times_beside(file.path) if file.kind == _KINETO else None
        if times is None:
            continue
        run.names.remove("host_name", times.host_name)
        with written_beside(step_times_path(path)) as beside:
            write_step_times(_without_names(run, times), beside)


def _write_groups(files: list[_File], out: Path) -> None:
    """The communicators that lie beside Chakra files: numbers of ranks, nothing else."""
    folders = {file.path.parent for file in files if file.kind == _CHAKRA}
    listed = sorted(path for folder in folders for path in folder.glob("*.groups.json"))
    if len(listed) != 1:  # of several jobs, no one list would be right
        return
    try:
        groups = msgspec.json.decode(listed[0].read_bytes(), type=dict[int, list[int]])
    except (msgspec.DecodeError, OSError) as err:
        raise TraceError(
            f"cannot read {listed[0]}: {err}, expected communicators and their ranks; delete it to "
            "go on without"
        ) from err
    write_whole(
        out / "trace.groups.json",
        msgspec.json.encode({str(key): ranks for key, ranks in groups.items()}),
    )


def _without_names(run: _Run, times: StepTimes) -> StepTimes:
    groups = tuple(
        replace(
            group,
            name=run.names.group(group.name),
            description=run.names.group(group.description),
        )
        for group in times.process_groups
    )
    return msgspec.structs.replace(
        times,
        host_name="host",
        device_name=run.names.device(times.device_name),
        profiled_at_ns=0,
        process_groups=tuple[ProcessGroup, ...](groups),
    )


def _found_again(names: Names, paths: Iterable[Path]) -> tuple[str, ...]:
    """Texts that were taken out and stand in a file all the same, other than inside kept ones."""
    harmless = "\n".join([*names.kept, *names.neutral.values()])
    gone = set(names.replaced) | {text for texts in names.removed.values() for text in texts}
    wanted = [
        text
        for text in gone
        if len(text) >= _LEAST_SEARCHED and text not in harmless and not is_number_text(text)
    ]
    found: set[str] = set()
    for path in paths:
        raw = _texts_of(path)
        for text in wanted:
            if msgspec.json.encode(text)[1:-1] in raw or text.encode() in raw:
                found.add(text)
    return tuple(sorted(found))


def _texts_of(path: Path) -> bytes:
    """A file's texts, of JSON each once: a million events have a few thousand."""
    if path.suffix != ".gz":
        return path.read_bytes()
    return b"\n".join(set(_QUOTED.findall(gzip.decompress(path.read_bytes()))))
