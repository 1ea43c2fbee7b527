"""`TrainingSoftware`: a release, or the class of software that it belongs to, as a description.

A description says what software does with a model where a plan leaves it open (which operators
are one kernel, what overlaps, what is recomputed, how kernels are launched), how long its kernels
take beside those of benchmarks, and where each figure comes from. A release `extends` its class,
so what nobody said of a release is what its class does. Software of which nothing is known is a
class of its own (`unknown`), never quietly one of the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from foretrace.answer import Answer, Column, Json, Sentences, Told, Unit, stated_json, stated_parts
from foretrace.answer import Table as AnswerTable
from foretrace.base import (
    Citation,
    Count,
    DescriptionKey,
    Document,
    Positive,
    Shelf,
    Table,
    Text,
    WorkloadError,
    as_table,
    document_names,
    read_document,
    read_keys,
    read_sources,
)

SOFTWARE = Shelf(noun="software", presets=Path(__file__).parent / "presets", error=WorkloadError)
UNKNOWN_SOFTWARE = "unknown"
_VERSION = re.compile(r"[-: ]v?\d")  # where a version begins in a name: "nemo-26.08"
_RELEASE_KEYS = (
    DescriptionKey("name", Text, is_required=True),
    DescriptionKey("version", Text, is_required=True),
    DescriptionKey("date", Text, is_required=True, expected="a text as in 2025-09"),
    DescriptionKey("source", Text),
)
_FRAMEWORK_KEYS = (
    DescriptionKey("fsdp", bool),
    DescriptionKey("library", Text),
    DescriptionKey("vocabulary", Count),
)
_FIGURE_KEYS = (
    DescriptionKey("value", Positive, is_required=True),
    DescriptionKey("architecture", Text),
    DescriptionKey("source", Text),
    DescriptionKey("assumed", Text),
    DescriptionKey("note", Text),
)
_LEARNED_KEYS = (
    DescriptionKey("architecture", Text, is_required=True),
    DescriptionKey("runs_of", Text, is_required=True),
    DescriptionKey("num_runs", Count, is_required=True),
    DescriptionKey("products", Positive, is_required=True),
    DescriptionKey("format", Literal["16bit", "fp8", "fp4"], expected="one of 16bit, fp8, fp4"),
)
_OWN_KEYS = (
    DescriptionKey("kind", Text),
    DescriptionKey("title", Text),
    DescriptionKey("class", Text),
    DescriptionKey("plan", str),
    DescriptionKey("called", list[str], expected="a list of texts"),
    *(
        DescriptionKey(name, dict[str, object], expected="a table")
        for name in ("release", "framework", "kernels", "logged_memory", "sources")
    ),
    DescriptionKey("learned", list[dict[str, object]], expected="a list of tables"),
)
_OWN = tuple(key.name for key in _OWN_KEYS)


class Knowledge(StrEnum):
    """How much is known of the software of a run."""

    RELEASE = "release"  # it is described itself
    CLASS = "class"  # a release of a class that is
    UNKNOWN = "unknown"  # nothing


@dataclass(frozen=True)
class KernelFigure:
    """How many times as long a family of kernels takes as those that were measured alone."""

    family: str  # by how it begins: "attention"
    value: float
    architecture: str  # of chips; "": all
    source: Citation | None
    assumed: str
    note: str

    @property
    def key(self) -> str:
        """What it is about."""
        return f"{self.family} on {self.architecture}" if self.architecture else self.family

    @property
    def text(self) -> str:
        """As a factor."""
        return f"x {self.value:g}"


@dataclass(frozen=True)
class Learned:
    """What published runs of one source under software of a class say of kernels within steps."""

    architecture: str  # of chips
    runs_of: str  # the source
    num_runs: int
    products: float  # times as long as alone under lasting load
    format: str = "16bit"  # of their numbers: or "fp8", "fp4", by the units that work on them


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingSoftware(Answer):
    """How software lays a model out, and how long its kernels take."""

    name: str = "plan defaults"
    title: str = ""
    family: str = UNKNOWN_SOFTWARE  # the class: "megatron"
    version: str = ""  # of a release; "": it is a class
    date: str = ""  # of the release: "2025-09"
    called: tuple[str, ...] = ()  # patterns of what tables and users call it, `*` for any text
    plan_name: str = ""  # preset of a plan that its keys are beside, or instead of
    plan: Table = field(default_factory=dict)  # tables of a plan file
    kernels: tuple[KernelFigure, ...] = ()
    learned: tuple[Learned, ...] = ()
    library: str = ""  # that issues products; what its runs taught of them is of all its classes
    vocabulary: int | None = None  # tokens, where tables do not print them
    # FSDP's SHARD_GRAD_OP gathers parameters too, once a microbatch, and keeps them until the
    # backward pass.
    is_fsdp: bool = False
    logged_memory: Table = field(default_factory=dict)  # what its logs of memory count
    knowledge: Knowledge = Knowledge.RELEASE

    @property
    def headline(self) -> str:
        """What, when, of which class."""
        when = f", {self.version} of {self.date}" if self.version else ""
        return f"{self.name}: {self.title}{when}; class {self.family}"

    def parts(self) -> tuple[Told, ...]:
        """What it does in a plan, figures with their sources, what runs taught."""
        keys = [
            f"{table}.{key} = {value}"
            for table, entries in self.plan.items()
            if isinstance(entries, Mapping)
            for key, value in entries.items()
        ]
        start = [f"as the plan {self.plan_name!r} says"] if self.plan_name else []
        return (
            Sentences.of("what it does unless a plan says otherwise", (*start, *keys)),
            *stated_parts([("times as long as measured alone", self.kernels)]),
            AnswerTable.of(
                "learned",
                self.learned,
                Column("architecture", "chips", Unit.WORD),
                Column("runs_of", "runs of", Unit.WORD),
                Column("num_runs", "runs"),
                Column("format", "products of", Unit.WORD),
                Column("products", "times as long", Unit.NUMBER),
                title="learned from published runs: products in steps",
            ),
            Sentences.of("called", self.called),
        )

    def as_json(self) -> Json:
        """Everything but what logs of memory count."""
        return {
            "name": self.name,
            "title": self.title,
            "class": self.family,
            "version": self.version or None,
            "date": self.date or None,
            "knowledge": self.knowledge.value,
            "plan": self.plan_name or None,
            "keys": dict(self.plan),
            "kernels": [
                {**stated_json(one), "value": one.value, "architecture": one.architecture or None}
                for one in self.kernels
            ],
            "learned": [vars(one) for one in self.learned],
            "called": list(self.called),
        }


def load_software(name_or_path: str | Path, folders: Sequence[Path] = ()) -> TrainingSoftware:
    """The software described under that name, or in that file, with what it extends.

    Args:
        name_or_path: "megatron", or a TOML file.
        folders: the user's own; looked through before the presets.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    return _software(read_document(name_or_path, SOFTWARE, folders))


