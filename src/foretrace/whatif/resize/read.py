"""`read_sizes`: a model's widths and its microbatch, from the shapes of recorded operators.

A layer's forward pass says most: its first product takes the hidden size, attention says heads,
their width, sequences and their length; what the products before it make beyond the queries is
keys and values; the last product takes the feed-forward width. A grouped product says how many
experts there are, and the last of them what an expert's width is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from foretrace.answer import Answer, Column, Table, Told, Unit
from foretrace.base import ScenarioError
from foretrace.graph import NO_LAYER, NodeKind, Part, Phase
from foretrace.operators import (
    OperatorClass,
    Shapes,
    Tensor,
    attention_shape,
    operator_class,
    parsed_shapes,
    scores_shape,
)
from foretrace.whatif.recorded.program import GROUPS, Program
from foretrace.whatif.resize.named import Divided, Sizes
from foretrace.whatif.resize.products import Multiplied, multiplied
from foretrace.whatif.resize.recorded_blocks import RecordedBlocks, recorded_blocks
from foretrace.whatif.resize.rewriting import (
    RecordedOperator,
    base_name,
    is_attention,
    is_beside_product,
)
from foretrace.workload import Group

_MATRIX = 2  # dimensions
_ACTIVATIONS = 3
_GROUPED = {"_grouped_mm", "grouped_mm"}

_LAST_PARTS = (Part.HEAD, Part.LOSS, Part.UNKNOWN)
_FIRST_PARTS = (Part.EMBEDDING, Part.UNKNOWN, Part.LAYER)
_MATRIX = 2  # dimensions


@dataclass(frozen=True, repr=False)
class ReadSizes(Answer):
    """What shapes tell of a model and its inputs."""

    json_names: ClassVar = {
        "divided": "", "table_rows": "", "origin": "read_from", "lengths": "", "batches": "",
    }  # fmt: skip

    sizes: Sizes
    micro_batch: int | None  # sequences; `None`: nothing tells
    sequence: int | None  # tokens, of all ranks of CONTEXT
    dtype: str  # of the products; "" unknown
    divided: Divided  # what ranks of TENSOR divide
    table_rows: tuple[int, ...] = ()  # of looked-up tables beside the vocabulary's
    origin: Mapping[str, str] = field(default_factory=dict)  # field -> what it was read from
    notes: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()  # tokens over which attention was called, rising
    batches: tuple[int, ...] = ()  # sequences of these calls, rising; several: of no one batch

    @property
    def headline(self) -> str:
        """How many sizes are known."""
        known = sum(value is not None for value in self._values.values())
        return f"{known} of {len(self._values)} sizes read from shapes"

    @property
    def note(self) -> str:
        """What is to know of them."""
        return "; ".join(self.notes)

    def parts(self) -> tuple[Told, ...]:
        """A row a size: name, value, what it was read from."""
        return (
            Table.of(
                "sizes",
                self._values.items(),
                Column("size", value=lambda row: row[0]),
                Column("value", unit=Unit.IDENTIFIER, value=lambda row: row[1]),
                Column("read_from", value=lambda row: self.origin.get(row[0], "")),
            ),
        )

    @property
    def _values(self) -> Mapping[str, int | None]:
        return {**vars(self.sizes), "micro_batch": self.micro_batch, "sequence": self.sequence}


@dataclass(frozen=True)
class _Local:
    """What one rank's layer says of its own share."""

    hidden: int | None = None
    tokens: int | None = None
    batch: int | None = None
    length: int | None = None
    heads: int | None = None
    key_heads: int | None = None
    head_width: int | None = None
    feed_forward: int | None = None
    experts: int | None = None
    dtype: str = ""
    attention: str = ""  # operator that told


def read_sizes(program: Program, *, stated: Sizes | None = None) -> ReadSizes:
    """Sizes of the model that was recorded; what is stated wins.

    Raises:
        ScenarioError: if what is stated is neither a rank's size nor that times the ranks of
            TENSOR.
    """
    blocks = program.once(recorded_blocks)
    local = _local(blocks)
    words, tables = vocabulary_of(blocks, local.hidden)
    stated = stated or Sizes()
    notes: list[str] = []
    divided = _divided(program, local, (words, stated), notes)
    tensor = program.plan.tensor
    across = tensor if divided.attention else 1
    read = {
        "layers": _num_layers(program),
        "hidden": local.hidden,
        "feed_forward": _times(local.feed_forward, tensor if divided.feed_forward else 1),
        "heads": _times(local.heads, across),
        "key_value_heads": _times(local.key_heads, across),
        "head_width": local.head_width,
        "vocabulary": _times(words, tensor if divided.vocabulary else 1),
        "experts": _times(local.experts, program.plan.expert),
    }
    return ReadSizes(
        sizes=stated.filled(read),
        micro_batch=local.batch,
        sequence=_times(local.length, program.plan.context),
        dtype=local.dtype,
        divided=divided,
        table_rows=tables,
        origin=_origin(read, stated, local),
        notes=tuple(notes),
        **_attended(blocks),
    )


