"""`Packings`: what packers make of a dataset, and what the step gains by it.

Packing that cuts documents leaves out attention across the cut, so steps of different packers do
different work. A gain is told twice: for the same work, and for a token.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    milliseconds_text,
)


@dataclass(frozen=True)
class Packing(Plain):
    """What one packer makes of the documents."""

    name: str
    shards: str  # what context parallelism cuts; "" without
    keeps_documents_whole: bool
    imbalance: float  # time of a step's longest microbatch, on its slowest rank, over their mean
    longest_tokens: int
    overhead_ms: float  # of the packer itself, for one step
    delay_iterations: float  # that a token waits, mean
    longest_delay_iterations: int
    step_ns: float  # mean
    p50_ns: float
    p95_ns: float
    ns_per_token: float
    ns_per_work: float  # of the step, by ns of work in it
    gain: float  # of the same work, over documents as they come
    gain_low: float  # 80 % interval
    gain_high: float
    token_gain: float  # of a token, over documents as they come


@dataclass(frozen=True)
class DocumentMix(Plain):
    """Steps of a dataset's documents, as they come."""

    documents: str
    packer: str
    num_steps: int
    imbalance: float  # time of a step's longest microbatch, on its slowest rank, over their mean
    mean_ns: float
    p50_ns: float
    p95_ns: float
    even_ns: float  # of microbatches that are one document each

    def table(self) -> Table:
        """One row."""
        return Table.of(
            "documents",
            (self,),
            Column("documents"),
            Column("packer", "packed"),
            Column("imbalance", unit=Unit.NUMBER),
            Column("mean_ns"),
            Column("p50_ns", "50 % ms"),
            Column("p95_ns", "95 % ms"),
            Column("even_ns", "one each ms"),
            title=f"{self.num_steps:,} steps of these documents",
        )


@dataclass(frozen=True)
class ExpertMix(Plain):
    """Steps under an uneven load of experts, placed in one way."""

    load: str
    placement: str  # of experts on ranks
    num_steps: int
    imbalance: float  # load of the fullest rank over the mean, of all microbatches and layers
    worst_imbalance: float  # of the layer where it is largest
    dropped: float  # share of tokens
    mean_ns: float
    p50_ns: float
    p95_ns: float
    even_ns: float  # of an even load


def expert_table(mixes: tuple[ExpertMix, ...]) -> Table:
    """A row for each placement."""
    return Table.of(
        "experts",
        mixes,
        Column("placement", "experts are"),
        Column("imbalance", "fullest rank", Unit.NUMBER),
        Column("worst_imbalance", "worst layer", Unit.NUMBER),
        Column("dropped", unit=Unit.SHARE),
        Column("mean_ns"),
        Column("p50_ns", "50 % ms"),
        Column("p95_ns", "95 % ms"),
        Column("even_ns", "even ms"),
        title=f"load of experts: {mixes[0].load}, {mixes[0].num_steps:,} steps",
    )


@dataclass(frozen=True)
class WindowGain(Plain):
    """What the best packer gains at another length of the window."""

    window: int
    attention_share: float  # of the work on one document that fills the window
    imbalance: float  # as documents come
    gain: float
    low: float
    high: float


@dataclass(frozen=True, repr=False, kw_only=True)
class Packings(Answer):
    """Packers side by side, as documents come first."""

    documents: str
    model: str
    machine: str
    window: int
    num_microbatches: int
    num_steps: int
    even_ns: float  # the step of microbatches that are one document each
    packers: tuple[Packing, ...]
    windows: tuple[WindowGain, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Packing:
        """The one that gains most on the same work."""
        return max(self.packers, key=lambda one: one.gain)

    @property
    def headline(self) -> str:
        """Whether packing is worth it."""
        best, first = self.best, self.packers[0]
        if best.gain_low <= 1:
            return (
                f"packing is not worth it for {self.documents}: as it comes, the longest "
                f"microbatch takes {first.imbalance:.2f} times the mean, and the best packer "
                f"gains {best.gain:.3f} ({best.gain_low:.3f} to {best.gain_high:.3f})"
            )
        shards = f", context by {best.shards}" if best.shards else ""
        return (
            f"{best.name}{shards}: {best.gain:.2f} times as fast for the same work "
            f"({best.gain_low:.2f} to {best.gain_high:.2f}), imbalance {first.imbalance:.2f} -> "
            f"{best.imbalance:.2f}, tokens wait {best.delay_iterations:.2f} steps"
        )

    def parts(self) -> tuple[Told, ...]:
        """What it is of, packers, windows, notes."""
        return (
            Facts(
                (
                    Fact("documents", self.documents),
                    Fact("model", f"{self.model} on {self.machine}"),
                    Fact("step", f"{self.num_microbatches} microbatches of {self.window:,} tokens"),
                    Fact("one document each", f"{milliseconds_text(self.even_ns)} ms"),
                )
            ),
            Table.of(
                "packers",
                self.packers,
                Column("name", "packer"),
                Column("shards", "context by"),
                Column("imbalance", unit=Unit.NUMBER),
                Column("step_ns", "step ms"),
                Column("p95_ns", "95 % ms", shown=Shown.WIDE),
                Column("gain", "same work", Unit.NUMBER),
                Column("gain_low", "from", Unit.NUMBER),
                Column("gain_high", "to", Unit.NUMBER),
                Column("token_gain", "a token", Unit.NUMBER),
                Column("delay_iterations", "delay", Unit.NUMBER),
                Column("overhead_ms", "own ms", Unit.NUMBER),
                title="packers: how many times as fast",
            ),
            Table.of(
                "windows",
                self.windows,
                Column("window", "window", Unit.COUNT),
                Column("attention_share", "attention", Unit.SHARE),
                Column("imbalance", "as it comes", Unit.NUMBER),
                Column("gain", "same work", Unit.NUMBER),
                Column("low", "from", Unit.NUMBER),
                Column("high", "to", Unit.NUMBER),
                title="by length of the window",
            ),
            Sentences.of("to know", self.notes),
        )
