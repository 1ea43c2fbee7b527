"""What the blocks of a model add up to: counted item by item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foretrace.graph import Phase
from foretrace.operators import work_of
from foretrace.workload import (
    Block,
    Exchange,
    Group,
    ModelBlocks,
    Operator,
    Passes,
    Plan,
    Transformer,
    blocks_of_model,
)


def parts(blocks: ModelBlocks) -> Iterator[Passes]:
    """All parts of a model, layers as often as there are."""
    if blocks.embedding is not None:
        yield blocks.embedding
    yield from blocks.layers
    if blocks.head is not None:
        yield blocks.head


def distinct(blocks: ModelBlocks) -> list[Passes]:
    return list({id(one): one for one in parts(blocks)}.values())


def operators(block: Block) -> list[Operator]:
    return [item for item in block.items if isinstance(item, Operator)]


def exchanges(block: Block) -> list[Exchange]:
    return [item for item in block.items if isinstance(item, Exchange)]


def is_attention(operator: Operator) -> bool:
    return "attention" in operator.name or "attn" in operator.name


def product_flops(block: Block, phase: Phase, *, of_attention: bool) -> int:
    """FLOPs of matrix products: those of fused attention, or all others."""
    total = 0
    for one in operators(block):
        work = work_of(one.name, one.signature)
        assert work is not None or one.name.endswith("_backward"), one.name
        is_counted = work is not None and work.is_product
        if is_counted and one.phase is phase and is_attention(one) is of_attention:
            total += 0 if work is None else work.flops
    return total


def moved_bytes(block: Block) -> int:
    works = (work_of(one.name, one.signature) for one in operators(block))
    return sum(work.num_bytes for work in works if work is not None)


def volumes(block: Block, phase: Phase | None = None) -> Counter[tuple[Group, str]]:
    """Bytes of exchanges by group and kind."""
    found: Counter[tuple[Group, str]] = Counter()
    for one in exchanges(block):
        if phase is None or one.phase is phase:
            found[one.group, one.collective] += one.num_bytes
    return found


def first_layer(model: Transformer, plan: Plan) -> Passes:
    return blocks_of_model(model, plan).layers[0]