def _attended(blocks: RecordedBlocks) -> dict[str, tuple[int, ...]]:
    """Lengths and numbers of sequences over which layers call attention, forward."""
    calls = [
        shape
        for layer in _forward_layers(blocks)
        for one in layer
        for shape in (
            attention_shape(one.operator, one.signature),
            scores_shape(one.operator, one.signature),
        )
        if shape is not None and not shape.is_backward
    ]
    return {
        "lengths": tuple(sorted({one.query_length for one in calls})),
        "batches": tuple(sorted({one.batch for one in calls})),
    }


def _times(size: int | None, factor: int) -> int | None:
    return None if size is None else size * factor


def _num_layers(program: Program) -> int | None:
    layers = {one for stage in program.layers_of_stage for one in stage}
    if not layers:
        layers = set(program.graph.layer[program.graph.layer != NO_LAYER].tolist())
    return len(layers) or None


def _origin(read: Mapping[str, int | None], stated: Sizes, local: _Local) -> dict[str, str]:
    told = {
        "layers": "blocks",
        "hidden": "what a layer's first product takes",
        "feed_forward": "what a layer's last product takes",
        "heads": local.attention,
        "key_value_heads": "what the products before attention make beside queries",
        "head_width": local.attention,
        "vocabulary": "the output projection, or the table of the embedding",
        "experts": "what a grouped product multiplies by",
    }
    found = {
        name: "stated" if getattr(stated, name) is not None else text
        for name, text in told.items()
        if read[name] is not None or getattr(stated, name) is not None
    }
    if local.batch is not None:
        found |= dict.fromkeys(("micro_batch", "sequence"), local.attention or "activations")
    return found


def _forward_layers(blocks: RecordedBlocks) -> Iterator[tuple[RecordedOperator, ...]]:
    """Forward passes of layers, what takes most time first; of unknown parts, if there are none."""
    for parts in ((Part.LAYER,), (Part.UNKNOWN,)):
        for one in blocks.of(*parts):
            if blocks.place_of(blocks.example[one])[1] in {
                Phase.FORWARD,
                Phase.RECOMPUTE,
                Phase.UNKNOWN,
            }:
                yield blocks.ran(blocks.example[one])


def _local(blocks: RecordedBlocks) -> _Local:
    best = _Local()
    for layer in _forward_layers(blocks):
        found = _of_layer(layer)
        if found.heads is not None and found.hidden is not None:
            return found
        if best.hidden is None:
            best = found
    return best if best.hidden is not None else replace(best, batch=_batch_of_images(blocks))


def _batch_of_images(blocks: RecordedBlocks) -> int | None:
    """Samples of what the first convolutions take."""
    counts: Counter[int] = Counter()
    for one in blocks.of():
        for ran in blocks.ran(blocks.example[one]):
            if operator_class(ran.operator) is OperatorClass.CONVOLUTION:
                shapes = parsed_shapes(ran.signature)
                data = None if shapes is None else shapes.tensor(0)
                if data is not None and len(data.shape) > _ACTIVATIONS:
                    counts[data.shape[0]] += 1
    return counts.most_common(1)[0][0] if counts else None


