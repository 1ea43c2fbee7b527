"""`Ledger`: predictions that are kept until the runs have shown what they were worth.

A prediction is kept with its interval and with what it was made from; when the run's time arrives
it is settled, once. Of those that are settled the ledger says how far off they were and how many
intervals held, by class of software, architecture and kind of model; and by how much 16-bit
products would have to be longer for the median of them to be right, which is a user's own constant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Json,
    Plain,
    Sentences,
    Table,
    Told,
    Unit,
    count_text,
    percent_text,
    plain,
)
from foretrace.base import WorkloadError, written_beside
from foretrace.estimate import Estimate
from foretrace.software import PRODUCTS, kernel_factors, unstated_software
from foretrace.validate.measures import mean_size
from foretrace.workload import Transformer, plan_table

_FEW = 3  # settled predictions below which no constant is told
_LEAST_SHARE = 0.05  # of the step, for products to explain what a step is off by


@dataclass(frozen=True, kw_only=True)
class KeptPrediction(Plain):
    """One prediction, and what the run took once that is known."""

    json_also = ("kind", "error")

    name: str
    added: str  # a date, as whoever kept it writes it
    version: str  # of foretrace
    model: str
    machine: str
    chip: str
    architecture: str
    software: str  # "": nobody said
    software_class: str
    has_experts: bool
    num_ranks: int
    predicted_ns: int
    low_ns: int
    high_ns: int
    products_ns: int  # of its critical path: products of 16-bit numbers
    products: float  # times as long as alone, as the prediction had them
    plan: Mapping[str, Mapping[str, object]]
    least_ns: int = 0  # what its FLOPs take at the chips' peak; 0: not known
    settled_ns: int | None = None
    settled: str = ""

    @property
    def kind(self) -> str:
        """What it is counted with."""
        experts = ", experts" if self.has_experts else ""
        return f"{self.software_class} on {self.architecture or self.chip}{experts}"

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1; `None`: not settled."""
        return None if self.settled_ns is None else self.predicted_ns / self.settled_ns - 1

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured time lies in the 80% interval."""
        return None if self.settled_ns is None else self.low_ns <= self.settled_ns <= self.high_ns


@dataclass(frozen=True, kw_only=True)
class KeptKind(Plain):
    """Predictions of one kind."""

    name: str
    num_kept: int
    num_settled: int
    mean_abs_error: float | None
    mean_error: float | None
    inside: float | None
    products: float | None  # times as long as alone; `None`: too few are settled to tell


@dataclass(frozen=True, repr=False)
class Ledger(Answer):
    """Kept predictions, in the order in which they were made."""

    json_also = ("kinds",)

    rows: tuple[KeptPrediction, ...] = ()

    @property
    def kinds(self) -> tuple[KeptKind, ...]:
        """Errors of those that are settled, by kind."""
        by_kind: dict[str, list[KeptPrediction]] = {}
        for one in self.rows:
            by_kind.setdefault(one.kind, []).append(one)
        return tuple(_kind(name, ones) for name, ones in sorted(by_kind.items()))

    @property
    def headline(self) -> str:
        """How many are kept and settled, and how far off these are."""
        errors = [one.error for one in self.rows if one.error is not None]
        off = f", {percent_text(100 * float(np.mean(np.abs(errors))))} mean error" if errors else ""
        return f"{count_text(len(self.rows), 'prediction')}, {len(errors)} settled{off}"

    def parts(self) -> tuple[Told, ...]:
        """By kind, then every prediction."""
        return (
            Table.of(
                "kinds",
                self.kinds,
                Column("name", "kind", Unit.WORD),
                Column("num_kept", "kept"),
                Column("num_settled", "settled"),
                Column("mean_abs_error", "mean", Unit.SHARE),
                Column("mean_error", "bias", Unit.SIGNED_SHARE),
                Column("inside", "in", Unit.SHARE),
                Column("products", "products x", Unit.NUMBER),
            ),
            Table.of(
                "rows",
                self.rows,
                Column("name", "prediction", Unit.NAME),
                Column("added"),
                Column("predicted_ns", "predicted", Unit.NS),
                Column("low_ns", "low", Unit.NS),
                Column("high_ns", "high", Unit.NS),
                Column("settled_ns", "measured", Unit.NS),
                Column("error", unit=Unit.SIGNED_SHARE),
            ),
            Sentences.of(
                "how to read it",
                (
                    "in: measured times inside the 80% interval",
                    "products x: factor of 16-bit products that makes the median right",
                    "`foretrace ledger show --software OUT.toml` writes it as software of your own",
                ),
            ),
        )

    def tables(self) -> tuple[Table, ...]:
        """Every prediction, then the kinds."""
        kinds, rows = (one for one in super().tables() if one.key in {"kinds", "rows"})
        return rows, kinds

    def with_prediction(self, one: KeptPrediction) -> Ledger:
        """The ledger with one more.

        Raises:
            WorkloadError: if it has one of that name.
        """
        if any(kept.name == one.name for kept in self.rows):
            raise WorkloadError(
                f"the ledger has a prediction called {one.name!r}: give it another name"
            )
        return Ledger((*self.rows, one))

    def with_settled(self, name: str, measured_ns: int, *, date: str) -> Ledger:
        """The ledger with what a run took.

        Raises:
            WorkloadError: if no such prediction is kept, it is settled, or no run can take that.
        """
        if measured_ns <= 0:
            raise WorkloadError(f"a step of {measured_ns} ns settles nothing: give a time above 0")
        found = [kept for kept in self.rows if kept.name == name]
        if not found:
            known = ", ".join(kept.name for kept in self.rows if kept.settled_ns is None) or "none"
            raise WorkloadError(f"the ledger has no prediction called {name!r}: open are {known}")
        if found[0].settled_ns is not None:
            raise WorkloadError(
                f"{name!r} was settled at {found[0].settled_ns:,} ns on {found[0].settled}, and a "
                "prediction is settled once: keep another one for another run"
            )
        if measured_ns < found[0].least_ns:
            raise WorkloadError(
                f"a step of {measured_ns:,} ns cannot be: the FLOPs of {name!r} alone take "
                f"{found[0].least_ns:,} ns at the peak of {found[0].num_ranks:,} x "
                f"{found[0].chip}, and {found[0].predicted_ns:,} ns were predicted; give the "
                "seconds of a whole step, and check the plan and the chips that were kept"
            )
        done = replace(found[0], settled_ns=measured_ns, settled=date)
        return Ledger(tuple(done if kept.name == name else kept for kept in self.rows))

    def software_toml(self) -> str:
        """Software of one's own, for each kind of dense runs of which enough are settled.

        Raises:
            WorkloadError: if of none there are enough.
        """
        told = [
            (ones, factor)
            for ones in self._dense_by_kind().values()
            if (factor := _products(ones)) is not None
        ]
        if not told:
            raise WorkloadError(
                f"no kind of dense runs has {_FEW} settled predictions: settle more, and what "
                "their products take can be told"
            )
        ones, factor = max(told, key=lambda pair: len(pair[0]))
        first = ones[0]
        parent = first.software or first.software_class
        settled = sum(one.settled_ns is not None for one in ones)
        entries = "".join(
            f'"{family}" = {{ value = {factor:.3f}, architecture = "{first.architecture}", '
            f'assumed = "median of {settled} settled predictions of one\'s own ledger" }}\n'
            for family in PRODUCTS
        )
        return (
            f'kind = "software"\nextends = "{parent}"\n'
            f'title = "{parent}, as {settled} own runs on {first.architecture} say"\n\n'
            f"[kernels]\n{entries}"
        )

    def _dense_by_kind(self) -> dict[str, list[KeptPrediction]]:
        found: dict[str, list[KeptPrediction]] = {}
        for one in self.rows:
            if not one.has_experts and one.architecture:
                found.setdefault(one.kind, []).append(one)
        return found


def kept(found: Estimate, name: str, *, date: str, version: str) -> KeptPrediction:
    """An estimate, to be kept until its run is there."""
    software = found.software
    known = software or unstated_software()
    is_alone = found.plan.num_ranks == 1
    factors = kernel_factors(known, found.machine.chip.architecture, is_alone=is_alone)
    products = (
        one.critical_ns for one in found.interval.families if one.family.startswith(PRODUCTS)
    )
    return KeptPrediction(
        name=name,
        added=date,
        version=version,
        model=found.model.name,
        machine=found.machine.name,
        chip=found.machine.chip.name,
        architecture=found.machine.chip.architecture,
        software="" if software is None else software.name,
        software_class=known.family,
        has_experts=isinstance(found.model, Transformer) and found.model.experts is not None,
        num_ranks=found.plan.num_ranks,
        predicted_ns=found.step_ns,
        low_ns=found.interval.low_ns,
        high_ns=found.interval.high_ns,
        products_ns=sum(products),
        products=factors.get(PRODUCTS[0], 1.0),
        plan=plan_table(found.plan),
        least_ns=int(found.least_ns),
    )


def read_ledger(path: Path) -> Ledger:
    """The ledger in a file, one prediction a line; none if there is no such file.

    Raises:
        WorkloadError: if a line is no prediction.
    """
    if not path.is_file():
        return Ledger()
    lines = path.read_text(encoding="utf-8").splitlines()
    return Ledger(
        tuple(
            _read(line, f"line {at} of {str(path)!r}")
            for at, line in enumerate(lines, 1)
            if line.strip()
        )
    )


def _read(line: str, where: str) -> KeptPrediction:
    names = {each.name for each in fields(KeptPrediction)}
    try:
        found: dict[str, Any] = msgspec.json.decode(line, type=dict)
        return msgspec.convert({key: found[key] for key in found if key in names}, KeptPrediction)
    except (msgspec.MsgspecError, UnicodeDecodeError) as err:
        raise WorkloadError(
            f"{where} is no kept prediction ({err}): restore it, or take the line out"
        ) from err


def write_ledger(path: Path, ledger: Ledger) -> None:
    """Write a ledger, whole or not at all."""
    with written_beside(path) as beside:
        lines = (json.dumps(_as_line(one), sort_keys=True) for one in ledger.rows)
        beside.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _as_line(one: KeptPrediction) -> Json:
    return {name: plain(value) for name, value in asdict(one).items()}


def _kind(name: str, rows: list[KeptPrediction]) -> KeptKind:
    errors = [one.error for one in rows if one.error is not None]
    inside = [one.is_inside for one in rows if one.is_inside is not None]
    return KeptKind(
        name=name,
        num_kept=len(rows),
        num_settled=len(errors),
        mean_abs_error=mean_size(errors),
        mean_error=float(np.mean(errors)) if errors else None,
        inside=float(np.mean(inside)) if inside else None,
        products=None if rows[0].has_experts else _products(rows),
    )


def _products(rows: Iterable[KeptPrediction]) -> float | None:
    """The factor of 16-bit products with which the median of settled predictions is right."""
    factors = []
    for one in rows:
        if one.settled_ns is None or one.products_ns < _LEAST_SHARE * one.predicted_ns:
            continue
        grown = 1 + (one.settled_ns - one.predicted_ns) / one.products_ns
        factors.append(one.products * grown)
    if len(factors) < _FEW:
        return None
    return max(0.1, float(np.median(factors)))
