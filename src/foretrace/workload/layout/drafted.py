"""Pieces become items: one row for every operation that some rank launches, by stage, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Int64s, joined_ranges
from foretrace.graph import NO_LAYER
from foretrace.workload.layout.pieces import SortedPieces
from foretrace.workload.layout.tables import COMPUTE, NOTHING, NUM_STREAMS, RECEIVES, SENDS
from foretrace.workload.layout.template import Columns, Template


@dataclass(frozen=True)
class Drafted:
    """All items of all stages and what they wait for; a stage's items stand together."""

    columns: Columns  # as a template's, by item
    row: Int64s  # int64[items], in the columns of all templates one after the other
    stage: Int64s  # int64[items]
    microbatch: Int64s  # int64[items]; NO_MICROBATCH
    layer: Int64s  # int64[items], over all stages; NO_LAYER
    transfer: Int64s  # int64[items], number of a transfer; NOTHING
    # Item waited for, int64[edges]: on another stream, of another rank where a transfer's data are.
    source: Int64s
    target: Int64s  # int64[edges]
    before: Int64s  # int64[pairs], item before another on the same stream of the same rank
    behind: Int64s  # int64[pairs]
    last: Int64s  # int64[streams], the last item of every stream of every rank

    def __len__(self) -> int:
        """Number of items."""
        return len(self.stage)

    @property
    def is_exchange(self) -> Bools:
        """Which items are communication."""
        is_exchange: Bools = self.columns["exchange"] != NOTHING
        return is_exchange


def drafted(pieces: SortedPieces) -> Drafted:
    """Every piece's template repeated."""
    size_of = np.array([len(template) for template in pieces.templates], np.int64)
    rows, template = pieces.rows, pieces.rows.template
    size = size_of[template]
    first = _starts(size)
    row = joined_ranges(_starts(size_of)[template], size)
    columns = {
        key: np.concatenate([one.columns[key] for one in pieces.templates])[row]
        for key in pieces.templates[0].columns
    }
    member = np.concatenate([one.member for one in pieces.templates])[row]
    piece = np.repeat(np.arange(len(size)), size)
    layer = columns["layer"]
    stage = rows.stage[piece]
    lane = stage * NUM_STREAMS + columns["stream"]
    by_lane = np.argsort(lane, kind="stable")
    is_last = np.append(lane[by_lane][1:] != lane[by_lane][:-1], True)
    edges = np.concatenate(
        [
            _inside(pieces.templates, template, first),
            _between(pieces, first, lane),
            _at_barriers(pieces, first, lane, by_lane),
        ],
        axis=1,
    )
    is_pair = ~is_last[:-1]
    edges = _distinct(edges, len(piece))
    return Drafted(
        columns=columns,
        row=row,
        stage=stage,
        microbatch=rows.microbatch[member, piece],
        layer=np.where(layer == NO_LAYER, NO_LAYER, layer + rows.first_layer[member, piece]),
        transfer=rows.transfer[piece],
        source=edges[0],
        target=edges[1],
        before=by_lane[:-1][is_pair],
        behind=by_lane[1:][is_pair],
        last=by_lane[is_last],
    )


def _starts(size: Int64s) -> Int64s:
    return np.append(0, np.cumsum(size))[:-1]


def _distinct(edges: Int64s, num_items: int) -> Int64s:
    """Each edge once, by target; int64[2, edges]."""
    key = np.sort(edges[1] * num_items + edges[0])  # `np.unique` hashes, which takes longer
    key = key[np.append(True, key[1:] != key[:-1])[: len(key)]]
    return np.stack([key % num_items, key // num_items]) if num_items else edges


def _inside(templates: Sequence[Template], template: Int64s, first: Int64s) -> Int64s:
    """Edges of all templates, for every piece; int64[2, edges]."""
    count_of = np.array([len(one.source) for one in templates], np.int64)
    count = count_of[template]
    row = joined_ranges(_starts(count_of)[template], count)
    begin = np.repeat(first, count)
    ends = [
        np.concatenate([one.source for one in templates])[row],
        np.concatenate([one.target for one in templates])[row],
    ]
    return np.stack(ends) + begin


def _between(pieces: SortedPieces, first: Int64s, lane: Int64s) -> Int64s:
    """Edges between pieces, those along a stream left out; int64[2, edges]."""
    waits = pieces.waits
    source = first[waits[:, 0]] + waits[:, 1]
    target = first[waits[:, 2]] + waits[:, 3]
    is_kept = lane[source] != lane[target]
    edges: Int64s = np.stack([source[is_kept], target[is_kept]])
    return edges


def _at_barriers(pieces: SortedPieces, first: Int64s, lane: Int64s, by_lane: Int64s) -> Int64s:
    """From the last communication of every other stream to the entries of barriers."""
    edges: list[tuple[int, int]] = []
    sorted_lane = lane[by_lane]
    for piece in pieces.barriers.tolist():
        begin = int(first[piece])
        entries = pieces.templates[pieces.rows.template[piece]].entries[0]
        for stream in set(range(NUM_STREAMS)) - {COMPUTE, SENDS, RECEIVES}:
            own = int(pieces.rows.stage[piece]) * NUM_STREAMS + stream
            low, high = np.searchsorted(sorted_lane, [own, own + 1])
            place = low + int(np.searchsorted(by_lane[low:high], begin))
            edges.extend(
                (int(by_lane[place - 1]), begin + entry)
                for entry in entries
                if place > low and lane[begin + entry] != own
            )
    return np.array(edges, np.int64).reshape(-1, 2).T
