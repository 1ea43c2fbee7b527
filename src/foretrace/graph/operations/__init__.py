"""What of the traces becomes nodes: host items and device operations, and what orders them.

`table` is what the rules read; the other files say how it is cut out of a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.graph.operations.names import BEFORE_RECORDING as BEFORE_RECORDING
    from foretrace.graph.operations.names import DEVICE_WORK as DEVICE_WORK
    from foretrace.graph.operations.names import GRAPH_WORK as GRAPH_WORK
    from foretrace.graph.operations.names import OWN_NAMES as OWN_NAMES
    from foretrace.graph.operations.names import UNRECORDED as UNRECORDED
    from foretrace.graph.operations.names import NamePool as NamePool
    from foretrace.graph.operations.table import NOT_LAUNCHED as NOT_LAUNCHED
    from foretrace.graph.operations.table import DeviceOps as DeviceOps
    from foretrace.graph.operations.table import HostItems as HostItems
    from foretrace.graph.operations.table import Operations as Operations
    from foretrace.graph.operations.table import host_moments as host_moments
    from foretrace.graph.operations.table import operations_of as operations_of

lazily(__name__)