def _of_layer(layer: Sequence[RecordedOperator]) -> _Local:
    """One layer's forward pass."""
    parsed = [parsed_shapes(one.signature) for one in layer]
    before, behind = _products(layer, parsed)
    first = next(iter(before or behind), None)
    if first is None:
        return _Local()
    hidden = _hidden(layer, parsed, first)
    found = _Local(hidden=hidden, tokens=first.rows, dtype=_dtype(layer, parsed))
    found = _with_attention(found, layer, parsed)
    if found.heads and found.head_width:
        queries = found.heads * found.head_width
        beyond = sum(one.columns for one in before if one.inner == hidden) - queries
        if beyond > 0 and beyond % (2 * found.head_width) == 0:
            found = replace(found, key_heads=beyond // (2 * found.head_width))
    downs = [one for one in behind[1:] if one.columns == hidden]
    if downs:
        found = replace(found, feed_forward=downs[-1].inner)
    return _with_experts(found, layer, parsed)


def _with_experts(
    found: _Local, layer: Sequence[RecordedOperator], parsed: Sequence[Shapes | None]
) -> _Local:
    for one, shapes in zip(layer, parsed, strict=True):
        weights = None if shapes is None else shapes.tensor(1)
        if base_name(one.operator) not in _GROUPED or weights is None:
            continue
        if len(weights.shape) == _ACTIVATIONS and weights.shape[-1] == found.hidden:
            experts, width, _ = weights.shape
            found = replace(found, experts=experts, feed_forward=width)
    return found


def _products(
    layer: Sequence[RecordedOperator], parsed: Sequence[Shapes | None]
) -> tuple[list[Multiplied], list[Multiplied]]:
    """Products with weights before a layer's attention, and behind it up to the next."""
    before: list[Multiplied] = []
    behind: list[Multiplied] = []
    is_behind = False
    for one, shapes in zip(layer, parsed, strict=True):
        if shapes is None:
            continue
        if is_attention(one):
            if behind:
                break
            is_behind = True
            continue
        found = multiplied(base_name(one.operator), shapes)
        if found is not None and not is_beside_product(one):
            (behind if is_behind else before).append(found)
    return before, behind


def _hidden(
    layer: Sequence[RecordedOperator], parsed: Sequence[Shapes | None], first: Multiplied
) -> int:
    """The width that is normalised, else what the first product takes."""
    widths: Counter[int] = Counter()
    for one, shapes in zip(layer, parsed, strict=True):
        if operator_class(one.operator) is OperatorClass.NORMALISATION and shapes is not None:
            data = shapes.tensor(0)
            if data is not None and len(data.shape) >= _MATRIX:
                widths[data.shape[-1]] += 1
    return first.inner if not widths or first.inner in widths else widths.most_common(1)[0][0]


def _dtype(layer: Sequence[RecordedOperator], parsed: Sequence[Shapes | None]) -> str:
    for one, shapes in zip(layer, parsed, strict=True):
        if shapes is not None and multiplied(base_name(one.operator), shapes) is not None:
            return next((each.dtype for each in shapes.single if each.shape), "")
    return ""


def _with_attention(
    found: _Local, layer: Sequence[RecordedOperator], parsed: Sequence[Shapes | None]
) -> _Local:
    for one in layer:
        shape = attention_shape(one.operator, one.signature)
        if shape is not None and not shape.is_backward:
            heads, keys, length = shape.heads, shape.kv_heads, shape.query_length
            if shape.batch * length != found.tokens and shape.batch * heads == found.tokens:
                # Called with heads before positions, against its documentation.
                heads, keys, length = length, shape.kv_length, heads
            return replace(
                found,
                batch=shape.batch,
                length=length,
                heads=heads,
                key_heads=keys,
                head_width=shape.head_size,
                attention=one.operator,
            )
    for one in layer:
        scores = scores_shape(one.operator, one.signature)
        if scores is not None and not scores.is_backward:
            return _plain(found, one, layer, parsed)
    return _without_attention(found, parsed)


def _plain(
    found: _Local,
    softmax: RecordedOperator,
    layer: Sequence[RecordedOperator],
    parsed: Sequence[Shapes | None],
) -> _Local:
    """Scores in memory: (sequences x heads, positions, positions), or sequences and heads apart."""
    scores = scores_shape(softmax.operator, softmax.signature)
    assert scores is not None  # noqa: S101  the caller found it
    length = scores.query_length
    batch = (found.tokens or length) // length or 1
    heads = scores.heads or scores.batch // batch
    width = None
    for one, shapes in zip(layer, parsed, strict=True):
        if shapes is None or base_name(one.operator) not in {"bmm", "baddbmm", "matmul"}:
            continue
        matrices = [each.shape[-2:] for each in shapes.single if len(each.shape) >= _ACTIVATIONS]
        sizes = {size for shape in matrices for size in shape} - {length}
        width = next(iter(sizes), length if matrices else None)
        break
    return replace(
        found,
        batch=batch,
        length=length,
        heads=heads,
        key_heads=heads,
        head_width=width,
        attention=softmax.operator,
    )


def _without_attention(found: _Local, parsed: Sequence[Shapes | None]) -> _Local:
    """Sequences and positions from activations of three dimensions: the longer is the positions."""
    for shapes in parsed:
        for one in () if shapes is None else shapes.single:
            rows = one.shape[:-1]
            is_whole = len(one.shape) == _ACTIVATIONS and one.shape[-1] == found.hidden
            if is_whole and rows[0] * rows[1] == found.tokens:
                return replace(found, batch=min(rows), length=max(rows))
    return replace(found, batch=found.tokens, length=1)


def _divided(
    program: Program, local: _Local, words: tuple[int | None, Sizes], notes: list[str]
) -> Divided:
    """What ranks of TENSOR divide: what is stated, else what the widths and collectives show."""
    tensor, (rows, stated) = program.plan.tensor, words
    if tensor == 1:
        return Divided()
    is_whole = (
        local.hidden is not None
        and local.heads is not None
        and local.head_width is not None
        and local.heads * local.head_width == local.hidden
        and (local.feed_forward or 0) >= 2 * local.hidden
    )
    if is_whole and stated.heads is None and stated.feed_forward is None:
        notes.append(
            f"products are as wide as a whole model's (attention {local.hidden:,} of hidden "
            f"{local.hidden:,}, feed-forward {local.feed_forward:,}): their sizes are taken not to "
            f"be divided over {tensor} tensor-parallel ranks; state heads and feed_forward if they "
            "are"
        )
    has_sums = _has_sums(program)
    return Divided(
        attention=_is_divided("heads", (stated.heads, local.heads), tensor, default=not is_whole),
        feed_forward=_is_divided(
            "feed_forward",
            (stated.feed_forward, local.feed_forward),
            tensor,
            default=not is_whole,
        ),
        vocabulary=_is_divided("vocabulary", (stated.vocabulary, rows), tensor, default=has_sums),
    )


def _is_divided(
    name: str, pair: tuple[int | None, int | None], tensor: int, *, default: bool
) -> bool:
    stated, recorded = pair
    if stated is None or recorded is None:
        return default
    if stated == recorded:
        return False
    is_padded = name == "vocabulary" and -(-stated // tensor) <= recorded
    if stated == recorded * tensor or is_padded:
        return True
    raise ScenarioError(
        f"{name} {stated:,} is stated, and shapes show {recorded:,} on each of {tensor} "
        f"tensor-parallel ranks: state {recorded * tensor:,} (divided over them) or {recorded:,} "
        "(each has all of it)."
    )


def _has_sums(program: Program) -> bool:
    """Whether ranks of TENSOR exchange anything at either end of the model."""
    graph = program.graph
    is_end = (graph.kind == NodeKind.FINISH) & (
        (graph.part == Part.EMBEDDING) | (graph.part == Part.HEAD) | (graph.part == Part.LOSS)
    )
    groups = program.group_of_collective[graph.collective[is_end]]
    return bool((groups == GROUPS.index(Group.TENSOR)).any())


def vocabulary_of(blocks: RecordedBlocks, hidden: int | None) -> tuple[int | None, tuple[int, ...]]:
    """Rows of the vocabulary on one rank, and of other tables that are looked up."""
    if hidden is None:
        return None, ()
    projected: Counter[int] = Counter()
    for one in blocks.of(*_LAST_PARTS):
        place = blocks.place_of(blocks.example[one])
        if place[1] is Phase.BACKWARD:
            continue
        for ran in blocks.ran(blocks.example[one]):
            shapes = parsed_shapes(ran.signature)
            product = None if shapes is None else multiplied(base_name(ran.operator), shapes)
            if product is not None and product.inner == hidden and place[0] is not Part.UNKNOWN:
                projected[product.columns] += 1
    rows = sorted(_tables(blocks, hidden), reverse=True)
    words = max(projected, default=None)
    if words is None or words <= hidden:
        words = rows[0] if rows else None
    return words, tuple(sorted(set(rows) - {words}))


def _tables(blocks: RecordedBlocks, hidden: int) -> Iterator[int]:
    for one in blocks.of(*_FIRST_PARTS):
        for ran in blocks.ran(blocks.example[one]):
            if operator_class(ran.operator) is not OperatorClass.EMBEDDING:
                continue
            shapes = parsed_shapes(ran.signature)
            table = None if shapes is None else shapes.tensor(0)
            if table is not None and _is_table(table, hidden):
                yield table.shape[0]


def _is_table(table: Tensor, hidden: int) -> bool:
    return len(table.shape) == _MATRIX and table.shape[1] == hidden and bool(table.dtype)
