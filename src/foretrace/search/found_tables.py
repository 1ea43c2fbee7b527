"""`TableSearch`: where tables stand, the step with them there, and what other placements take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Json,
    Plain,
    Sentences,
    Table,
    Told,
    Unit,
    bytes_text,
    count_text,
    duration_text,
    plain,
)
from foretrace.base import NS_PER_S
from foretrace.workload import (
    Footprint,
    MemoryTier,
    PlacedTables,
    Plan,
    Recommender,
    TableScheme,
    plan_table,
    torchrec_plan,
)


@dataclass(frozen=True)
class Beside(Plain):
    """All tables by one rule."""

    rule: str
    step_ns: int
    fullest_bytes: int  # of tables in HBM
    fits: bool


@dataclass(frozen=True)
class PlacedTable(Plain):
    """One table and where it is."""

    json_names: ClassVar = {"num_bytes": "bytes", "hbm_bytes": "bytes_in_hbm"}

    table: int
    rows: int
    pooling: int
    scheme: TableScheme
    tier: MemoryTier
    cached: float
    ranks: tuple[int, ...]
    num_bytes: int  # with what the optimizer keeps
    hbm_bytes: int  # of it, on all ranks
    hit_share: float  # of its lookups, served by HBM


@dataclass(frozen=True)
class RankTables(Plain):
    """What one rank holds and reads."""

    json_names: ClassVar = {"hbm_bytes": "bytes_in_hbm", "outside_bytes": "bytes_outside"}

    rank: int
    tables: int
    hbm_bytes: int
    outside_bytes: int  # in memory of the host and on its disks
    lookups: float  # rows of a forward pass
    missed: float  # of them, that HBM has not


@dataclass(frozen=True, repr=False)
class TableSearch(Answer):
    """The placement with the shortest simulated step that was found."""

    model: Recommender
    machine: str
    plan: Plan  # with every table's place
    placed: PlacedTables
    step_ns: int
    beside: tuple[Beside, ...]
    account_ns: float  # of tables, by sums over ranks
    least_ns: float  # no placement takes less by these
    footprint: Footprint
    num_simulated: int
    start: str
    spent_s: float

    @property
    def gap(self) -> float:
        """Share of the step by which a placement could be shorter, by the account of tables."""
        return max(0.0, self.account_ns - self.least_ns) / self.step_ns

    @property
    def samples_per_s(self) -> float:
        """Of the whole job."""
        return self.plan.global_batch * NS_PER_S / self.step_ns

    @property
    def tables_placed(self) -> tuple[PlacedTable, ...]:
        """Every table."""
        found = []
        for place in self.placed.sharding.places:
            shards = [one for one in self.placed.shards if one.table == place.table]
            copies = len(shards) if place.scheme is TableScheme.DATA else 1
            cached = place.cached * self.model.rows[place.table]
            outside = place.tier is not MemoryTier.HBM
            hit = self.placed.laws[place.table].top_share(cached) if outside else 1.0
            found.append(
                PlacedTable(
                    table=place.table,
                    rows=self.model.rows[place.table],
                    pooling=self.model.pooling[place.table],
                    scheme=place.scheme,
                    tier=place.tier,
                    cached=place.cached,
                    ranks=place.ranks,
                    num_bytes=sum(one.num_bytes for one in shards) // copies,
                    hbm_bytes=sum(one.device_bytes for one in shards),
                    hit_share=hit,
                )
            )
        return tuple(found)

    @property
    def ranks(self) -> tuple[RankTables, ...]:
        """Every rank."""
        placed, batch = self.placed, self.plan.micro_batch
        lookups = placed.lookups_by_rank(batch)
        outside = [
            sum(each)
            for each in zip(
                *(placed.bytes_outside(one) for one in (MemoryTier.HOST, MemoryTier.SSD)),
                strict=True,
            )
        ]
        missed, tables = [0.0] * placed.num_ranks, [0] * placed.num_ranks
        for one in placed.shards:
            missed[one.rank] += placed.missed(one, batch)
            tables[one.rank] += 1
        return tuple(
            RankTables(rank, tables[rank], size, outside[rank], lookups[rank], missed[rank])
            for rank, size in enumerate(placed.bytes_by_rank)
        )

    @property
    def headline(self) -> str:
        """What is placed where, and the step."""
        tables = count_text(self.model.num_tables, "table")
        ranks = f"{self.plan.data:,} GPUs of {self.machine}"
        return f"{tables} of {self.model.name} on {ranks}: {duration_text(self.step_ns)} a step"

    def parts(self) -> tuple[Told, ...]:
        """Figures, the rules beside, every table, every rank."""
        return (
            Facts(tuple(self._facts())),
            Table.of(
                "beside",
                self.beside,
                Column("rule", unit=Unit.WORD),
                Column("step_ns"),
                Column("fullest_bytes", "fullest rank"),
                Column("fits", unit=Unit.WORD, value=lambda one: "yes" if one.fits else "no"),
                title="all tables by one rule",
            ),
            Table.of(
                "tables",
                self.tables_placed,
                Column("table", unit=Unit.IDENTIFIER),
                Column("rows", unit=Unit.COUNT),
                Column("pooling", unit=Unit.COUNT),
                Column("scheme", unit=Unit.WORD, value="scheme.value"),
                Column("tier", unit=Unit.WORD, value="tier.value"),
                Column("cached", unit=Unit.SHARE),
                Column("ranks", unit=Unit.WORD, value=_ranks_text),
                Column("bytes", value="num_bytes"),
                Column("hit_share", "hits"),
                title="where tables stand",
            ),
            Table.of(
                "ranks",
                self.ranks,
                Column("rank", unit=Unit.IDENTIFIER),
                Column("tables", unit=Unit.COUNT),
                Column("hbm_bytes", "in HBM"),
                Column("outside_bytes", "outside"),
                Column("lookups", unit=Unit.COUNT),
                Column("missed", unit=Unit.COUNT),
                title="what ranks hold and read in a forward pass",
            ),
            Sentences.of("", [self._note()]),
        )

    def _facts(self) -> list[Fact]:
        memory = self.footprint
        fits = "" if memory.fits is not False else "; it does not fit"
        fitting = [one for one in self.beside if one.fits]
        words = ""
        if fitting:
            other = min(fitting, key=lambda one: one.step_ns)
            share = 1 - self.step_ns / other.step_ns
            words = f"{100 * share:.1f} % below all {other.rule}, the best rule that fits"
        return [
            Fact("step", duration_text(self.step_ns), words, is_first=True),
            Fact("samples per second", f"{self.samples_per_s:,.0f}"),
            Fact("memory", bytes_text(memory.peak.total), f"on the fullest rank{fits}"),
            Fact(
                "tables",
                duration_text(self.account_ns),
                f"by sums over ranks, if nothing were hidden; at least "
                f"{duration_text(self.least_ns)} however they stand",
            ),
            Fact(
                "simulated",
                count_text(self.num_simulated, "placement"),
                f"begun with {self.start}; {self.spent_s:.1f} s",
            ),
        ]

    def _note(self) -> str:
        law = self.placed.sharding.ids
        return (
            f"ids are {law}; a cache holds the most used rows; every lookup reads its row from "
            "memory, also where several meet in one"
        )

    def as_json(self) -> Json:
        """The step, every table's place, every rank, the rules beside, the plan in both forms."""
        return {
            "model": self.model.name,
            "machine": self.machine,
            "num_ranks": self.plan.data,
            "step_ns": self.step_ns,
            "samples_per_s": self.samples_per_s,
            "account_ns": self.account_ns,
            "least_ns": self.least_ns,
            "gap": self.gap,
            "memory": self.footprint.as_json(),
            "beside": plain(self.beside),
            "tables": plain(self.tables_placed),
            "ranks": plain(self.ranks),
            "num_simulated": self.num_simulated,
            "spent_s": self.spent_s,
            "plan": plan_table(self.plan),
            "torchrec": torchrec_plan(self.placed),
        }


def _ranks_text(one: PlacedTable) -> str:
    return ", ".join(map(str, one.ranks)) or "all"
