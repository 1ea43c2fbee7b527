"""Kineto files of CPU ranks that send to each other as gloo does, written by hand.

As torch 2.13 writes them: a call (`c10d::send`, `c10d::recv_`) that names a place in a group it
does not name, and a span (`gloo:send`, `gloo:recv`) on the same thread, open until its waiter
returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.graph.recorded import Event

SHAPE = [4, 8]
NUM_BYTES = 4 * 8 * 4


@dataclass
class GlooRank:
    """One rank's thread, filled in order of time; times in microseconds on its own clock."""

    rank: int
    groups: Mapping[str, Sequence[int]]  # process groups that the rank is in
    num_ranks: int
    clock_us: float = 0.0  # what its clock shows more than rank 0's
    events: list[Event] = field(default_factory=list)

    def work(self, start_us: float, end_us: float, name: str = "aten::mm") -> None:
        """An operator that computes."""
        self._add("cpu_op", name, start_us, end_us, {"Input Dims": [SHAPE], "Input type": ["f"]})

    def send(
        self, place: int, call: tuple[float, float], waited_us: float, *, tag: str = "0"
    ) -> None:
        """A send to the rank at a place of some group; its span ends when it was waited for."""
        self._transfer("c10d::send", "gloo:send", place, call, waited_us, tag)

    def receive(
        self, place: int, call: tuple[float, float], waited_us: float, *, tag: str = "0"
    ) -> None:
        """A receive from the rank at a place of some group."""
        self._transfer("c10d::recv_", "gloo:recv", place, call, waited_us, tag)

    def collective(
        self,
        call: tuple[float, float],
        span: tuple[float, float],
        worker: int,
        *,
        number: int | None = None,
        rows: int = SHAPE[0],
    ) -> None:
        """An all-reduce over all ranks: its call, and its span on a thread of gloo's own."""
        shape = [rows, SHAPE[1]]
        numbered: Event = {"Collective name": "allreduce", "dtype": "Float", "Seq": number}
        numbered["In msg nelems"] = numbered["Out msg nelems"] = rows * SHAPE[1]
        numbered = {} if number is None else numbered
        self._add("cpu_op", "c10d::allreduce_", *call, {"Input Dims": [shape], **numbered})
        own = {"Input Dims": [shape], "Input type": ["float"]}
        self._add("user_annotation", "gloo:all_reduce", *span, own)
        self.events[-1]["tid"] += 1_000 + worker

    def text(self, *ends_us: float) -> str:
        """The file; its steps follow each other from 0, and end then."""
        for number, (start_us, end_us) in enumerate(pairwise((0, *ends_us))):
            self._add("user_annotation", f"ProfilerStep#{number}", start_us, end_us, {})
        listed = [
            {"pg_name": name, "pg_desc": "", "pg_size": len(ranks), "ranks": list(ranks)}
            for name, ranks in self.groups.items()
        ]
        info = {"backend": "gloo", "rank": self.rank, "world_size": self.num_ranks}
        return json.dumps(
            {"distributedInfo": info | {"pg_config": listed}, "traceEvents": self.events}
        )

    def _transfer(
        self,
        call_name: str,
        span_name: str,
        place: int,
        call: tuple[float, float],
        waited_us: float,
        tag: str,
    ) -> None:
        arguments = {
            "Input Dims": [[SHAPE], [], [], []],
            "Input type": ["TensorList", "", "Scalar", "Scalar"],
            "Concrete Inputs": ["", "", str(place), tag],
        }
        self._add("cpu_op", call_name, *call, arguments)
        own = {"Input Dims": [SHAPE], "Input type": ["float"], "Concrete Inputs": [""]}
        self._add("user_annotation", span_name, call[1], waited_us, own)

    def _add(
        self, category: str, name: str, start_us: float, end_us: float, arguments: Event
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 100 + self.rank,
                "tid": 100 + self.rank,
                "ts": start_us + self.clock_us,
                "dur": end_us - start_us,
                "args": arguments,
            }
        )
