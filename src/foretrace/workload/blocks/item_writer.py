"""`ItemWriter`: the operations of one block, written down one after the other."""

from __future__ import annotations

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, Item, Operator
from foretrace.workload.blocks.signatures import OperatorCall, num_bytes
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.plan.plan import Group


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
