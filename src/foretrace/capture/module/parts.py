"""Cuts what was seen of a module into parts: layers, what comes before them, what behind.

Layers are the outermost modules that have modules of their own and stand in a list (their name
ends with a number), in the order in which they first run; or those that a pattern names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

from foretrace.base import WorkloadError
from foretrace.capture.module.divided import SUMMED
from foretrace.capture.module.execution import ModuleRun
from foretrace.capture.module.grouped import GROUPED, batched_signature
from foretrace.capture.module.liveness import Moments, moments
from foretrace.capture.module.recorder import Event, Scope
from foretrace.capture.module.signature import Signature, bytes_signature
from foretrace.operators import ProgramPart, Ran, Tensor, is_told, parsed_shapes

if TYPE_CHECKING:
    import torch

_PICKS = ("aten::index", "aten::take", "aten::take_along_dim")
BEFORE = -1  # number of the part before all layers; behind them it is their number


@dataclass(frozen=True)
class ModuleCut:
    """A module's parts."""

    layers: tuple[ProgramPart, ...]
    before: ProgramPart | None
    behind: ProgramPart | None
    tied_parameters: int
    notes: tuple[str, ...]


def cut(run: ModuleRun, pattern: str | None) -> ModuleCut:
    """The parts of a run.

    Args:
        run: both passes.
        pattern: of the names of modules that are layers; by numbered names if left out.

    Raises:
        WorkloadError: if the pattern names nothing that ran.
    """
    return _Cutting(run, pattern).cut()


