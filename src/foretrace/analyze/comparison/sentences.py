"""The largest differences as sentences, and what a reader must know to trust them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from foretrace.analyze.comparison.results import (
    Contribution,
    RankChange,
    Reason,
    Side,
    View,
)
from foretrace.analyze.comparison.views import IDLE, SEPARATOR, TRANSFER, WAITING
from foretrace.answer import number_text, short_name
from foretrace.base import NS_PER_MS
from foretrace.trace import BatchKind, EngineBatch, batch_of_mark

_MAX_REASONS = 6
_MAX_DETAILS = 2
_SMALLEST = 0.02  # of the largest difference; less is not worth a sentence
_SMALLEST_OF_STEP = 1e-4  # of the step; less is what rounding in a trace and its clocks make
_MAX_NAME = 56
_MANY_TIMES = 3  # from this ratio on a percentage is hard to read
_UNLIKE = 0.02  # of mean sizes of batches, from which a difference is said
_FEW_ALIKE = 0.9  # of compute time with labels on both sides, below which it is said


def reasons_of(classes: View, names: View, host: View) -> Iterator[Reason]:
    """The classes whose share of the step changed most, each with the names behind it."""
    largest_ns = max((abs(row.difference_ns) for row in classes.rows), default=0)
    floor_ns = max(_SMALLEST * largest_ns, _floor_ns(classes))
    for row in classes.rows[:_MAX_REASONS]:
        if abs(row.difference_ns) < floor_ns:
            break
        if row.label == IDLE:
            details = [
                f"the host's {_short(one.label)} {_signed(one.difference_ns)}"
                for one in _same_way(host.rows, row)
            ]
        else:
            of_class = [one for one in names.rows if one.label.split(SEPARATOR)[0] == row.label]
            details = [_why(one) for one in _same_way(of_class, row)]
        text = "; ".join(details)
        yield Reason(
            label=row.label,
            difference_ns=row.difference_ns,
            sentence=f"{row.label}: {_signed(row.difference_ns)}" + (f": {text}." if text else "."),
        )


def reason_of_rank(late: LateRank, classes: View, host: View) -> Reason:
    """One rank became slower than the others, and they wait for it; views are of this rank."""
    own = [row for row in classes.rows if not row.label.startswith(WAITING)]
    own.sort(key=lambda row: -row.difference_ns)
    details = []
    for row in own[:_MAX_DETAILS]:
        if row.difference_ns < _SMALLEST * late.excess_ns:
            break
        behind = _same_way(host.rows, row)[:1] if row.label == IDLE else []
        details.append(
            f"{row.label} {_signed(row.difference_ns)}"
            + "".join(
                f", its host's {_short(one.label)} {_signed(one.difference_ns)}" for one in behind
            )
        )
    return Reason(
        label=f"rank {late.rank.rank}",
        difference_ns=late.wait_ns,
        sentence=(
            f"rank {late.rank.rank} takes {_signed(late.excess_ns)} more of its own time than "
            f"the others ({'; '.join(details)}), who wait for it: {_signed(late.wait_ns)}."
        ),
    )


@dataclass(frozen=True)
class LateRank:
    """A rank that the others came to wait for."""

    rank: RankChange
    excess_ns: int  # how much more than the median rank's its own time grew
    wait_ns: int  # how much the mean rank's waiting grew


def late_rank(ranks: Sequence[RankChange], classes: View) -> LateRank | None:
    """The rank that the others came to wait for, if there is one clearly.

    Clearly: its excess explains at least half of their waiting, and that is more than what
    rounding makes.
    """
    both = [rank for rank in ranks if rank.before is not None and rank.after is not None]
    if len(both) < 2:  # noqa: PLR2004  one rank waits for nobody that was recorded
        return None
    own_ns = [_own_ns(rank) for rank in both]
    waits_ns = [_wait_ns(rank) for rank in both]
    latest = max(range(len(both)), key=lambda index: own_ns[index])
    excess_ns = round(own_ns[latest] - median(own_ns))
    wait_ns = sum(row.difference_ns for row in classes.rows if row.label.startswith(WAITING))
    is_clear = (
        wait_ns > _floor_ns(classes) and 2 * excess_ns >= wait_ns and waits_ns[latest] < wait_ns
    )
    return LateRank(both[latest], excess_ns, wait_ns) if is_clear else None


def notes_of(before: Side, after: Side, names: View) -> Iterator[str]:
    """What does not match, and what the numbers do not tell."""
    if before.ranks != after.ranks:
        yield (
            f"{_ranks(before)} before and {_ranks(after)} after: times are means over each "
            "side's own ranks."
        )
    if before.layers != after.layers:
        yield f"{before.layers} layers were found before and {after.layers} after."
    if before.label != after.label:
        yield (
            f"before is {before.label}, after is {after.label}: what a replay gets wrong shows "
            "as a difference too."
        )
    compute = [row for row in names.rows if not _is_other(row.label)]
    for side, of_side in (("before", "before"), ("after", "after")):
        total_ns = sum(getattr(row, of_side).step_ns for row in compute)
        alike_ns = sum(
            getattr(row, of_side).step_ns for row in compute if not (row.is_new or row.is_gone)
        )
        if total_ns and alike_ns < _FEW_ALIKE * total_ns:
            yield (
                f"{100 * alike_ns / total_ns:.0f} % of the compute time {side} is in kernels of "
                "names that stand on both sides; the rest is new or gone, and compared by class."
            )


def unlike_batches(before: Side, after: Side, kind: BatchKind | None) -> Iterator[str]:
    """What steps of a serving engine are compared, and where their batches differ."""
    told = [[batch_of_mark(name) for name in side.step_names] for side in (before, after)]
    if not any(one is not None for side in told for one in side):
        return
    sides = (("before", before, told[0]), ("after", after, told[1]))
    kinds_of, sizes = [], []
    for word, side, marked in sides:
        used = [one for one, is_used in zip(marked, side.is_used, strict=True) if is_used]
        known = [one for one in used if one is not None]
        kinds = Counter(one.kind.value for one in known)
        others = Counter(one.kind.value for one in marked if one and one.kind is not kind)
        if kind is not None and others:
            left = ", ".join(f"{count} of {of}" for of, count in others.items())
            yield f"{word}, steps that {kind.words} are compared; {left} are left out."
        kinds_of.append(kinds)
        sizes.append(_sizes(known))
    if set(kinds_of[0]) != set(kinds_of[1]):
        words = [", ".join(f"{count} of {of}" for of, count in one.items()) for one in kinds_of]
        yield f"steps are not alike: {words[0] or 'none'} before, {words[1] or 'none'} after."
        return
    for of, first, second in zip(("requests", "tokens of prompts"), *sizes, strict=True):
        if abs(second - first) > _UNLIKE * max(first, second, 1.0):
            yield (
                f"batches are not alike: {number_text(first)} {of} a step before, "
                f"{number_text(second)} after."
            )


def _sizes(batches: Sequence[EngineBatch]) -> tuple[float, float]:
    """Requests and tokens of prompts of a step, means."""
    count = max(len(batches), 1)
    tokens = sum(one.prefill_tokens or 0 for one in batches)
    return sum(one.num_requests for one in batches) / count, tokens / count


def _floor_ns(classes: View) -> float:
    """Differences below this are not put into words."""
    step_ns = sum(row.before.step_ns for row in classes.rows)
    return max(_SMALLEST_OF_STEP * step_ns, 1)


def _own_ns(rank: RankChange) -> int:
    """How much a rank's time other than waiting grew."""
    if rank.before is None or rank.after is None:
        return 0
    before, after = rank.before, rank.after
    return (after.compute_ns + after.transfer_ns + after.idle_ns) - (
        before.compute_ns + before.transfer_ns + before.idle_ns
    )


