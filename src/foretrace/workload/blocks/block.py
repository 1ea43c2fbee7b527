"""`ModelBlocks`: what one rank does for one microbatch, part by part; `ItemWriter` writes them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.signatures import OperatorCall, num_bytes
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.plan.plan import Group

NO_SIGNATURE = ""


@dataclass(frozen=True)
class Operator:
    """One operation on a device, as a trace would show it."""

    label: str  # what it is in the model: "qkv projection", "attention"
    name: str  # the framework's: "aten::mm"; cost models and classes go by it
    signature: str  # JSON text of shapes, dtypes and strides, as `trace` keeps it
    phase: Phase
    # Positions of earlier items of the block that it waits for besides the one before it on its
    # own stream: exchanges, as a rule.
    after: tuple[int, ...] = ()
    measured_ns: int = 0  # of a block that comes from a trace; 0: nobody measured
    is_weight_gradient: bool = False  # W of a schedule that takes backward passes apart
    is_of_adapter: bool = False  # not of a weight that adapters leave as it is


Item = Operator | Exchange


@dataclass(frozen=True)
class Block:
    """A run of operations in the order in which a rank issues them.

    Operators share the compute stream. What an item waits for besides its stream stands in
    its `after`; an exchange that is waited for at once stands in the next operator's.

    From block to block: an exchange whose `after` is empty sends what the operator before the
    block made; an exchange of the block that none of its items waits for is waited for by the
    first operator of what comes next.
    """

    part: Part
    items: tuple[Item, ...]


@dataclass(frozen=True)
class ParameterCount:
    """Parameters that one rank holds, before sharding over data-parallel ranks."""

    dense: int = 0  # divided by tensor ranks where they are, else whole
    expert: int = 0  # of this rank's experts


@dataclass(frozen=True)
class Passes:
    """Everything that one part of the model (a layer, the embedding, the head) does."""

    part: Part
    forward: Block
    backward: Block  # begins with what is recomputed
    parameters: ParameterCount
    # Halves of the backward pass, where they are not what `halves` takes it apart into.
    input_backward: Block | None = None  # B: with what is recomputed
    weight_backward: Block | None = None  # W

    @cached_property
    def halves(self) -> tuple[Block, Block]:
        """The backward pass without gradients of weights, and these."""
        items, part = self.backward.items, self.backward.part
        of_weights = {at for at, item in enumerate(items) if item.is_weight_gradient}
        inputs = only(items, set(range(len(items))) - of_weights)
        return Block(part, inputs), Block(part, only(items, of_weights))


def only(items: tuple[Item, ...], wanted: AbstractSet[int]) -> tuple[Item, ...]:
    """Items at some positions, which are counted anew.

    What waited for an item that is gone waits no more; an exchange whose waiting operator is
    gone is waited for by the next one.
    """
    place: dict[int, int] = {}
    kept: list[Item] = []
    orphans: list[int] = []
    awaited_at = {at for item in items for at in item.after}
    awaited_still = {at for one in wanted for at in items[one].after}
    for at, item in enumerate(items):
        if at not in wanted:
            continue
        place[at] = len(kept)
        after = {place[one] for one in item.after if one in place}
        if isinstance(item, Operator):
            after.update(orphans)
            orphans = []
        elif at in awaited_at and at not in awaited_still:
            orphans.append(place[at])
        kept.append(replace(item, after=tuple(sorted(after))))
    return tuple(kept)


@dataclass(frozen=True)
class ModelBlocks:
    """A model's parts under a plan, for one microbatch on a rank.

    Layers that are alike are one object, so that work is done once per distinct one.
    """

    embedding: Passes | None
    layers: tuple[Passes, ...]
    head: Passes | None  # final norm, output projection and loss
    # What is sent to the next stage for one microbatch, per rank, and its number format.
    transfer_bytes: int
    transfer_dtype: str
    transfer_channels: int | None = field(default=None, kw_only=True)  # `Exchange.channels`
    # Parameters of a table, on one rank, that the embedding and the output projection share: first
    # and last stage then hold both a copy of it.
    tied_parameters: int = 0
    notes: tuple[str, ...] = field(default=())  # what was left out or taken to be so


class ItemWriter:
    """Items in the order in which a rank issues them, all of one phase until it is changed."""

    def __init__(self, phase: Phase) -> None:
        """Begin with nothing."""
        self.phase = phase
        self._items: list[Item] = []
        self._awaited: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """Position of the latest item; -1 if there is none."""
        return len(self._items) - 1

    def add(self, label: str, call: OperatorCall, *, is_weight_gradient: bool = False) -> int:
        """An operator, which waits for what is awaited; its position."""
        self._items.append(
            Operator(
                label,
                call.name,
                call.signature,
                self.phase,
                after=self._awaited,
                is_weight_gradient=is_weight_gradient,
            )
        )
        self._awaited = ()
        return self.last

    def exchange(
        self,
        label: str,
        collective: CollectiveKind,
        *,
        numbers: int,
        dtype: str,
        group: Group = Group.DATA,
        after: tuple[int, ...] | None = None,
    ) -> int:
        """A communication of what the latest item gave, unless told otherwise; its position."""
        given = ((self.last,) if self.last >= 0 else ()) if after is None else after
        # What is still awaited must be there before anything is sent on.
        self._items.append(
            Exchange(
                label,
                collective,
                group,
                num_bytes(numbers, dtype),
                dtype,
                self.phase,
                after=tuple(dict.fromkeys((*self._awaited, *given))),
            )
        )
        return self.last

    def wait(self, *positions: int) -> None:
        """The next operator waits for these items."""
        self._awaited = tuple(dict.fromkeys((*self._awaited, *positions)))

    @property
    def written(self) -> tuple[Item, ...]:
        """All items so far."""
        return tuple(self._items)

    def positions(self) -> dict[str, int]:
        """Positions of items by label, the latest of each."""
        return {one.label: at for at, one in enumerate(self._items)}

    def block(self, part: Part) -> Block:
        """All items as a block."""
        return Block(part, self.written)
