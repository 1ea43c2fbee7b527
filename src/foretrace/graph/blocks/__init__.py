"""Blocks: what of a model, and when in a step, every node's work belongs to.

`found` puts the evidence together; each other file is one kind of evidence or one step of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.graph.blocks.corrections import Corrections as Corrections
    from foretrace.graph.blocks.corrections import read_corrections as read_corrections
    from foretrace.graph.blocks.found import CommunicationNodes as CommunicationNodes
    from foretrace.graph.blocks.found import FoundBlocks as FoundBlocks
    from foretrace.graph.blocks.found import with_blocks as with_blocks
    from foretrace.graph.blocks.table import Blocks as Blocks
    from foretrace.graph.blocks.table import blocks_of as blocks_of
    from foretrace.graph.recording import BlockEvidence as BlockEvidence
    from foretrace.graph.recording import BlocksWithEvidence as BlocksWithEvidence

lazily(__name__)
