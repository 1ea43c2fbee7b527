"""PyTorch execution traces, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.trace.execution.columns import CommunicationColumns as CommunicationColumns
    from foretrace.trace.execution.columns import ExecutionArgument as ExecutionArgument
    from foretrace.trace.execution.columns import ExecutionNode as ExecutionNode
    from foretrace.trace.execution.columns import ExecutionTrace as ExecutionTrace
    from foretrace.trace.execution.columns import TensorColumns as TensorColumns
    from foretrace.trace.execution.read import execution_traces_beside as execution_traces_beside
    from foretrace.trace.execution.read import read_execution_nodes as read_execution_nodes
    from foretrace.trace.execution.read import read_execution_trace as read_execution_trace
    from foretrace.trace.execution.read import recognises as recognises

lazily(__name__)
