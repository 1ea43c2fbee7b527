"""How ranks communicate: what each operation is, who meets, on which clock, waits and transfers.

The matching itself is rule 7, in `graph/rules/collectives.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.graph.communication.description import UNKNOWN as UNKNOWN
    from foretrace.graph.communication.description import CommunicationOps as CommunicationOps
    from foretrace.graph.communication.description import communication_ops as communication_ops

lazily(__name__)
