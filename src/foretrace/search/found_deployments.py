"""`FewestGpus`: the fewest GPUs that keep a promise, and what else was looked at."""

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
    percent_text,
)
from foretrace.serve import ServiceTarget


@dataclass(frozen=True)
class TriedGpus(Plain):
    """Copies of a model, and what requests got."""

    num_gpus: int
    gpu: str
    tensor: int  # GPUs that a layer lies over
    pipeline: int  # stages that layers lie over
    data: int  # copies that share experts and go in step; 1: each by itself
    has_expert_parallel: bool
    copies: int  # engines that requests take turns on
    max_num_seqs: int
    max_num_batched_tokens: int
    kept_share: float  # of requests that got what they were promised
    ttft_ms: float  # 99 of 100 requests wait no longer
    tpot_ms: float
    output_tokens_per_s: float  # of all copies


@dataclass(frozen=True, repr=False, kw_only=True)
class FewestGpus(Answer):
    """The fewest GPUs that keep a promise, and what else was tried."""

    model: str
    gpu: str
    target: ServiceTarget
    rate: float  # requests in a second
    best: TriedGpus
    slow: TriedGpus  # the same engine and copies where steps take the most of their interval
    slow_gpus: int | None  # of that engine that keep it even then; none: no number tried does
    least_gpus: int  # no deployment of the space that was not ruled out has fewer
    num_deployments: int  # engines of the space, each with any number of copies
    num_simulated: int  # runs of an engine
    refused: tuple[str, ...]  # why engines cannot serve at all
    tried: tuple[TriedGpus, ...]
    dollars_per_million_tokens: float | None = None  # of replies, by the best; None: no price

    @property
    def headline(self) -> str:
        """How many."""
        best = self.best
        return (
            f"{best.num_gpus} x {self.gpu} serve {self.rate:.3g} requests/s of {self.model}: "
            f"{best.copies} x {shape_words(best)}; {percent_text(100 * best.kept_share)} keep "
            f"{self.target.words}"
        )

    def parts(self) -> tuple[Told, ...]:
        """How sure that is; all that was tried, by GPUs."""
        best = self.best
        sure = (
            "none with fewer GPUs keeps it"
            if self.least_gpus >= best.num_gpus
            else f"the time was over; what is left needs {self.least_gpus:,} GPUs or more"
        )
        then = "no number of them that was tried keeps it"
        if self.slow_gpus is not None:
            then = (
                f"{self.slow_gpus:,} GPUs keep it" if self.slow_gpus > best.num_gpus else "enough"
            )
        facts = [
            Fact(
                "fewest", f"{best.num_gpus:,} GPU{'s' * (best.num_gpus > 1)}", sure, is_first=True
            ),
            Fact("if steps are slow", f"{percent_text(100 * self.slow.kept_share)} kept", then),
            Fact(
                "engine",
                f"{best.copies} x {shape_words(best)}",
                f"max_num_seqs {best.max_num_seqs:,}, "
                f"max_num_batched_tokens {best.max_num_batched_tokens:,}",
            ),
            Fact(
                "deployments", f"{self.num_deployments:,}", f"{self.num_simulated:,} runs of them"
            ),
        ]
        if self.dollars_per_million_tokens is not None:
            price = f"${self.dollars_per_million_tokens:.3f}"
            facts.append(Fact("price", price, "a million tokens"))
        return Facts(tuple(facts)), self._tried(), Sentences.of("cannot serve", self.refused)

    def _tried(self) -> Table:
        def varied(key: str, title: str, unit: Unit = Unit.COUNT) -> Column:
            """Told where there is room only, if it is the same of all."""
            is_varied = len({getattr(one, key) for one in self.tried}) > 1
            return Column(key, title, unit, shown=Shown.EVERYWHERE if is_varied else Shown.WIDE)

        return Table.of(
            "tried",
            self.tried,
            Column("num_gpus", "GPUs"),
            Column("gpu", "GPU"),
            varied("tensor", "tp"),
            varied("pipeline", "pp"),
            varied("data", "dp"),
            varied("has_expert_parallel", "ep", Unit.TEXT),
            Column("copies", unit=Unit.COUNT),
            Column("kept_share", "kept"),
            Column("ttft_ms", "first token", Unit.NUMBER),
            Column("tpot_ms", "a token", Unit.NUMBER),
            Column("output_tokens_per_s", "tokens/s", Unit.NUMBER),
            varied("max_num_seqs", "sequences"),
            varied("max_num_batched_tokens", "tokens"),
            title="what was tried: ms that 99 of 100 requests do not exceed",
            is_strong=lambda one: one == self.best,
        )


def shape_words(one: TriedGpus) -> str:
    """Degrees of an engine: "tp2", "tp1 pp2", "tp1 dp4 ep"."""
    return degree_words(one.tensor, one.pipeline, one.data, is_shared=one.has_expert_parallel)


def degree_words(tensor: int, pipeline: int, data: int, *, is_shared: bool) -> str:
    """The same of its degrees."""
    words = [f"tp{tensor}"]
    if pipeline > 1:
        words.append(f"pp{pipeline}")
    if data > 1:
        words.append(f"dp{data}")
    if is_shared:
        words.append("ep")
    return " ".join(words)
