"""How near made traces come to their source: Kolmogorov-Smirnov distances, beside the source's own.

The distance of two samples is the largest difference of their cumulative shares, 0 to 1. Names
have no order of their own: they are taken by how often the source has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
from foretrace.exchange.synthesis.observed import Observed


@dataclass(frozen=True)
class Distance(Plain):
    """One measure's distances; -1 where a side has nothing of it."""

    measure: str  # "operators", "durations", ...
    made: float  # between what was made and the source
    halves: float  # between the first and the second half of the source's ranks
    num_made: int  # samples
    num_source: int


@dataclass(frozen=True, repr=False)
class Closeness(Answer):
    """All measures, and lengths of the critical path."""

    distances: tuple[Distance, ...]
    source_ns_per_node: float  # critical path of the source over the nodes of a rank
    made_ns_per_node: float

    @property
    def headline(self) -> str:
        """The length of the critical path beside the source's."""
        source_ns = self.source_ns_per_node
        ratio = self.made_ns_per_node / source_ns if source_ns else 0
        return f"critical path per node: {ratio:.2f} times the source's"

    def parts(self) -> tuple[Told, ...]:
        """Every measure."""
        return (
            Table.of(
                "distances",
                self.distances,
                Column("measure", "distance (KS, 0 to 1)"),
                Column("made", unit=Unit.NUMBER, value=lambda one: _known(one.made)),
                Column("halves", unit=Unit.NUMBER, value=lambda one: _known(one.halves)),
                Column("num_made", "made of"),
                Column("num_source", "source of"),
            ),
        )


def _known(distance: float) -> float | None:
    return None if distance < 0 else distance


def closeness(source: Observed, made: Observed) -> Closeness:
    """How near `made` comes to `source`."""
    names = [token.name for token in source.tokens]
    often = Counter(names[token] for token in source.token)
    place = {name: at for at, (name, _) in enumerate(often.most_common())}
    first, second = _halves(source)
    samples = [_samples(one, place) for one in (source, made, first, second)]
    return Closeness(
        tuple(
            Distance(
                measure,
                made=distance(samples[0][measure], samples[1][measure]),
                halves=distance(samples[2][measure], samples[3][measure]),
                num_made=len(samples[1][measure]),
                num_source=len(samples[0][measure]),
            )
            for measure in samples[0]
        ),
        source_ns_per_node=_ns_per_node(source),
        made_ns_per_node=_ns_per_node(made),
    )


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """The Kolmogorov-Smirnov distance of two samples; -1 if one is empty."""
    if not one or not other:
        return -1.0
    first, second = np.sort(np.array(one)), np.sort(np.array(other))
    at = np.concatenate([first, second])
    return float(np.abs(_share(first, at) - _share(second, at)).max())


def _share(ordered: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.float64]:
    below: NDArray[np.float64] = np.searchsorted(ordered, at, side="right") / len(ordered)
    return below


def _samples(seen: Observed, place: dict[str, int]) -> dict[str, list[int]]:
    token = [place.get(one.name, len(place)) for one in seen.tokens]
    size = [-1 if one.message is None else one.message.num_bytes for one in seen.tokens]
    return {
        "operators": [token[one] for one in seen.token],
        "durations": seen.duration_ns,
        "sizes": [size[one] for one in seen.token if size[one] >= 0],
        "waits": [len(waits.ago) for waits in seen.waits],
        "critical path": seen.path_ns,
    }


def _halves(seen: Observed) -> tuple[Observed, Observed]:
    """The first half of every rank's nodes, and the second."""
    begins = zip(seen.begins, seen.begins[1:], strict=False)
    middles = [(begin, (begin + end) // 2, end) for begin, end in begins]
    middle = len(seen.path_ns) // 2
    return (
        _part(seen, [(begin, split) for begin, split, _ in middles], seen.path_ns[:middle]),
        _part(seen, [(split, end) for _, split, end in middles], seen.path_ns[middle:]),
    )


def _part(seen: Observed, spans: list[tuple[int, int]], path_ns: list[int]) -> Observed:
    rows = [row for begin, end in spans for row in range(begin, end)]
    return replace(
        seen,
        token=[seen.token[row] for row in rows],
        duration_ns=[seen.duration_ns[row] for row in rows],
        waits=[seen.waits[row] for row in rows],
        path_ns=path_ns,
    )


def _ns_per_node(seen: Observed) -> float:
    return sum(seen.path_ns) / max(len(seen.token) / max(seen.num_ranks, 1), 1)
