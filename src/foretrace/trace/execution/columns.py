"""`ExecutionTrace`: what PyTorch's execution trace observer wrote of one process, as columns.

`ExecutionTrace` holds what an analysis of many nodes asks for; what replays the operators
themselves needs every argument, values and shapes included: `ExecutionNode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import Bools, Int32s, Int64s

NO_STRING = -1
NO_NODE = -1


@dataclass(frozen=True)
class TensorColumns:
    """Tensors that nodes take and give, one row per mention, by node, inputs first.

    A tensor's identity is its id; two views of one memory share a storage.
    """

    node: Int32s  # int32[rows], row of the node
    is_output: Bools  # bool[rows]
    tensor: Int64s  # int64[rows], id
    storage: Int64s  # int64[rows], id
    offset: Int64s  # int64[rows], elements from the storage's begin
    num_elements: Int64s  # int64[rows]
    item_bytes: Int64s  # int64[rows]
    device: Int32s  # int32[rows], string: "cuda:0"
    dtype: Int32s  # int32[rows], string: "float", "c10::Half"


@dataclass(frozen=True)
class CommunicationColumns:
    """What `record_param_comms` nodes say; number columns are -1 where they do not."""

    node: Int32s  # int32[rows]
    collective: Int32s  # int32[rows], string
    dtype: Int32s  # int32[rows], string
    group: Int32s  # int32[rows], string: name, or address, of the process group
    group_description: Int32s  # int32[rows], string
    in_elements: Int64s  # int64[rows]
    out_elements: Int64s  # int64[rows]
    group_size: Int64s  # int64[rows]
    sequence: Int64s  # int64[rows]
    first_rank: Int64s  # int64[rows], of the group's ranks, which are evenly spaced
    rank_stride: Int64s  # int64[rows]


@dataclass(frozen=True)
class ExecutionTrace:
    """One process, nodes by id, which rise with the begin of what they stand for."""

    path: Path
    schema: str  # "1.0.1", "1.1.1-chakra.0.0.4"
    process: int
    started: str  # date and time, as in the file
    strings: tuple[str, ...]
    node_id: Int64s  # int64[nodes], rising
    parent: Int32s  # int32[nodes], row of the caller; NO_NODE of the root
    name: Int32s  # int32[nodes], string
    record_function: Int64s  # int64[nodes]; 0 of nodes that are no call: process and threads
    forward: Int64s  # int64[nodes], id of the forward node that a backward node belongs to
    sequence: Int64s  # int64[nodes], autograd's; -1
    scope: Int32s  # int32[nodes], as PyTorch's RecordScope: 0 function, 1 backward, 7 user
    thread: Int64s  # int64[nodes], counted from 1
    operator_schema: Int32s  # int32[nodes], string; NO_STRING where it has none
    kernel_backend: Int32s  # int32[nodes], string: "triton"
    kernel_file: Int32s  # int32[nodes], string
    tensors: TensorColumns
    communication: CommunicationColumns

    @property
    def num_nodes(self) -> int:
        """Number of nodes, process and threads among them."""
        return len(self.node_id)


@dataclass(frozen=True, slots=True)
class ExecutionArgument:
    """One recorded input or output."""

    type: str  # "Tensor(float)", "GenericList[Int,Int]", "Int", ...
    value: object  # of a tensor: its id, its storage, offset, elements, item bytes, device
    shape: object
    strides: object  # in elements; none before schema 1.1.1


@dataclass(frozen=True, slots=True)
class ExecutionNode:
    """One node; in a file they stand in the order in which they ended."""

    id: int
    parent: int
    name: str
    schema: str  # "aten::mm(Tensor self, Tensor mat2) -> Tensor"; "" if it is no operator
    record_function: int
    inputs: tuple[ExecutionArgument, ...]
    outputs: tuple[ExecutionArgument, ...]
    attributes: Mapping[str, object]  # those that schemas since 1.0.2 list
