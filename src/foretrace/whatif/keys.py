"""What a command line or a scenario file may state, and the edits that it becomes.

Both say the same things by the same names: `--micro-batch 2` and `micro_batch = 2`. Edits come in
one order, whatever the order in which they were written: model, degrees, plan, batch, machine,
durations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import ModelError, ScenarioError, check_keys
from foretrace.machine import load_machine
from foretrace.whatif.changes.selection import Selection
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.machine import OnMachine, SetMachine
from foretrace.whatif.edits.model import Layers, Widths
from foretrace.whatif.edits.plan import Batch, Parallelism, PlanKeys
from foretrace.whatif.edits.work import (
    Attention,
    CudaGraphs,
    DataLoading,
    Delay,
    Fuse,
    Lasts,
    MoveSync,
    Network,
    RemoveSync,
    Speed,
)
from foretrace.whatif.resize.sizes import Sizes
from foretrace.whatif.words import EVERYTHING, duration_ns_of, selection_of
from foretrace.workload import PlanDraft, parsed_keys

_COUNT = "a whole number of at least 1"
_FACTOR = "a number above 0"

# Names of sizes here, and as fields of `Widths`.
_WIDTHS = {
    "hidden": "hidden",
    "ffn": "feed_forward",
    "heads": "heads",
    "kv_heads": "key_value_heads",
    "head_width": "head_width",
    "vocabulary": "vocabulary",
    "experts": "experts",
}
_DEGREES = ("tp", "cp", "pp", "dp", "ep", "chunks")
_BATCH = {
    "micro_batch": "micro_batch",
    "microbatches": "num_microbatches",
    "global_batch": "global_batch",
    "sequence": "sequence",
}
_PLAN = {"sharding": "sharding.level", "recompute": "memory.recompute"}
_MACHINE_TABLES = ("network", "host", "chip")  # keys of `set` that are a machine's

# Every key, and what it holds, in words.
KEYS: Mapping[str, str] = {
    "layers": _COUNT,
    **dict.fromkeys(_WIDTHS, _COUNT),
    **dict.fromkeys(_DEGREES, _COUNT),
    "schedule": "the name of a schedule",
    "sequence_parallel": "true or false",
    "sharding": "none, zero1, zero2 or zero3",
    "recompute": "none, selective or full",
    **dict.fromkeys(_BATCH, _COUNT),
    "set": "a table of keys of a plan or a machine, as in { 'overlap.gradients' = false }",
    "on_machine": "the name of a machine, or its file",
    "speed": "a table of work and how many times as fast it is, as in { gemm = 1.2 }",
    "takes": "a table of work and how long each operation takes, as in { '*loss*' = '1 ms' }",
    "slow_rank": "a table of ranks and how many times as long they take, as in { 3 = 1.1 }",
    "delay": "a table of work and the time before each block of it, as in { all = '2 ms' }",
    "fuse": "a table of work and the share of its time that is left, as in { elementwise = 0.5 }",
    "attention": "flash or plain",
    "cuda_graphs": "true, or the work that is launched so",
    "remove_sync": "true, or the name of the calls that no longer wait",
    "move_sync": "true, or the name of the calls that wait for the step before",
    "data_loading": "a time, as in '5 ms', or a factor",
    "transfers": "a table of groups and how many times as long they take, as in { dp = 2 }",
    "transfer_delay": "a table of groups and a time, as in { all = '1 ms' }",
}


@dataclass(frozen=True)
class _Stated:
    """What was stated, and where, for errors."""

    keys: Mapping[str, object]
    where: str

    def refused(self, key: str) -> ScenarioError:
        """What to raise for a value that a key cannot hold."""
        return ScenarioError(
            f"{key!r} of {self.where} is {self.keys[key]!r}, where {KEYS[key]} is expected"
        )

    def counts(self, fields: Mapping[str, str]) -> dict[str, int]:
        """Whole numbers that are stated under these keys, by field."""
        found: dict[str, int] = {}
        for key, field in fields.items():
            value = self.keys.get(key)
            if value is None:
                continue
            if type(value) is not int or value < 1:
                raise self.refused(key)
            found[field] = value
        return found

    def text(self, key: str) -> str | None:
        """A text, if one is stated."""
        value = self.keys.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.refused(key)
        return value if isinstance(value, str) else None

    def flag(self, key: str) -> bool | None:
        """True or false, if stated."""
        value = self.keys.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refused(key)
        return value

    def table(self, key: str) -> Mapping[str, object]:
        """A table; nothing counts as an empty one."""
        value = self.keys.get(key, {})
        if not isinstance(value, Mapping):
            raise self.refused(key)
        return {str(name): each for name, each in value.items()}

    def factors(self, key: str) -> Iterator[tuple[str, float]]:
        """Entries of a table of factors."""
        for name, value in self.table(key).items():
            if not _is_factor(value):
                raise self.refused(key)
            yield name, float(str(value))

    def texts(self, key: str) -> tuple[str, ...]:
        """One text or several; `true` stands for everything."""
        value = self.keys.get(key)
        listed = value if isinstance(value, list | tuple) else (value,)
        if value is None or value is False:
            return ()
        if value is True:
            return (EVERYTHING,)
        if not all(isinstance(one, str) and one for one in listed):
            raise self.refused(key)
        return tuple(map(str, listed))


def edits_of(
    keys: Mapping[str, object], where: str, *, folders: Sequence[Path] = ()
) -> tuple[Edit, ...]:
    """The edits that are stated, in the order in which they act.

    Args:
        keys: values by the names of `KEYS`; `None` states nothing.
        where: in words, for errors: "the command line".
        folders: the user's own, where names of machines are looked up before the presets.

    Raises:
        ScenarioError: for a key that does not exist, or a value that it cannot hold.
    """
    check_keys(keys, tuple(KEYS), where, error=ScenarioError)
    stated = _Stated({key: each for key, each in keys.items() if each is not None}, where)
    try:
        return (
            *_of_model(stated),
            *_of_plan(stated),
            *_of_machine(stated, folders),
            *_of_work(stated),
        )
    except ScenarioError as err:
        if where in str(err):
            raise
        raise ScenarioError(f"{where}: {err}") from err
    except ModelError as err:
        raise ScenarioError(f"{where}: {err}") from err


def pairs_of(texts: Sequence[str], option: str) -> dict[str, object]:
    """A table of texts like `gemm=1.2`; numbers become numbers.

    Args:
        texts: as typed.
        option: their name, for errors: "--speed".

    Raises:
        ScenarioError: for a text without `=`, and for two about the same.
    """
    found: dict[str, object] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.rpartition("="))
        if not sign or not name or not value:
            raise ScenarioError(f"{option} {text!r} has no value: write it as in {option} all=1.2")
        if name in found:
            raise ScenarioError(f"{option} states {name!r} twice: state it once")
        found[name] = float(value) if _reads_as_number(value) else value
    return found


def stated_of(texts: Sequence[str]) -> tuple[PlanDraft | None, Sizes | None]:
    """Keys of the recorded job's plan, and its sizes, of texts like `tp=2` or `hidden=4096`.

    Returns:
        The plan's keys and the sizes; `None` where nothing is said of them.

    Raises:
        ScenarioError: if a size is none.
        WorkloadError: if no plan has a key, or it cannot hold the value.
    """
    keys = parsed_keys(texts)
    names = {"layers": "layers", **_WIDTHS}
    stated = _Stated({key: each for key, each in keys.items() if key in names}, "--stated")
    sizes = stated.counts(names)
    of_plan = {key: each for key, each in keys.items() if key not in names}
    return (
        PlanDraft().with_keys(of_plan) if of_plan else None,
        Sizes(**sizes) if sizes else None,
    )


def _of_model(stated: _Stated) -> Iterator[Edit]:
    for count in stated.counts({"layers": "layers"}).values():
        yield Layers(count)
    widths = stated.counts(_WIDTHS)
    if widths:
        yield Widths(**widths)


def _of_plan(stated: _Stated) -> Iterator[Edit]:
    degrees = stated.counts({key: key for key in _DEGREES})
    schedule, is_divided = stated.text("schedule"), stated.flag("sequence_parallel")
    if degrees or schedule is not None or is_divided is not None:
        yield Parallelism(**degrees, schedule=schedule, sequence_parallel=is_divided)
    keys: dict[str, object] = {
        path: each for key, path in _PLAN.items() if (each := stated.text(key)) is not None
    }
    keys |= {name: each for name, each in stated.table("set").items() if not _is_machine(name)}
    if keys:
        PlanDraft().with_keys(keys)  # refuses here what no plan has, before anything is read
        yield PlanKeys(keys)
    batch = stated.counts(_BATCH)
    if batch:
        yield Batch(**batch)


def _of_machine(stated: _Stated, folders: Sequence[Path]) -> Iterator[Edit]:
    name = stated.text("on_machine")
    if name is not None:
        yield OnMachine(load_machine(name, folders))
    figures = {name: each for name, each in stated.table("set").items() if _is_machine(name)}
    if figures:
        yield SetMachine(figures)


def _of_work(stated: _Stated) -> Iterator[Edit]:
    for work, factor in stated.factors("speed"):
        yield Speed(factor, selection_of(work))
    for work, time in stated.table("takes").items():
        yield Lasts(duration_ns_of(time), selection_of(work))
    for rank, factor in stated.factors("slow_rank"):
        yield Speed(1 / factor, Selection(ranks=selection_of(f"ranks:{rank}").ranks))
    for work, time in stated.table("delay").items():
        yield Delay(duration_ns_of(time), selection_of(work))
    for work, factor in stated.factors("fuse"):
        yield Fuse(selection_of(work), factor)
    yield from _of_launches(stated)
    yield from _of_loading(stated)
    yield from _of_transfers(stated)


def _of_launches(stated: _Stated) -> Iterator[Edit]:
    attention = stated.text("attention")
    if attention is not None:
        if attention not in {"flash", "plain"}:
            raise stated.refused("attention")
        yield Attention(flash=attention == "flash")
    for work in stated.texts("cuda_graphs"):
        yield CudaGraphs(selection_of(work))
    for calls in stated.texts("remove_sync"):
        yield RemoveSync(_calls(calls))
    for calls in stated.texts("move_sync"):
        yield MoveSync(calls=_calls(calls))


def _of_loading(stated: _Stated) -> Iterator[Edit]:
    value = stated.keys.get("data_loading")
    if _is_factor(value):
        yield DataLoading(factor=float(str(value)))
    elif value is not None:
        if not isinstance(value, str):
            raise stated.refused("data_loading")
        yield DataLoading(duration_ns_of(value))


def _of_transfers(stated: _Stated) -> Iterator[Edit]:
    for group, factor in stated.factors("transfers"):
        yield Network(factor=factor, groups=_groups(group))
    for group, time in stated.table("transfer_delay").items():
        yield Network(extra_ns=duration_ns_of(time), groups=_groups(group))


def _calls(name: str) -> str:
    return "*" if name == EVERYTHING else name


def _groups(name: str) -> tuple[str, ...]:
    return () if name == EVERYTHING else (name,)


def _is_machine(key: str) -> bool:
    return key.partition(".")[0] in _MACHINE_TABLES


def _is_factor(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < float(str(value)) < float("inf")


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
