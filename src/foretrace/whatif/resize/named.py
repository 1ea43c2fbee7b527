"""`Sizes` that a recording tells, and what a size in a shape can mean, before and after an edit.

Every dimension of a transformer's tensors is a product or a quotient of a few sizes. Each has a
name, a kind (what it can stand for in a shape), and a value under either scenario. Where two names
have one value (a hidden size that is also a rank's share of the feed-forward width), the place
in the shape and the neighbours decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from foretrace.base import ScenarioError
from foretrace.workload import Plan


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths of a model, of the whole of it; `None` where nothing tells."""

    layers: int | None = None
    hidden: int | None = None
    feed_forward: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    head_width: int | None = None
    vocabulary: int | None = None
    experts: int | None = None

    @property
    def known(self) -> dict[str, int]:
        """Those that something tells, by name."""
        return {name: size for name, size in vars(self).items() if size is not None}

    def filled(self, other: Mapping[str, int | None]) -> Sizes:
        """These, and others where nothing tells."""
        return Sizes(**{**other, **self.known})


class DimensionKind(StrEnum):
    """What a dimension stands for."""

    TOKENS = "t"  # of a microbatch, batch and sequence in one
    ROWS = "r"  # tokens times heads
    BATCH = "b"  # sequences
    BATCH_HEADS = "g"  # sequences times heads: the batch of plain attention's products
    SEQUENCE = "s"
    HEADS = "n"
    SHARED = "h"  # heads that share one head of keys and values
    WIDTH = "w"  # of an activation or a weight
    SIZE = "d"  # of a head


@dataclass(frozen=True, kw_only=True)
class Divided:
    """Which parts of a model the ranks of TENSOR divide among them."""

    attention: bool = True
    feed_forward: bool = True
    vocabulary: bool = True


@dataclass(frozen=True)
class Named:
    """One dimension, under both scenarios."""

    name: str
    kind: DimensionKind
    before: int
    after: Fraction  # whole, where a rank can have it at all

    @property
    def new(self) -> int:
        """Its size after the edit.

        Raises:
            ScenarioError: if ranks cannot divide it.
        """
        if self.after.denominator != 1:
            ratio = self.after.denominator
            raise ScenarioError(
                f"{self.name} is not whole: {self.after.numerator:,} / {ratio:,}; "
                f"take sizes and degrees so that {ratio:,} divides {self.after.numerator:,}."
            )
        return int(self.after)