def _wait_ns(rank: RankChange) -> int:
    """How much a rank's waiting grew."""
    if rank.before is None or rank.after is None:
        return 0
    return rank.after.wait_ns - rank.before.wait_ns


def _same_way(rows: Sequence[Contribution], whole: Contribution) -> list[Contribution]:
    """The rows that changed most in the direction of the whole."""
    sign = 1 if whole.difference_ns > 0 else -1
    chosen = [row for row in rows if sign * row.difference_ns > 0]
    chosen.sort(key=lambda row: (-abs(row.difference_ns), row.label))
    floor_ns = _SMALLEST * abs(whole.difference_ns)
    return [row for row in chosen[:_MAX_DETAILS] if abs(row.difference_ns) >= floor_ns]


def _why(row: Contribution) -> str:
    """The largest of a row's effects in words."""
    name = _short(row.label.split(SEPARATOR)[-1])
    total = _signed(row.difference_ns)
    if row.is_new:
        return f"{name} is new, {_calls(row.after.count)} per step, {total}"
    if row.is_gone:
        return f"{name} is gone, {_calls(row.before.count)} per step, {total}"
    effects = {
        "calls": row.count_effect_ns,
        "length": row.call_effect_ns,
        "overlap": row.overlap_effect_ns,
    }
    largest = max(effects, key=lambda effect: abs(effects[effect]))
    if largest == "calls":
        return f"{name} is called {row.before.count:.4g} -> {row.after.count:.4g} times, {total}"
    if largest == "length":
        if not row.before.busy_ns:
            return f"{name} took no time before, {total}"
        ratio = (row.after.busy_ns / row.after.count) / (row.before.busy_ns / row.before.count)
        return f"{name} takes {_ratio_text(ratio)} per call, {total}"
    more = "less" if effects["overlap"] > 0 else "more"
    return f"{more} of {name} is hidden behind other work, {total}"


def _is_other(label: str) -> bool:
    return label == IDLE or label.startswith((WAITING, TRANSFER))


def _ratio_text(ratio: float) -> str:
    if ratio >= _MANY_TIMES:
        return f"{ratio:.3g} times as long"
    return f"{abs(100 * (ratio - 1)):.3g} % {'longer' if ratio > 1 else 'less time'}"


def _short(name: str) -> str:
    return short_name(name, _MAX_NAME)


def _signed(difference_ns: int) -> str:
    return f"{'-' if difference_ns < 0 else '+'}{number_text(abs(difference_ns) / NS_PER_MS)} ms"


def _calls(count: float) -> str:
    return "1 call" if count == 1 else f"{count:.4g} calls"


def _ranks(side: Side) -> str:
    if len(side.ranks) == 1:
        return f"rank {side.ranks[0]}"
    is_row = side.ranks == tuple(range(side.ranks[0], side.ranks[-1] + 1))
    return (
        f"ranks {side.ranks[0]} to {side.ranks[-1]}"
        if is_row
        else f"{len(side.ranks)} ranks, {side.ranks[0]} to {side.ranks[-1]},"
    )
