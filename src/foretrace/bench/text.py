"""A `BenchProgram` as the text of a Python program that needs only PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from foretrace.base import NS_PER_MS
from foretrace.bench.contents import IntegerContents
from foretrace.bench.identities import value_indices
from foretrace.bench.program import BenchCall, BenchProgram, Given
from foretrace.bench.repetition import RepeatedCalls, runs_of
from foretrace.bench.schema import TensorRecord, contiguous_strides
from foretrace.bench.statements import (
    PORTABLE,
    comment_of,
    deletion,
    dtype_text,
    escaped,
    item_of,
    lines_of,
    target_list,
    with_comment,
    with_streams,
    work_name,
    wrapped,
)

_INDENT = "    "
_IMPORTS = '''"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.distributed as dist'''


def text_of(program: BenchProgram, *, recipe: str, is_flat: bool = False) -> str:
    """The program's text.

    Args:
        program: what to write.
        recipe: what it was made with, kept for `foretrace bench check`.
        is_flat: every call on its own, without functions for what repeats.
    """
    writer = _Writer(program, is_flat=is_flat)
    step = ["\n".join(writer.step())]
    parts = [
        _head(program, writer.num_functions),
        "\n".join(_constants(program, recipe)),
        "\n\n\n".join(
            [*_portable(program), "\n".join(_given(program, writer)), *writer.functions, *step]
        ),
        files("foretrace.bench").joinpath("harness.txt").read_text(encoding="utf-8"),
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts)
    return "\n".join(wrapped(line) for line in text.splitlines()) + "\n"


def _portable(program: BenchProgram) -> Iterator[str]:
    """Functions for operators of one kind of device."""
    for name in dict.fromkeys(call.name for call in program.calls if call.name in PORTABLE):
        yield PORTABLE[name].strip("\n")


class _Writer:
    """Names of tensors and when each is read last."""

    def __init__(self, program: BenchProgram, *, is_flat: bool) -> None:
        self.program = program
        self.calls = program.calls
        self.name_by_value = {one.value: f"x.a{i}" for i, one in enumerate(program.given)}
        self.functions: list[str] = []
        items = [item_of(call, program) for call in self.calls]
        self.runs = () if is_flat else runs_of(items)
        self.last_read: dict[int, int] = {}
        for i, item in enumerate(items):
            for value in item.reads:
                self.last_read[value] = i
        self._by_body: dict[str, str] = {}

    @property
    def num_functions(self) -> int:
        """Functions for calls that repeat."""
        return len(self.functions)

    def step(self) -> Iterator[str]:
        """The function that runs a step."""
        yield "def step(x, comm):"
        yield f'{_INDENT}"""The operators of one step, in the order in which they ran."""'
        run_by_start = {run.start: run for run in self.runs}
        at, label = 0, ""
        while at < len(self.calls):
            if self.calls[at].label != label:
                label = self.calls[at].label
                yield from ([f"{_INDENT}# {escaped(label)}"] if label else [])
            run = run_by_start.get(at)
            lines = self._run(run) if run is not None else self._call(at)
            yield from (_INDENT + line for line in lines)
            at = at + 1 if run is None else run.stop
        waited = {node for call in self.calls for node in call.waits}
        for call in self.calls:
            if call.collective is not None and call.node not in waited:
                yield f"{_INDENT}{work_name(call.node)}.wait()"

    def _name(self, value: int) -> str:
        return self.name_by_value.setdefault(value, f"t{len(self.name_by_value)}")

    def _call(self, at: int) -> Iterator[str]:
        call = self.calls[at]
        lines = list(
            lines_of(call, self.program, name_of=self._name, wanted=self.last_read.__contains__)
        )
        lines[-1] = with_comment(lines[-1], comment_of(call, self.program))
        yield from with_streams(lines, call)
        yield from self._freed(range(at, at + 1))

    def _freed(self, calls: range) -> Iterator[str]:
        """Forget what these calls read last."""
        dead = [
            value
            for at in calls
            for value in _touched(self.calls[at])
            if self.last_read.get(value) == at and not self._name(value).startswith("x.")
        ]
        names = [self._name(one) for one in dict.fromkeys(dead)]
        if names:
            yield deletion(names)

    def _run(self, run: RepeatedCalls) -> Iterator[str]:
        windows = list(run.windows())
        outsides = [self._outside(window) for window in windows]
        left = sorted({i for window in windows for i in self._left(window)})
        body = "\n".join(self._body(windows, left))
        name = self._by_body.setdefault(body, f"repeated_{len(self._by_body) + 1}")
        if name.rpartition("_")[2] == str(len(self.functions) + 1):
            self.functions.append(body.replace("NAME", name, 1))
        for window, outside in zip(windows, outsides, strict=True):
            made = self._made(window)
            targets = [self._name(made[i]) if self._is_left(made[i], window) else "_" for i in left]
            given = ", ".join(self._name(one) for one in outside)
            text = f"{name}({given})"
            yield f"{target_list(targets)} = {text}" if set(targets) - {"_"} else text
            inside = set(made)
            dead = [
                one
                for one in outside
                if self.last_read[one] in window and not self._name(one).startswith("x.")
            ]
            dead = [one for one in dead if one not in inside]
            if dead:
                yield deletion([self._name(one) for one in dead])

    def _outside(self, window: range) -> list[int]:
        """Values that a window reads but does not make, as first read."""
        made = set(self._made(window))
        reads = (value for at in window for value in _read(self.calls[at]))
        return [one for one in dict.fromkeys(reads) if one not in made]

    def _made(self, window: range) -> list[int]:
        return [value for at in window for value in _makes(self.calls[at])]

    def _is_left(self, value: int, window: range) -> bool:
        return self.last_read.get(value, -1) >= window.stop

    def _left(self, window: range) -> list[int]:
        """Positions, among what a window makes, of what is read after it."""
        return [i for i, one in enumerate(self._made(window)) if self._is_left(one, window)]

    def _body(self, windows: Sequence[range], left: Sequence[int]) -> Iterator[str]:
        """The function of a run, under the name NAME."""
        first = windows[0]
        outside, made = self._outside(first), self._made(first)
        names = {one: f"p{i}" for i, one in enumerate(outside)}
        names |= {one: f"t{i}" for i, one in enumerate(made)}
        returned = [made[i] for i in left]
        last = {value: at for at in first for value in _read(self.calls[at])}
        yield f"def NAME({', '.join(names[one] for one in outside)}):"
        label = ""
        for offset, at in enumerate(first):
            call = self.calls[at]
            if call.label != label and call.label:
                yield f"{_INDENT}# {escaped(call.label)}"
            label = call.label
            lines = list(
                lines_of(
                    call,
                    self.program,
                    name_of=names.__getitem__,
                    wanted=lambda one: one in last or one in returned,
                )
            )
            comments = {comment_of(self.calls[w[offset]], self.program) for w in windows}
            lines[-1] = with_comment(lines[-1], comments.pop() if len(comments) == 1 else "")
            yield from (_INDENT + line for line in lines)
            dead = [
                names[one]
                for one in _touched(call)
                if one in last and last[one] == at and one not in returned and one in set(made)
            ]
            if dead and at != first[-1]:
                yield _INDENT + deletion(list(dict.fromkeys(dead)))
        if returned:
            yield f"{_INDENT}return {target_list([names[one] for one in returned])}"


def _read(call: BenchCall) -> list[int]:
    """Values that must be there before a call, as first read."""
    cut = {one.value for one in call.cuts}
    return [
        *(one.base for one in call.cuts),
        *(i for i in value_indices(call.reads) if i not in cut),
    ]


def _makes(call: BenchCall) -> list[int]:
    made = [one for one in value_indices(call.returns) if one in call.makes]
    return [*(one.value for one in call.cuts), *dict.fromkeys(made)]


def _touched(call: BenchCall) -> list[int]:
    return [*_read(call), *_makes(call), *value_indices(call.reads)]


def _head(program: BenchProgram, num_functions: int) -> str:
    coverage = program.coverage
    lines = [
        f'"""Replays the operators of one step that {escaped(program.source)} recorded.',
        "",
        f"{coverage.num_replayed:,} of {coverage.num_operators:,} operators"
        f" ({100 * coverage.share:.1f}%)" + _time_part(program) + " are called through PyTorch,",
        "with the recorded shapes, strides, number formats and lifetimes. Values are drawn; see",
        "`Maker` below. Needs PyTorch alone:",
        "",
        "    python FILE                                   one process, collectives left out",
        "    python FILE --backend none --delay recorded   each collective takes its measured time",
        "    torchrun --nproc-per-node N FILE              collectives among N processes",
        "",
        "`x.a0`, ... are tensors that are there before the step, `t0`, ... those that it makes.",
    ]
    if num_functions:
        lines.append("Calls that repeat with the same wiring are functions, `repeated_1`, ...")
    return "\n".join([*lines, _IMPORTS])