class _Cutting:
    def __init__(self, run: ModuleRun, pattern: str | None) -> None:
        self.run = run
        self.events = run.recorder.events
        paths = _layer_paths(run.recorder.scopes, pattern)
        self.part_of_tick, self.paths = _parts_of_ticks(
            run.recorder.scopes, paths, run.recorder.num_forward
        )
        self.moments: Moments = moments(run, self.part_of_tick)
        # A model that is not cut has no part to wait for it.
        self.weights = _weight_gradients(self.events, self.part_of_tick) if self.paths else ()
        self.events_of_part: dict[int, list[int]] = defaultdict(list)
        for at, event in enumerate(self.events):
            self.events_of_part[self.part_of_tick[event.tick]].append(at)
        self.is_balanced = False
        self.unknown: dict[str, int] = defaultdict(int)

    def cut(self) -> ModuleCut:
        """All parts."""
        numbers = range(BEFORE, len(self.paths) + 1)
        made = {number: self._part(number) for number in numbers}
        behind = len(self.paths)
        if not self.paths:  # a model that is not cut is one layer
            whole = _joined(made[BEFORE], made[behind])
            return ModuleCut((whole,), None, None, 0, self._notes())
        return ModuleCut(
            layers=tuple(made[number] for number in range(behind)),
            before=_unless_empty(made[BEFORE]),
            behind=_unless_empty(made[behind]),
            tied_parameters=self._tied(behind),
            notes=self._notes(),
        )

    def _part(self, number: int) -> ProgramPart:
        own = self.events_of_part[number]
        path = self.paths[number] if 0 <= number < len(self.paths) else ""
        tensors = [one for one, home in self.home_of_parameter.values() if home == number]
        input_bytes, input_dtype = self._inputs(number)
        return ProgramPart(
            path=path,
            forward=tuple(self._ran(at, path) for at in own if not self.events[at].is_backward),
            backward=tuple(self._ran(at, path) for at in own if self.events[at].is_backward),
            parameters=tuple(map(_tensor_of, tensors)),
            num_frozen=sum(one.numel() for one in tensors if not one.requires_grad),
            kept_bytes=self.moments.kept_bytes[number],
            forward_bytes=self.moments.forward_bytes[number],
            backward_bytes=self.moments.backward_bytes[number],
            input_bytes=input_bytes,
            input_dtype=input_dtype,
        )

    def _ran(self, at: int, path: str) -> Ran:
        event = self.events[at]
        module = self.run.recorder.scopes[event.tick]
        label = _label(event.name, module[-1] if module else "", path)
        if event.is_exchange:
            shapes = parsed_shapes(event.signature)
            data = shapes.tensor(0) if shapes is not None else None
            dtype = "" if data is None else data.dtype
            what = "sum of input gradients" if event.is_backward else "sum"
            label = f"{label.removesuffix(SUMMED.rpartition('::')[2])}{what}"
            return Ran(label, "all_reduce", "", num_bytes=event.read_bytes, dtype=dtype)
        name, signature = event.name, event.signature
        if name in GROUPED:
            name, signature = "aten::bmm", batched_signature(signature) or signature
            self.is_balanced = True
        if not is_told(name, signature):
            self.unknown[name] += 1
            name = "aten::copy_"
            signature = bytes_signature(event.written_bytes, _read_bytes(event))
        return Ran(
            label,
            name,
            signature,
            is_again=event.is_again,
            is_weight_gradient=at in self.weights,
        )

    @cached_property
    def home_of_parameter(self) -> Mapping[str, tuple[torch.Tensor, int]]:
        """Every parameter with the part that uses it first."""
        first: dict[int, int] = {}
        for event in self.events:
            for storage in event.reads:
                first.setdefault(storage, self.part_of_tick[event.tick])
        return {
            name: (one, first[self.run.recorder.storage(one)])
            for name, one in self.run.parameters
            if self.run.recorder.storage(one) in first
        }

    def _tied(self, behind: int) -> int:
        """Numbers of parameters that are read before all layers and behind them."""
        last = {
            storage
            for event in self.events
            if not event.is_backward and self.part_of_tick[event.tick] == behind
            for storage in event.reads
        }
        return sum(
            one.numel()
            for one, home in self.home_of_parameter.values()
            if home == BEFORE and self.run.recorder.storage(one) in last
        )

    def _inputs(self, number: int) -> tuple[int, str]:
        """Bytes with gradients that parts before made and that this or later ones read."""
        crossing = self.moments.crossing[number]
        if not crossing:
            return 0, ""
        sizes = self.run.recorder.num_bytes
        largest = max(crossing, key=lambda storage: sizes[storage])
        return sum(sizes[one] for one in crossing), self.moments.dtype_of[largest]

    def _notes(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.unknown:
            listed = ", ".join(f"{name} ({count}x)" for name, count in self.unknown.items())
            found.append(
                f"no rule knows the work of {listed}: each counts as reading what goes in and "
                "writing what comes out once"
            )
        if self.is_balanced:
            found.append("products of groups count as if each group had as many rows")
        unused = [name for name, _ in self.run.parameters if name not in self.home_of_parameter]
        if unused:
            found.append(f"{len(unused)} parameters are not used, {unused[0]} the first: left out")
        frozen = sum(not one.requires_grad for _, one in self.run.parameters)
        if frozen:
            found.append(f"{frozen} parameters are not trained, and count as if they were")
        return tuple(found)


def _layer_paths(scopes: Sequence[Scope], pattern: str | None) -> frozenset[str]:
    ran = {_plain(path) for scope in set(scopes) for path in scope}
    seen = {
        ".".join(path.split(".")[:end]) for path in ran for end in range(1, path.count(".") + 2)
    }
    if pattern is not None:
        chosen = {path for path in seen if fnmatchcase(path, pattern)}
        if not chosen:
            raise WorkloadError(
                f"no module that runs is called {pattern!r}: give a pattern of layers' names, as "
                f"in 'model.layers.*'; there are {', '.join(sorted(seen)[:5]) or 'none'}"
            )
    else:
        outer = {path.rpartition(".")[0] for path in seen}
        chosen = {path for path in seen if path.rpartition(".")[2].isdigit() and path in outer}
    return frozenset(
        path for path in chosen if not any(path.startswith(f"{one}.") for one in chosen)
    )


def _parts_of_ticks(
    scopes: Sequence[Scope], paths: AbstractSet[str], num_forward: int
) -> tuple[list[int], list[str]]:
    """The number of each tick's part, and the layers' paths in order.

    Args:
        scopes: by tick; the first `num_forward` are the forward pass, the rest is computed again.
        paths: of layers.
        num_forward: ticks.

    What runs between two layers belongs to the one before.
    """
    keys = [_layer_of(scope, paths) for scope in scopes]
    numbers = {key: at for at, key in enumerate(dict.fromkeys(key for key in keys if key))}
    last = max((at for at, key in enumerate(keys[:num_forward]) if key), default=-1)
    found: list[int] = []
    now = BEFORE
    for at, key in enumerate(keys):
        now = numbers[key] if key else len(numbers) if last < at < num_forward else now
        found.append(now)
    return found, [_plain(key) for key in numbers]


def _layer_of(scope: Scope, paths: AbstractSet[str]) -> str:
    """The layer that runs, with the number of its call; one may be named by its modules alone."""
    for path in scope:
        if _plain(path) in paths:
            return path
    for path in scope:
        steps = _plain(path).split(".")
        for length in range(1, len(steps)):
            outer = ".".join(steps[:length])
            if outer in paths:
                return outer
    return ""


def _plain(path: str) -> str:
    """A path without the numbers of calls."""
    return ".".join(one.partition("@")[0] for one in path.split("."))


def _read_bytes(event: Event) -> int:
    """Of what is picked from by index, no more is read than is written, and the index."""
    if event.name not in _PICKS:
        return event.read_bytes
    shapes = parsed_shapes(event.signature)
    data = shapes.tensor(0) if shapes is not None else None
    whole = 0 if data is None else data.num_bytes
    return event.read_bytes - max(0, whole - event.written_bytes)


def _label(name: str, module: str, path: str) -> str:
    own = _plain(module).removeprefix(path).strip(".")
    base = name.rpartition("::")[2]
    return f"{own} {base}".strip()


def _weight_gradients(events: Sequence[Event], part_of_tick: Sequence[int]) -> frozenset[int]:
    """Backward events that no other part waits for: they serve the part's own parameters."""
    found: set[int] = set()
    readers: dict[int, list[int]] = defaultdict(list)
    for at in reversed(range(len(events))):
        event = events[at]
        if not event.is_backward:
            break
        part = part_of_tick[event.tick]
        read_by = [one for storage in event.writes for one in readers[storage]]
        if not event.is_again and all(
            one in found and part_of_tick[events[one].tick] == part for one in read_by
        ):
            found.add(at)
        for storage in event.reads:
            readers[storage].append(at)
    return frozenset(found)


def _joined(first: ProgramPart, second: ProgramPart) -> ProgramPart:
    """One part of two; one of them is empty."""
    return first if first.forward else second


def _unless_empty(part: ProgramPart) -> ProgramPart | None:
    return part if part.forward or part.backward or part.parameters else None


def _tensor_of(parameter: torch.Tensor) -> Tensor:
    said = Signature()
    said.add(parameter)
    shapes = parsed_shapes(said.text())
    found = shapes.tensor(0) if shapes is not None else None
    return found or Tensor(tuple(parameter.shape), "")
