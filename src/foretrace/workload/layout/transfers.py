"""Templates of transfers between stages: what each end is called, and on which stream it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, ModelBlocks
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.layout.tables import RECEIVES, SENDS, Tables
from foretrace.workload.layout.template import Template, template_of_block
from foretrace.workload.plan.plan import Group


class Transfers:
    """Templates of the two ends of transfers between stages."""

    def __init__(self, tables: Tables, blocks: ModelBlocks) -> None:
        """Make templates of sends and receives in both directions.

        Args:
            tables: takes their texts and exchanges.
            blocks: between whose chunks activations go, and their gradients back.
        """
        self._templates = {
            (stream, is_forward): _on_stream(
                template_of_block(_transfer(blocks, is_forward=is_forward, stream=stream), tables),
                stream,
            )
            for stream in (SENDS, RECEIVES)
            for is_forward in (True, False)
        }

    def template(self, stream: int, *, is_forward: bool) -> Template:
        """One end of a transfer."""
        return self._templates[stream, is_forward]


def _transfer(blocks: ModelBlocks, *, is_forward: bool, stream: int) -> Block:
    verb = "send" if stream == SENDS else "receive"
    what, phase = ("activations", Phase.FORWARD) if is_forward else ("gradients", Phase.BACKWARD)
    item = Exchange(
        f"{verb} {what}",
        CollectiveKind.SEND_RECV,
        Group.PIPELINE,
        blocks.transfer_bytes,
        blocks.transfer_dtype,
        phase,
        channels=blocks.transfer_channels,
    )
    return Block(Part.TRANSFER, (item,))


def _on_stream(template: Template, stream: int) -> Template:
    streams = np.full(len(template), stream, np.int64)
    return replace(template, columns={**template.columns, "stream": streams})