def software_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all descriptions, sorted; a user's file hides the preset of its name."""
    return document_names(SOFTWARE, folders)


def software_called(text: str, folders: Sequence[Path] = ()) -> TrainingSoftware:
    """The software that a user or a table calls so: described, else its class, else unknown.

    A description's own name counts first, then the longest pattern that fits. A release of which
    only others are described is as the last of these before it. `knowledge` says which it was, and
    `foretrace estimate` tells it and widens its interval.

    Raises:
        WorkloadError: if a file is wrong.
    """
    names = software_names(folders)
    if text in names or text.endswith(".toml") or "/" in text:
        return load_software(text, folders)
    wanted, known = text.strip().lower(), _all_of(names, tuple(folders))
    fitting = [
        (len(pattern), one)
        for one in known
        for pattern in one.called
        if fnmatchcase(wanted, pattern.lower())
    ]
    if not fitting:
        return load_software(UNKNOWN_SOFTWARE, folders)
    found = max(fitting, key=lambda pair: pair[0])[1]
    if found.knowledge is Knowledge.RELEASE:
        return found
    return _release_before(wanted, [one for one in known if one.family == found.family]) or found


def _release_before(name: str, known: Sequence[TrainingSoftware]) -> TrainingSoftware | None:
    """The last described release of a product before the one of that name, if any is described."""
    product, version = _product(name)
    earlier = [
        (of, one)
        for one in known
        for called, of in map(_product, one.called)
        if called == product and () < of <= version
    ]
    if not earlier:
        return None
    last = max(earlier, key=lambda pair: pair[0])[1]
    return replace(last, knowledge=Knowledge.CLASS)