def _time_part(program: BenchProgram) -> str:
    share = program.coverage.time_share
    return "" if share is None else f", {100 * share:.1f}% of their time,"


def _constants(program: BenchProgram, recipe: str) -> Iterator[str]:
    yield f"SOURCE = {recipe}"
    yield "aten = torch.ops.aten"
    yield 'CPU = torch.device("cpu")'
    yield "DEVICE = CPU  # of everything that was not on the CPU; `main` sets it"
    yield f'RECORDED_DEVICE = "{program.device}"'
    yield f"WORLD_SIZE = {program.world_size}  # ranks of the recorded job"
    groups = {one.name: list(one.ranks) for one in program.groups if one.ranks}
    yield f"GROUPS = {groups!a}  # ranks of each process group but the one of all"
    yield ""
    yield "# Operators that PyTorch alone does not have, as functions of their arguments."
    yield "REGISTERED = {"
    for name, reason, count, duration_ns in program.coverage.unsupported:
        took = f", {duration_ns / NS_PER_MS:.3f} ms" if duration_ns else ""
        yield f'    # "{escaped(name)}": your_function,  # {count} calls{took}: {escaped(reason)}'
    yield "}"


def _given(program: BenchProgram, writer: _Writer) -> Iterator[str]:
    yield "def given(make):"
    yield f'{_INDENT}"""Tensors that are there before the step."""'
    yield f"{_INDENT}x = SimpleNamespace()"
    members = Counter((one.lies_in, one.record.dtype) for one in program.given)
    alone: dict[str, list[str]] = {}
    shared: dict[tuple[int, str], list[Given]] = {}
    for one in program.given:
        if members[one.lies_in, one.record.dtype] == 1 and one.record.offset == 0:
            alone.setdefault(_filled(one, program.device), []).append(
                writer.name_by_value[one.value]
            )
        else:
            shared.setdefault((one.lies_in, one.record.dtype), []).append(one)
    for text, names in alone.items():
        yield from (_INDENT + line for line in _assigned(names, text))
    for cuts in shared.values():
        yield from (_INDENT + line for line in _shared(cuts, program, writer))
    yield f"{_INDENT}return x"


