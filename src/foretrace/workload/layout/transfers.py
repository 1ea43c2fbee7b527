"""Transfers between stages: what is sent for which receive, and what each end is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrace.base import CollectiveKind, WorkloadError
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.layout.pieces import Pieces, Place
from foretrace.workload.layout.tables import RECEIVES, SENDS
from foretrace.workload.layout.template import Template, template_of_block
from foretrace.workload.layout.units import UnitTemplates
from foretrace.workload.plan.plan import Group

Result = tuple[bool, int, int]  # forward or not, microbatch, chunk that made it


class Transfers:
    """Numbers of all transfers between stages, and templates of their two ends."""

    def __init__(self, templates: UnitTemplates, num_bytes: int, dtype: str) -> None:
        """Make templates of sends and receives in both directions.

        Args:
            templates: whose tables are used.
            num_bytes: of one microbatch's activations, or of their gradients.
            dtype: number format of both.
        """
        self._numbers: dict[Result, int] = {}
        self._data: dict[int, tuple[Place, ...]] = {}
        self._posted: dict[int, Place] = {}
        self._templates = {
            (stream, is_forward): _on_stream(
                template_of_block(
                    _transfer(num_bytes, dtype, is_forward=is_forward, stream=stream),
                    templates.tables,
                ),
                stream,
            )
            for stream in (SENDS, RECEIVES)
            for is_forward in (True, False)
        }

    def number(self, result: Result) -> int:
        """Number of the transfer of a result."""
        return self._numbers.setdefault(result, len(self._numbers))

    def sent(self, number: int, data: Sequence[Place]) -> None:
        """Note what has to be ready before a transfer leaves."""
        self._data[number] = tuple(data)

    def posted(self, number: int, place: Place) -> None:
        """Note the item that receives a transfer."""
        self._posted[number] = place

    def connect(self, pieces: Pieces) -> None:
        """Let every receive begin when there is something to receive.

        On a device it would begin when posted, and wait. That it does not here keeps the wait for
        another stage apart from the transfer, and from slowing kernels that run meanwhile.

        Raises:
            WorkloadError: if something is received that no stage sends.
        """
        for number, place in self._posted.items():
            if number not in self._data:
                raise WorkloadError(
                    "the schedule lets a stage receive what no stage sends: check its units with "
                    "foretrace.workload.check_schedule"
                )
            pieces.wait(place, self._data[number])

    def template(self, stream: int, *, is_forward: bool) -> Template:
        """One end of a transfer."""
        return self._templates[stream, is_forward]


def _transfer(num_bytes: int, dtype: str, *, is_forward: bool, stream: int) -> Block:
    verb = "send" if stream == SENDS else "receive"
    what, phase = ("activations", Phase.FORWARD) if is_forward else ("gradients", Phase.BACKWARD)
    item = Exchange(
        f"{verb} {what}", CollectiveKind.SEND_RECV, Group.PIPELINE, num_bytes, dtype, phase
    )
    return Block(Part.TRANSFER, (item,))


def _on_stream(template: Template, stream: int) -> Template:
    streams = np.full(len(template), stream, np.int64)
    return replace(template, columns={**template.columns, "stream": streams})
