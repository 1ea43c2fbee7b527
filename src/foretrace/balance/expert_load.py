"""`ExpertLoad`: how tokens are spread over experts, and what the fullest rank has of them.

In: counts of tokens that were measured, layer by layer, or the power law that tables of experts
are drawn by. Out: for every microbatch and layer the load of the fullest rank of EXPERT over
their mean, since all wait for it, with experts in order or dealt to balance, some held several
times, and with a capacity above which tokens are dropped.

Source:
    deepseek-ai/EPLB (replicas for the fullest experts, the fullest first where least is).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.cost import power_law_rows

EVEN = "even"
_LAW = "power:"
_STEEPEST = 20.0
_DIMENSIONS = 3  # of counts: batches, layers, experts


@dataclass(frozen=True)
class Routing:
    """What tokens of a microbatch are routed over."""

    tokens: int  # of all ranks of EXPERT together
    chosen: int  # experts of a token
    experts: int
    ranks: int  # of EXPERT
    layers: int  # with experts


@dataclass(frozen=True)
class ExpertPlacement:
    """Where experts are."""

    replicas: int | None = None  # more than one for each, over all ranks; `None`: in order

    @property
    def name(self) -> str:
        """As tables say it."""
        if self.replicas is None:
            return "in order"
        return f"balanced, {self.replicas} replicas" if self.replicas else "balanced"


@dataclass(frozen=True, eq=False)
class DrawnLoad:
    """What the fullest rank has to do."""

    fullest: Float64s  # float64[steps, microbatches, layers], over the mean of ranks
    dropped: float  # share of all tokens

    @property
    def imbalance(self) -> float:
        """Of all microbatches and layers, the mean."""
        return float(self.fullest.mean())


@dataclass(frozen=True, eq=False)
class ExpertLoad:
    """How tokens are spread over experts."""

    name: str
    counts: Float64s | None = None  # float64[batches, layers, experts], tokens
    exponent: float | None = None  # of the power law; with neither, all have as many
    capacity: float | None = None  # of an expert, in mean loads; what is above is dropped

    def __post_init__(self) -> None:
        """Refuse what is no load.

        Raises:
            WorkloadError: if counts are none, or a number is out of range.
        """
        if self.exponent is not None and not abs(self.exponent) <= _STEEPEST:
            raise WorkloadError(
                f"no loads follow a power law with exponent {self.exponent}: public tables take "
                f"1.01 and 1.2, 0 is any load alike often, at most {_STEEPEST:.0f} either way"
            )
        if self.capacity is not None and not self.capacity > 0:
            raise WorkloadError(
                f"experts with a capacity of {self.capacity} mean loads take no token: 1.25 is "
                "usual, without one none is dropped"
            )
        if self.counts is not None and (
            not np.isfinite(self.counts).all()
            or (self.counts < 0).any()
            or not (self.counts.sum(axis=-1) > 0).all()
        ):
            raise WorkloadError(
                f"{self.name} has a layer without tokens, or counts that are none: expected "
                "numbers of at least 0 for each expert, and some above"
            )

    def drawn(
        self,
        routing: Routing,
        placement: ExpertPlacement,
        *,
        num_steps: int,
        num_microbatches: int,
        seed: int = 0,
    ) -> DrawnLoad:
        """Loads of the fullest rank in many steps.

        Batches of measured counts are drawn for each microbatch, and experts placed by their
        mean. By the law, each step has loads of its own, which last from its first microbatch to
        its last, and experts are placed by them.

        Args:
            routing: what is routed over.
            placement: of experts.
            num_steps: to draw.
            num_microbatches: of each.
            seed: of the draws.

        Raises:
            WorkloadError: if counts are of other layers or experts, or replicas leave ranks with
                unequal numbers of experts.
        """
        shape = (num_steps, num_microbatches, routing.layers)
        if self.counts is None:
            shares = self._by_law(routing, num_steps, seed)
            kept, dropped = self._kept(shares)
            fullest = _fullest(kept, shares, routing.ranks, placement)[:, None, :]
            return DrawnLoad(np.broadcast_to(fullest, shape), dropped)
        shares = self._measured(routing)
        kept, dropped = self._kept(shares)
        mean = np.broadcast_to(shares.mean(axis=0), shares.shape)
        fullest = _fullest(kept, mean, routing.ranks, placement)
        batch = np.random.default_rng(seed).integers(len(shares), size=shape[:2])
        return DrawnLoad(fullest[batch], dropped)

    def _kept(self, shares: Float64s) -> tuple[Float64s, float]:
        """What experts have room for, and the mean share of what they have not."""
        if self.capacity is None:
            return shares, 0.0
        kept = np.minimum(shares, self.capacity / shares.shape[-1])
        return kept, float(1 - kept.sum(axis=-1).mean())

    def _by_law(self, routing: Routing, num_steps: int, seed: int) -> Float64s:
        """Share of every expert; float64[steps, layers, experts]."""
        shape = (num_steps, routing.layers, routing.experts)
        if self.exponent is None:
            return np.full(shape, 1 / routing.experts)
        sizes = (routing.tokens, routing.chosen, routing.experts)
        count = num_steps * routing.layers
        rows = power_law_rows(sizes, self.exponent, num_draws=count, seed=seed)
        shares = rows / (routing.tokens * routing.chosen)
        # What is above all tokens of an expert goes to the others.
        for _ in range(routing.experts):
            free = np.where(shares < 1 / routing.chosen, shares, 0.0)
            missing = 1 - shares.sum(axis=1, keepdims=True)
            if (missing < 1e-9).all() or not (free.sum(axis=1) > 0).all():  # noqa: PLR2004  alike
                break
            more = free * missing / free.sum(axis=1, keepdims=True)
            shares = np.minimum(shares + more, 1 / routing.chosen)
        return shares.reshape(shape)

    def _measured(self, routing: Routing) -> Float64s:
        """Share of every expert; float64[batches, layers, experts]."""
        assert self.counts is not None  # noqa: S101  what asks has looked
        _, layers, experts = self.counts.shape
        if experts != routing.experts or layers not in {1, routing.layers}:
            raise WorkloadError(
                f"{self.name} counts {layers} layers of {experts} experts, where the model has "
                f"{routing.layers} of {routing.experts}: expected a row for each of these layers, "
                "or one for all, and a column for each expert"
            )
        shares = self.counts / self.counts.sum(axis=-1, keepdims=True)
        return np.broadcast_to(shares, (len(shares), routing.layers, experts))


def _fullest(
    kept: Float64s, known: Float64s, num_ranks: int, placement: ExpertPlacement
) -> Float64s:
    """Load of the fullest rank over the mean of all, float64[rows, layers].

    Args:
        kept: float64[rows, layers, experts], share of every expert.
        known: of the same shape, what experts are placed by.
        num_ranks: of EXPERT.
        placement: of experts.
    """
    rows, layers, experts = kept.shape
    slots = experts + (placement.replicas or 0)
    if slots % num_ranks:
        raise WorkloadError(
            f"{experts} experts and {placement.replicas or 0} replicas are not as many on each of "
            f"{num_ranks} ranks: take {-experts % num_ranks} replicas, or {num_ranks} more"
        )
    if placement.replicas is None:
        by_rank = kept.reshape(rows, layers, num_ranks, -1).sum(axis=-1)
        in_order: Float64s = num_ranks * by_rank.max(axis=-1)
        return in_order
    flat = kept.reshape(-1, experts)
    copies, rank = _balanced(known.reshape(-1, experts), num_ranks, placement.replicas)
    expert = np.repeat(np.tile(np.arange(experts), len(flat)), copies.ravel())
    row = np.repeat(np.arange(len(flat)), slots)
    loads = (flat / copies)[row, expert]
    at = row * num_ranks + rank.ravel()
    by_rank = np.bincount(at, loads, minlength=len(flat) * num_ranks)
    fullest: Float64s = num_ranks * by_rank.reshape(rows, layers, num_ranks).max(axis=-1)
    return fullest


def _balanced(known: Float64s, num_ranks: int, replicas: int) -> tuple[Int64s, Int64s]:
    """How often experts are held, int64[rows, experts], and the rank of each slot of theirs."""
    rows, experts = known.shape
    every = np.arange(rows)
    copies = np.ones((rows, experts), np.int64)
    for _ in range(replicas):
        copies[every, (known / copies).argmax(axis=1)] += 1
    slots = experts + replicas
    expert = np.repeat(np.tile(np.arange(experts), rows), copies.ravel()).reshape(rows, slots)
    loads = np.take_along_axis(known / copies, expert, axis=1)
    rank = np.empty((rows, slots), np.int64)
    held = np.zeros((rows, num_ranks))
    free = np.full((rows, num_ranks), slots // num_ranks)
    for slot in np.argsort(-loads, axis=1, kind="stable").T:
        place = np.where(free > 0, held, np.inf).argmin(axis=1)
        rank[every, slot] = place
        held[every, place] += loads[every, slot]
        free[every, place] -= 1
    return copies, rank


def expert_load_named(text: str, *, capacity: float | None = None) -> ExpertLoad:
    """The load that a command line names: even, power:EXPONENT, or a file of counts.

    Raises:
        WorkloadError: if it cannot be read.
    """
    if text == EVEN:
        return ExpertLoad(text, capacity=capacity)
    if not text.startswith(_LAW):
        return ExpertLoad(text, counts=_counts(Path(text)), capacity=capacity)
    try:
        exponent = float(text.removeprefix(_LAW))
    except ValueError as err:
        raise WorkloadError(
            f"cannot read {text!r}: expected power:EXPONENT, as in power:1.2"
        ) from err
    return ExpertLoad(text, exponent=exponent, capacity=capacity)


def _counts(path: Path) -> Float64s:
    """Tokens of every expert; float64[batches, layers, experts]."""
    try:
        if path.suffix == ".npy":
            found = np.load(path, allow_pickle=False)
        elif path.suffix == ".json":
            found = np.array(json.loads(path.read_text()))
        elif path.suffix in {".csv", ".txt"}:
            found = np.array([line.replace(",", " ").split() for line in _rows(path)], np.float64)
        else:
            raise WorkloadError(
                f"cannot read a load of experts from {path}: expected even, power:EXPONENT, or "
                "counts of tokens in a .csv, .txt, .json or .npy file"
            )
        counts = np.asarray(found, np.float64)
    except OSError as err:
        raise WorkloadError(f"cannot read {path}: {err.strerror or err}") from err
    except (ValueError, TypeError, EOFError, RecursionError) as err:
        raise WorkloadError(
            f"cannot read {path}: expected numbers of tokens, a row for each layer and a column "
            f"for each expert ({err})"
        ) from err
    if not 1 <= counts.ndim <= _DIMENSIONS or not counts.size:
        raise WorkloadError(
            f"{path} holds counts of shape {counts.shape}: expected experts, layers and experts, "
            "or batches, layers and experts"
        )
    return counts.reshape((1,) * (_DIMENSIONS - counts.ndim) + counts.shape)


def _rows(path: Path) -> list[str]:
    """Lines with numbers; a first one of words is a heading."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    is_heading = bool(lines) and any(letter.isalpha() for letter in lines[0].replace("e", ""))
    return lines[1:] if is_heading else lines