def _assigned(names: Sequence[str], text: str) -> Iterator[str]:
    if len(names) == 1:
        yield f"{names[0]} = {text}"
        return
    yield f"{target_list(names)} = ({text} for _ in range({len(names)}))"


def _shared(cuts: Sequence[Given], program: BenchProgram, writer: _Writer) -> Iterator[str]:
    """Several tensors that lie in the same memory."""
    most = max(cuts, key=lambda one: one.record.end_bytes)
    record = most.record
    size = record.end_bytes // max(record.item_bytes, 1)
    filled = [one.contents for one in cuts if one.contents is not None]
    whole = TensorRecord(
        tensor=0, storage=0, offset=0, item_bytes=record.item_bytes, device=record.device,
        dtype=record.dtype, shape=(size,), strides=(1,), has_strides=True,
    )  # fmt: skip
    base = Given(most.value, whole, filled[0] if filled else None, most.lies_in)
    yield f"memory = {_filled(base, program.device)}"
    for one in cuts:
        cut = one.record
        yield (
            f"{writer.name_by_value[one.value]} = "
            f"memory.as_strided({cut.shape}, {cut.strides}, {cut.offset})"
        )


def _filled(one: Given, device: str) -> str:
    """The call that makes a tensor that is there before the step."""
    record = one.record
    parts = [str(size) for size in record.shape]
    if record.strides != contiguous_strides(record.shape):
        parts.append(f"strides={record.strides}")
    if record.device == "cpu" and device != "cpu":
        parts.append("on=CPU")
    if record.dtype == "bool":
        return f"make.flags({', '.join(parts)})"
    is_floating = record.dtype.startswith(("float", "bfloat", "complex"))
    if record.dtype != ("float32" if is_floating else "int64"):
        parts.append(f"dtype={dtype_text(record)}")
    if is_floating:
        parts += ["positive=True"] if one.contents is not None and one.contents.is_positive else []
        return f"make.floats({', '.join(parts)})"
    return _integers(parts, one.contents)


def _integers(parts: list[str], contents: IntegerContents | None) -> str:
    if contents is not None and contents.is_offsets:
        return f"make.offsets({', '.join([*parts, f'total={contents.high}'])})"
    limits = {} if contents is None else {"low": contents.low, "high": contents.high}
    parts = [*parts, *(f"{name}={limit}" for name, limit in limits.items() if limit)]
    return f"make.integers({', '.join(parts)})"