def _product(name: str) -> tuple[str, tuple[int, ...]]:
    """What a name or a pattern calls software without its version; that version's numbers."""
    begin = _VERSION.search(name.lower())
    if begin is None:
        return name.lower().strip("*-: "), ()
    numbers = tuple(int(each) for each in re.findall(r"\d+", name[begin.start() :]))
    return name[: begin.start()].lower().strip("*-: "), numbers


@cache
def _all_of(names: tuple[str, ...], folders: tuple[Path, ...]) -> tuple[TrainingSoftware, ...]:
    return tuple(load_software(name, folders) for name in names)


def _software(document: Document) -> TrainingSoftware:
    where = document.where
    own = {key: value for key, value in document.table.items() if key in _OWN}
    stated = read_keys(own, _OWN_KEYS, where, error=WorkloadError)
    tables = {name: _table(stated, name, where) for name in ("release", "framework", "kernels")}
    framework = read_keys(
        tables["framework"], _FRAMEWORK_KEYS, f"[framework] of {where}", error=WorkloadError
    )
    release: dict[str, Any] = (
        read_keys(tables["release"], _RELEASE_KEYS, f"[release] of {where}", error=WorkloadError)
        if tables["release"]
        else {}
    )
    family = stated.get("class", UNKNOWN_SOFTWARE)
    return TrainingSoftware(
        name=document.name,
        title=document.text("title", document.name),
        family=family,
        version=f"{release['name']} {release['version']}" if release else "",
        date=release.get("date", ""),
        called=tuple(stated.get("called", ())),
        plan_name=stated.get("plan", ""),
        plan={key: value for key, value in document.table.items() if key not in _OWN},
        kernels=_kernels(tables["kernels"], stated.get("sources", {}), where),
        learned=_learned(stated.get("learned", ()), where),
        library=framework.get("library", family),
        vocabulary=framework.get("vocabulary"),
        is_fsdp=framework.get("fsdp", False),
        logged_memory=stated.get("logged_memory", {}),
        knowledge=_knowledge(document.name, family, is_release=bool(release)),
    )


def _knowledge(name: str, family: str, *, is_release: bool) -> Knowledge:
    if family == UNKNOWN_SOFTWARE:
        return Knowledge.UNKNOWN
    return Knowledge.RELEASE if is_release or name != family else Knowledge.CLASS


def unstated_software() -> TrainingSoftware:
    """What is taken where nobody said what runs a model: kernels as the mean over libraries."""
    return replace(load_software(UNKNOWN_SOFTWARE), library="")


def _table(stated: Mapping[str, Any], name: str, where: str) -> Table:
    return as_table(stated.get(name), f"[{name}] of {where}", error=WorkloadError)


def _kernels(kernels: Table, sources: Table, where: str) -> tuple[KernelFigure, ...]:
    """Factors on kernels' time, each with its source."""
    known = read_sources(sources, where, error=WorkloadError)
    found = []
    for family in kernels:
        place = f"{family!r} of [kernels] of {where}"
        entry = as_table(kernels[family], place, error=WorkloadError)
        figure = read_keys(entry, _FIGURE_KEYS, place, error=WorkloadError)
        if figure.get("source") not in known and not figure.get("assumed"):
            raise WorkloadError(
                f"{place} names the source {figure.get('source')!r}, which [sources] does not "
                "hold: add its title and url there, or say why it is assumed"
            )
        found.append(
            KernelFigure(
                family,
                figure["value"],
                figure.get("architecture", ""),
                known.get(figure.get("source", "")),
                figure.get("assumed", ""),
                figure.get("note", ""),
            )
        )
    return tuple(found)


def _learned(entries: Sequence[Table], where: str) -> tuple[Learned, ...]:
    place = f"[[learned]] of {where}"
    read = [read_keys(entry, _LEARNED_KEYS, place, error=WorkloadError) for entry in entries]
    return tuple(Learned(**one) for one in read)
