"""MAD-Max's models as blocks: what the paper's released configurations say, nothing fitted.

Two streams, each in order; an item starts when its stream is free and what it names is done.
Products, lookups and messages only, no host, no latency. Shapes and rules: Hsia et al.,
"MAD-Max Beyond Single-Node", ISCA 2024 (arXiv:2310.02784), and its configuration files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.machine import Machine, load_machine
from foretrace.workload import (
    Block,
    Exchange,
    Group,
    Item,
    ModelBlocks,
    Operator,
    ParameterCount,
    Passes,
)

FLOAT, TF32, BFLOAT = "float", "tensorfloat32", "c10::BFloat16"


@dataclass
class Items:
    """Items of one block; every method gives the position of what it adds."""

    phase: Phase
    written: list[Item] = field(default_factory=list)

    @property
    def last_operator(self) -> int:
        """Position of the latest operator."""
        places = [at for at, one in enumerate(self.written) if isinstance(one, Operator)]
        return places[-1]

    def product(self, size: tuple[int, int, int], dtype: str, *after: int) -> int:
        """Rows x inner times inner x columns; size is rows, inner, columns."""
        rows, inner, columns = size
        signature = {"dims": [[rows, inner], [inner, columns]], "types": [dtype, dtype]}
        return self._operator("GEMM", "aten::mm", signature, after)

    def lookup(self, num_bytes: int, *after: int) -> int:
        """So many bytes of memory."""
        signature = {"dims": [[num_bytes // 4]], "types": [FLOAT]}
        return self._operator("EMB", "aten::zero_", signature, after)

    def exchange(self, kind: str, num_bytes: float, *after: int) -> int:
        """A message, by MAD-Max's name for it."""
        names = {
            "A2A": CollectiveKind.ALL_TO_ALL,
            "AR": CollectiveKind.ALL_REDUCE,
            "AG": CollectiveKind.ALL_GATHER,
            "RS": CollectiveKind.REDUCE_SCATTER,
        }
        self.written.append(
            Exchange(kind, names[kind], Group.DATA, round(num_bytes), "bf16", self.phase, after)
        )
        return len(self.written) - 1

    def block(self) -> Block:
        """All of them."""
        return Block(Part.LAYER, tuple(self.written))

    def _operator(
        self, label: str, name: str, signature: dict[str, object], after: tuple[int, ...]
    ) -> int:
        self.written.append(Operator(label, name, json.dumps(signature), self.phase, after))
        return len(self.written) - 1


def whole(forward: Items, backward: Items) -> ModelBlocks:
    """A step of one block each way: a barrier stands between them."""
    passes = Passes(Part.LAYER, forward.block(), backward.block(), ParameterCount())
    return ModelBlocks(None, (passes,), None, transfer_bytes=0, transfer_dtype="bf16")


def dlrm(num_ranks: int) -> ModelBlocks:
    """10 bottom and 10 top layers of width 3994, replicated; 4,096 tables dealt to all ranks."""
    layer = (512, 3994, 3994)
    lookup_bytes = 512 * 4096 * 15 * 94 * 2
    exchange_bytes = 2 * lookup_bytes / num_ranks
    gradient_bytes = 3994 * 3994 * 4

    forward = Items(Phase.FORWARD)
    exchanged = forward.exchange("A2A", exchange_bytes, forward.lookup(lookup_bytes))
    for _ in range(10):
        forward.product(layer, TF32)
    for at in range(10):
        forward.product(layer, TF32, *([exchanged] if at == 0 else []))

    backward = Items(Phase.BACKWARD)
    for network in ("top", "bottom"):
        for _ in range(10):  # each layer twice the forward work
            backward.product(layer, TF32)
            backward.exchange("AR", gradient_bytes, backward.product(layer, TF32))
        if network == "top":
            exchanged = backward.exchange("A2A", exchange_bytes, backward.last_operator)
    backward.lookup(lookup_bytes, exchanged)
    return whole(forward, backward)


@dataclass(frozen=True)
class Unit:
    """What FSDP gathers at once: attention or the feed-forward half of a layer."""

    num_parameters: int
    width: int

    def size(self, length: int) -> tuple[int, int, int]:
        """Of its product: rows, inner, columns."""
        return length, self.width, self.num_parameters // self.width


def language_model(
    layers: int, width: int, inner: int, *, length: int, is_prefetched: bool
) -> ModelBlocks:
    """A transformer, sharded, one sequence on each rank.

    A unit is gathered once the one before has been computed, or, prefetched, once that one has
    begun. On the way back its second product waits for the unit before to be scattered.
    """
    units = (Unit(4 * width * width, width), Unit(2 * width * inner, width)) * layers
    token_bytes = length * width * 2

    forward = Items(Phase.FORWARD)
    done = [forward.lookup(token_bytes)]
    for unit in units:
        behind = done[-2:-1] if is_prefetched else done[-1:]
        gathered = forward.exchange("AG", unit.num_parameters * 2, *behind)
        done.append(forward.product(unit.size(length), BFLOAT, gathered))
    forward.lookup(token_bytes)

    backward = Items(Phase.BACKWARD)
    last = backward.lookup(token_bytes)
    backward.exchange("AR", token_bytes, last)
    turned = units[::-1]
    gathered = backward.exchange("AG", turned[0].num_parameters * 2, last)
    waiting: Unit | None = None
    for number, unit in enumerate(turned):
        backward.product(unit.size(length), BFLOAT, gathered)
        scattered = () if waiting is None else (_scatter(backward, waiting, last),)
        following = turned[number + 1 : number + 2]
        if is_prefetched and following:
            gathered = backward.exchange("AG", following[0].num_parameters * 2, last)
        last = backward.product(unit.size(length), BFLOAT, *scattered)
        if not is_prefetched and following:
            gathered = backward.exchange("AG", following[0].num_parameters * 2, last)
        waiting = unit
    _scatter(backward, turned[-1], last)
    backward.exchange("AR", token_bytes, backward.lookup(token_bytes))
    return whole(forward, backward)


def _scatter(items: Items, unit: Unit, after: int) -> int:
    return items.exchange("RS", unit.num_parameters * 2, after)


def zionex(num_ranks: int) -> Machine:
    """ZionEX, cut or grown to a number of ranks."""
    known = load_machine("zionex-128")
    if num_ranks == 8:
        return replace(known, tiers=known.tiers[:1])
    return replace(known, tiers=(known.tiers[0], replace(known.tiers[1], num_ranks=num_ranks)))
