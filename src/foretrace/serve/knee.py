"""`Knee`: latencies and throughput of a deployment over the rate at which requests come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Plain,
    Series,
    Table,
    Told,
    Unit,
    number_text,
)
from foretrace.base import WorkloadError
from foretrace.serve.deployment import Deployment
from foretrace.serve.requests import Requests
from foretrace.serve.serving import ServiceTarget

_KEEPS_UP = 2.0  # times the first token of the lowest rate: beyond, requests stand in line


@dataclass(frozen=True)
class KneePoint(Plain):
    """What requests get at one rate."""

    rate: float  # requests in a second
    ttft_ms: float  # mean
    ttft_p99_ms: float
    tpot_ms: float  # median
    latency_ms: float  # mean
    output_tokens_per_s: float
    met_share: float | None  # of requests that got what they were promised


@dataclass(frozen=True, repr=False, kw_only=True)
class Knee(Answer):
    """Rates, the lowest first."""

    model: str
    gpu: str
    points: tuple[KneePoint, ...]

    @property
    def knee(self) -> KneePoint:
        """The highest rate up to which first tokens take twice those of the lowest at most."""
        found = self.points[0]
        for point in self.points:
            if point.ttft_ms > _KEEPS_UP * self.points[0].ttft_ms:
                break
            found = point
        return found

    @property
    def headline(self) -> str:
        """Where latencies begin to rise."""
        knee, last = self.knee, self.points[-1]
        return (
            f"{self.model} on {self.gpu}: up to {number_text(knee.rate)} requests/s the first "
            f"token takes {number_text(knee.ttft_ms)} ms or less, at {number_text(last.rate)} "
            f"requests/s {number_text(last.ttft_ms)} ms"
        )

    def parts(self) -> tuple[Told, ...]:
        """A row for each rate, and their curve."""
        return (
            Table.of(
                "points",
                self.points,
                Column("rate", "requests/s", Unit.NUMBER),
                Column("ttft_ms", "first token", Unit.NUMBER),
                Column("ttft_p99_ms", "99 %", Unit.NUMBER),
                Column("tpot_ms", "a token", Unit.NUMBER),
                Column("latency_ms", "whole request", Unit.NUMBER),
                Column("output_tokens_per_s", "tokens/s", Unit.NUMBER),
                Column("met_share", "promise kept"),
                title="latencies in ms by rate",
                is_strong=lambda one: one == self.knee,
                chart=Chart(
                    ChartKind.CURVES,
                    "time to the first token and of a whole request by rate",
                    "rate",
                    (
                        Series("ttft_ms", "first token", "idle"),
                        Series("latency_ms", "whole request", "compute"),
                    ),
                    Unit.NUMBER,
                    Unit.NUMBER,
                ),
            ),
        )


def knee_of(
    one: Deployment,
    requests: Requests,
    rates: Sequence[float],
    *,
    target: ServiceTarget | None = None,
    seed: int = 0,
) -> Knee:
    """A deployment's latencies over rates.

    Args:
        one: that serves.
        requests: their lengths.
        rates: in a second, coming at random.
        target: what they are promised.
        seed: of the draw, the same for every rate.

    Raises:
        WorkloadError: if there are no rates, or a request can never be served.
    """
    if not rates:
        raise WorkloadError("no rates to serve at: state some, as in 1,2,5,10")
    points = []
    for rate in sorted(rates):
        found = one.serve(requests.at_rate(rate, seed=seed), target=target)
        points.append(
            KneePoint(
                rate=rate,
                ttft_ms=found.ttft_ms.mean,
                ttft_p99_ms=found.ttft_ms.p99,
                tpot_ms=found.tpot_ms.median,
                latency_ms=found.latency_ms.mean,
                output_tokens_per_s=found.rates.output_tokens_per_s,
                met_share=found.met_share,
            )
        )
    return Knee(model=one.model.name, gpu=one.gpu, points=tuple(points))
