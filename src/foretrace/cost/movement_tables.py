"""Tables of what memory bounds: files `movement-*.parquet`, as `foretrace measure` writes them.

A row is an operator on a matrix of rows x width. It is written down as a trace would show it, so
that what is known of an operator in a trace (its bytes, its way through memory) holds here too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.base import Int64s, known_format
from foretrace.cost.baselines import RowWork
from foretrace.cost.measured import ANY_DTYPE, Measured, groups_of
from foretrace.cost.memory_bound import Movements
from foretrace.cost.predicting import TURNED_MOVEMENT
from foretrace.cost.signatures import MOVEMENT, Operation, operation_of
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

_INDEX = "int64"
_TURNED = "aten::t"


class _Input(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]


_Call = tuple[str, tuple[_Input | str, ...]]


def movement_tables(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    """Operators by GPU and release; those that no cost model knows are left out."""
    import polars as pl  # on demand: it takes longer to import than most commands take

    origin = pl.col("source").str.split("@").list.first()
    model = (
        pl.when(pl.col("op") == _TURNED).then(pl.lit(TURNED_MOVEMENT)).otherwise(pl.lit(MOVEMENT))
    )
    frame = frame.with_columns(_origin=origin, _model=model).filter(pl.col("time_ns") > 0)
    for labels, rows in frame.group_by(("gpu", "_origin", "_model"), maintain_order=True):
        gpu, source, asked = map(str, labels)
        chip = chips.get(gpu)
        columns = rows.select("op", "rows", "width", "dtype").iter_rows()
        found = [_operation(op, (size, width), dtype) for op, size, width, dtype in columns]
        is_known = np.array([one.model == MOVEMENT for one in found], np.bool_)
        if chip is None or not is_known.any():
            continue
        known = rows.filter(pl.Series(is_known))
        sizes: Int64s = np.array([one.sizes for one in found if one.model == MOVEMENT], np.int64)
        num_bytes = sizes[:, 0].astype(np.float64)
        yield Measured(
            model=asked,
            kind="",
            family=asked,
            gpu=gpu,
            chip=chip,
            shapes=Movements(num_bytes, sizes[:, 1].astype(np.int8)),
            work=RowWork(np.zeros(len(sizes)), num_bytes, known["dtype"][0]),
            measured_ns=known["time_ns"].to_numpy().astype(np.float64),
            group=groups_of(known, ("rows", "width")),
            source=source,
            dtype=ANY_DTYPE,
        )


def _operation(op: str, shape: tuple[int, int], dtype: str) -> Operation:
    call = _CALLS.get(op)
    if call is None:
        return operation_of(op, "")
    name, inputs = call(shape, dtype)
    tensors = [one if isinstance(one, _Input) else _Input((), "", ()) for one in inputs]
    said = {
        "dims": [one.shape for one in tensors],
        "types": [known_format(one.dtype).profiled if one.dtype else "" for one in tensors],
        "strides": [one.strides for one in tensors],
        "inputs": [one if isinstance(one, str) else "" for one in inputs],
    }
    return operation_of(name, json.dumps(said))


def _alike(name: str, count: int = 1) -> Callable[[tuple[int, int], str], _Call]:
    """An operator on so many tensors of the shape."""
    return lambda shape, dtype: (name, (_matrix(shape, dtype),) * count)


def _normed(name: str, count: int) -> Callable[[tuple[int, int], str], _Call]:
    """A norm along rows with so many vectors of parameters."""
    return lambda shape, dtype: (
        name,
        (_matrix(shape, dtype), f"[{shape[1]}]", *(_Input(shape[1:], dtype, (1,)),) * count),
    )


def _matrix(shape: tuple[int, int], dtype: str) -> _Input:
    return _Input(shape, dtype, (shape[1], 1))


def _picked(name: str, shape: tuple[int, int], dtype: str, *, has_rows: bool = False) -> _Call:
    """All rows in another order."""
    data, index = _matrix(shape, dtype), _Input(shape[:1], _INDEX, (1,))
    return name, (data, "0", index, *((data,) if has_rows else ()))


def _turned(shape: tuple[int, int], dtype: str) -> _Call:
    """A copy in order of a matrix that lies column by column."""
    to = _matrix((shape[1], shape[0]), dtype)
    return "aten::copy_", (to, _Input(to.shape, dtype, (1, shape[1])), "False")


_CALLS: Mapping[str, Callable[[tuple[int, int], str], _Call]] = {
    "aten::copy_": _alike("aten::copy_", 2),
    "aten::add": _alike("aten::add", 2),
    "aten::gelu": _alike("aten::gelu"),
    "aten::softmax": _alike("aten::_softmax"),
    "aten::layer_norm": _normed("aten::native_layer_norm", 2),
    "aten::rms_norm": _normed("aten::_fused_rms_norm", 1),
    "aten::index_select": lambda shape, dtype: _picked("aten::index_select", shape, dtype),
    "aten::index_add_": lambda shape, dtype: _picked(
        "aten::index_add_", shape, dtype, has_rows=True
    ),
    _TURNED: _turned,
}