@dataclass(frozen=True)
class _Setting:
    """Sizes and degrees under one scenario, `Fraction`s of what is known."""

    sizes: Sizes
    plan: Plan
    divided: Divided

    def share(self, size: int | None, *, is_divided: bool) -> Fraction | None:
        if size is None:
            return None
        return Fraction(size, self.plan.tensor if is_divided else 1)

    @property
    def heads(self) -> Fraction | None:
        return self.share(self.sizes.heads, is_divided=self.divided.attention)

    @property
    def key_heads(self) -> Fraction | None:
        """Heads of keys and values; ranks beyond their number hold copies."""
        found = self.share(self.sizes.key_value_heads, is_divided=self.divided.attention)
        return None if found is None else max(found, Fraction(1))

    @property
    def size(self) -> Fraction | None:
        width = self.sizes.head_width
        return None if width is None else Fraction(width)

    @property
    def feed_forward(self) -> Fraction | None:
        return self.share(self.sizes.feed_forward, is_divided=self.divided.feed_forward)

    @property
    def vocabulary(self) -> Fraction | None:
        """Rows of the table on a rank: filled up, where ranks do not divide it evenly."""
        count = self.sizes.vocabulary
        if count is None:
            return None
        ranks = self.plan.tensor if self.divided.vocabulary else 1
        return Fraction(-(-count // ranks))

    @property
    def sequence(self) -> Fraction:
        return Fraction(self.plan.sequence, self.plan.context)

    @property
    def own(self) -> Fraction:
        """Share of the tokens that a rank keeps between products."""
        return Fraction(1, self.plan.tensor if self.plan.sequence_parallel else 1)


_Value = Callable[[_Setting], Fraction | None]


def _times(*factors: Fraction | None) -> Fraction | None:
    product = Fraction(1)
    for one in factors:
        if one is None:
            return None
        product *= one
    return product


def _plus(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else first + second


def _queries(at: _Setting) -> Fraction | None:
    return _times(at.heads, at.size)


def _keys(at: _Setting) -> Fraction | None:
    return _times(at.key_heads, at.size)


def _twice(value: Fraction | None) -> Fraction | None:
    return _times(Fraction(2), value)


def _tokens(at: _Setting) -> Fraction:
    return at.plan.micro_batch * at.sequence


def _count(count: int | None) -> Fraction | None:
    return None if count is None else Fraction(count)


def _shared(at: _Setting) -> Fraction | None:
    """Heads that share a head of keys and values."""
    return None if at.heads is None or at.key_heads is None else at.heads / at.key_heads


HIDDEN, ATTENTION_WIDTH, KEY_WIDTH = "hidden", "attention width", "key width"
QKV_WIDTH, KEYS_AND_VALUES = "qkv width", "keys and values"
FEED_FORWARD, GATE_AND_UP, VOCABULARY = "feed-forward width", "gate and up", "vocabulary"
EXPERTS, TOKENS, OWN_TOKENS = "experts", "tokens", "own tokens"
SEQUENCE, MICROBATCH, HEAD_WIDTH = "sequence", "microbatch", "head width"

# In order of preference where nothing else tells two of a value apart.
_TABLE: tuple[tuple[str, DimensionKind, _Value], ...] = (
    (TOKENS, DimensionKind.TOKENS, _tokens),
    (OWN_TOKENS, DimensionKind.TOKENS, lambda at: _tokens(at) * at.own),
    ("tokens and one", DimensionKind.TOKENS, lambda at: _tokens(at) + 1),
    ("tokens x heads", DimensionKind.ROWS, lambda at: _times(_tokens(at), at.heads)),
    ("tokens x key heads", DimensionKind.ROWS, lambda at: _times(_tokens(at), at.key_heads)),
    (MICROBATCH, DimensionKind.BATCH, lambda at: Fraction(at.plan.micro_batch)),
    (
        "microbatch x heads",
        DimensionKind.BATCH_HEADS,
        lambda at: _times(Fraction(at.plan.micro_batch), at.heads),
    ),
    (
        "microbatch x key heads",
        DimensionKind.BATCH_HEADS,
        lambda at: _times(Fraction(at.plan.micro_batch), at.key_heads),
    ),
    (SEQUENCE, DimensionKind.SEQUENCE, lambda at: at.sequence),
    ("own sequence", DimensionKind.SEQUENCE, lambda at: at.sequence * at.own),
    ("whole sequence", DimensionKind.SEQUENCE, lambda at: Fraction(at.plan.sequence)),
    ("half of a sequence", DimensionKind.SEQUENCE, lambda at: at.sequence / 2),
    ("sequence and one", DimensionKind.SEQUENCE, lambda at: at.sequence + 1),
    ("heads", DimensionKind.HEADS, lambda at: at.heads),
    ("key heads", DimensionKind.HEADS, lambda at: at.key_heads),
    ("heads and key heads", DimensionKind.HEADS, lambda at: _plus(at.heads, at.key_heads)),
    ("heads of q, k and v", DimensionKind.HEADS, lambda at: _plus(at.heads, _twice(at.key_heads))),
    ("heads per key head", DimensionKind.SHARED, _shared),
    (HIDDEN, DimensionKind.WIDTH, lambda at: _count(at.sizes.hidden)),
    (FEED_FORWARD, DimensionKind.WIDTH, lambda at: at.feed_forward),
    (GATE_AND_UP, DimensionKind.WIDTH, lambda at: _twice(at.feed_forward)),
    (ATTENTION_WIDTH, DimensionKind.WIDTH, _queries),
    (QKV_WIDTH, DimensionKind.WIDTH, lambda at: _plus(_queries(at), _twice(_keys(at)))),
    (KEY_WIDTH, DimensionKind.WIDTH, _keys),
    (KEYS_AND_VALUES, DimensionKind.WIDTH, lambda at: _twice(_keys(at))),
    (VOCABULARY, DimensionKind.WIDTH, lambda at: at.vocabulary),
    (EXPERTS, DimensionKind.WIDTH, lambda at: _count(at.sizes.experts)),
    (HEAD_WIDTH, DimensionKind.SIZE, lambda at: at.size),
    ("query, key and value of a head", DimensionKind.SIZE, lambda at: _times(Fraction(3), at.size)),
    ("half of a head", DimensionKind.SIZE, lambda at: _times(Fraction(1, 2), at.size)),
)


@dataclass(frozen=True)
class Dimensions:
    """All dimensions that both scenarios know."""

    by_name: Mapping[str, Named]
    by_value: Mapping[int, tuple[Named, ...]]  # of the recording; in order of preference

    def __hash__(self) -> int:
        return hash(tuple(self.by_name.values()))

    def of(self, value: int, kind: DimensionKind) -> tuple[Named, ...]:
        """What a size can mean as a kind of dimension, the likeliest first."""
        return tuple(one for one in self.by_value.get(value, ()) if one.kind is kind)

    @property
    def gaps(self) -> dict[int, int]:
        """Heads that lie between two of one head: what becomes of their number."""
        kinds = (DimensionKind.HEADS, DimensionKind.SHARED)
        heads = [one for one in self.by_name.values() if one.kind in kinds and one.before > 1]
        return {one.before: int(one.after) for one in reversed(heads)}

    @property
    def is_unchanged(self) -> bool:
        """Whether every size is as it was."""
        return all(one.after == one.before for one in self.by_name.values())


def dimensions(
    before: tuple[Sizes, Plan], after: tuple[Sizes, Plan], divided: Divided
) -> Dimensions:
    """Every named dimension that is whole in the recording, with its new value.

    A size that only one of both states is taken to stay.
    """
    old = _Setting(before[0], before[1], divided)
    new = _Setting(after[0].filled(vars(before[0])), after[1], divided)
    by_name: dict[str, Named] = {}
    by_value: dict[int, list[Named]] = {}
    for name, kind, value in _TABLE:
        was, now = value(old), value(new)
        if was is None or now is None or was.denominator != 1:
            continue
        one = Named(name, kind, int(was), now)
        by_name[name] = one
        by_value.setdefault(one.before, []).append(one)
    return Dimensions(by_name, {size: tuple(found) for size, found in by_value.items()})
