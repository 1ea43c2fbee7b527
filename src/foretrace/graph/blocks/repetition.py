"""Repeating units in a sequence of tokens: layers, where nothing names them.

The unit is taken from the longest stretch that repeats itself exactly; then the whole sequence is
aligned to that unit repeated, with tokens that may be extra, missing or different, so that first
and last layers, or every third, may differ a little. What is left before and after is searched
again: an encoder and a decoder repeat different units.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, used_positions
from foretrace.graph._compiled import cyclic_scores, repeat_covers

# A token that matches outweighs one that is extra, missing or different: the alignment goes on
# through a layer that has half of its tokens in common with the others.
MATCH, MISMATCH, GAP = 1, 1, 1
MAX_PERIOD = 2_000  # tokens; the largest layers seen launch a few hundred operators
MIN_MATCHED = 0.65  # of a unit's tokens must be found, or it is no unit
MIN_MATCHED_ATTENDING = 0.5  # the same where units hold an attention, and it is there
MIN_UNITS = 2
MIN_SHARE = 0.1  # of all time, in the units of one kind, or they are a detail
_MAX_CELLS = 50_000_000  # of an alignment, one byte each
_MAX_FAMILIES = 4
_MAX_CANDIDATES = 6  # templates that are tried
_MIN_OF_HEAVIEST = 0.5  # of the time that the heaviest candidate holds; lighter ones lose
NORMALISATION = re.compile(r"(?<!batch_)(?<!batch)norm", re.IGNORECASE)
_ACTIVATION = re.compile(r"relu|clamp_min", re.IGNORECASE)
_SUM = re.compile(r"::add_?$")
ATTENTION = re.compile(r"attention|attn|softmax", re.IGNORECASE)
_SPLITS = (2, 3, 4)  # kinds of layers that alternate
_SHARED = 0.5  # of the shorter of two alternating layers is common to both, at their begin


@dataclass(frozen=True)
class RepeatedUnit:
    """One repetition: its tokens are `first..last`, both inside."""

    first: int
    last: int
    family: int  # units of one family repeat the same template


def repeating_units(
    tokens: Int32s, weight: Int64s, names: Sequence[str]
) -> tuple[RepeatedUnit, ...]:
    """The units that a sequence of tokens is made of, in order; empty where nothing repeats.

    Args:
        tokens: int32[tokens], equal where the same kind of work is done.
        weight: int64[tokens], time of each: what repeats must matter.
        names: what each token is called, by its number.
    """
    found: list[tuple[int, int, int]] = []
    open_stretches = [(0, len(tokens))]
    least = MIN_SHARE * max(int(weight.sum()), 1)
    family = 0
    while open_stretches and family < _MAX_FAMILIES:
        low, high = open_stretches.pop(0)
        units = _one_family(tokens[low:high], weight[low:high], names)
        held = sum(int(weight[low + first : low + last + 1].sum()) for first, last in units)
        # Beside layers, one operator that is called twice is a coincidence.
        is_single = family > 0 and all(first == last for first, last in units)
        if not units or held < least or is_single:
            continue
        found += [(low + first, low + last, family) for first, last in units]
        family += 1
        open_stretches += [(low, low + units[0][0]), (low + units[-1][1] + 1, high)]
    return tuple(RepeatedUnit(*one) for one in sorted(found))


def _one_family(tokens: Int32s, weight: Int64s, names: Sequence[str]) -> list[tuple[int, int]]:
    """The units of the template that explains most: tokens aligned, less the template itself."""
    best_score, best_units = 0, []
    most_held = 0
    for template in _templates(tokens, weight, names):
        if len(tokens) * len(template) > _MAX_CELLS:
            continue
        units, score = _aligned(tokens, template, names)
        parts = _alternating(template, names)
        if parts:
            units = _split(tokens, units, parts, template)
        held = sum(int(weight[first : last + 1].sum()) for first, last in units)
        is_light = _MIN_OF_HEAVIEST * most_held > held
        is_heavier = _MIN_OF_HEAVIEST * held > most_held
        most_held = max(most_held, held)
        better = score - len(template) > best_score or is_heavier
        if len(units) >= MIN_UNITS and better and not is_light:
            best_score, best_units = score - len(template), units
    return best_units


def _templates(tokens: Int32s, weight: Int64s, names: Sequence[str]) -> list[Int32s]:
    """Candidates for the unit: those whose exact repetition saves most time from being told."""
    max_period = min(len(tokens) // MIN_UNITS, MAX_PERIOD)
    if max_period < 1:
        return []
    covered, begin, length = np.zeros((3, max_period + 1), np.int64)
    before = np.append(np.int64(0), np.cumsum(weight))
    repeat_covers(np.ascontiguousarray(tokens), before, covered, begin, length)
    period = np.arange(max_period + 1)
    saved = np.where(covered > 0, covered * (1.0 - period / np.maximum(length, 1)), 0.0)
    chosen: list[int] = []
    for best in np.argsort(-saved, kind="stable").tolist():
        if saved[best] <= 0 or len(chosen) == _MAX_CANDIDATES:
            break
        if all(best % one for one in chosen):
            chosen.append(best)
    return [
        _template(tokens, int(begin[one]), one, int(length[one]) % one, names) for one in chosen
    ]


def _template(tokens: Int32s, first: int, period: int, spare: int, names: Sequence[str]) -> Int32s:
    """One unit of a run that is `spare` tokens longer than whole units.

    Such a unit may begin at several places: at the first normalisation if there is one, since
    layers mostly begin with it; after a sum that is activated, since residual blocks end with
    one; else at once.
    """
    called = [names[token] for token in tokens[first : first + period + spare].tolist()]
    normalised = [at for at in range(spare + 1) if NORMALISATION.search(called[at])]
    after_sum = [
        at
        for at in range(2, period)
        if _ACTIVATION.search(called[at - 1]) and _SUM.search(called[at - 2])
    ]
    first += normalised[0] if normalised else after_sum[0] if after_sum else 0
    return np.ascontiguousarray(tokens[first : first + period])


def _aligned(
    tokens: Int32s, template: Int32s, names: Sequence[str]
) -> tuple[list[tuple[int, int]], int]:
    """First and last token of each repetition along the best alignment, and its score."""
    move = np.zeros(len(tokens) * len(template), np.uint8)
    best = np.zeros(2, np.int64)
    cyclic_scores(np.ascontiguousarray(tokens), template, MATCH, MISMATCH, GAP, move, best)
    if best[1] < 0:
        return [], 0
    attends = np.zeros(len(names), np.bool_)
    for token in used_positions(tokens, len(names)).tolist():
        attends[token] = ATTENTION.search(names[token]) is not None
    has_attention = bool(attends[template].any())
    least = (MIN_MATCHED_ATTENDING if has_attention else MIN_MATCHED) * len(template)
    units = [
        (first, last)
        for first, last, matched in _laps(move, tokens, template, int(best[1]))
        if matched >= least and (not has_attention or attends[tokens[first : last + 1]].any())
    ]
    return units, int(best[0])


def _laps(move: UInt8s, tokens: Int32s, template: Int32s, cell: int) -> list[tuple[int, int, int]]:
    """The alignment followed back from its end, cut where the template begins anew.

    Returns:
        First and last token of every lap, and how many of its tokens match.
    """
    size = len(template)
    row, position = divmod(cell, size)
    laps: list[tuple[int, int, int]] = []  # first, last, matched
    last, first, matched = row, row, 0
    steps = 0
    while row >= 0 and steps <= 3 * len(move):
        steps += 1
        how = int(move[row * size + position])
        if how in (1, 2):
            first = row
            matched += how == 1 and tokens[row] == template[position]
        if how == 0:
            break
        if how in (1, 3) and position == 0:
            before = row - 1 if how == 1 else row
            laps.append((first, last, matched))
            first, last, matched = before + 1, before, 0
        if how in (1, 3):
            position = (position - 1) % size
        if how in (1, 2):
            row -= 1
    if matched:
        laps.append((first, last, matched))
    laps.reverse()
    return [lap for lap in laps if lap[0] <= lap[1]]


def _alternating(template: Int32s, names: Sequence[str]) -> tuple[int, ...]:
    """Where a template's own layers begin if it holds several of alternating kinds; else empty.

    Dense and mixture-of-experts layers that take turns begin alike (the same attention) and go
    on differently. A decoder layer with two attentions is no such template: nothing of its own
    follows the first before the second begins.
    """
    listed = template.tolist()
    size = len(listed)
    for count in _SPLITS:
        begins = _begins_alike(listed, count)
        if begins:
            ends = (*begins[1:], size)
            shortest = min(end - begin for begin, end in zip(begins, ends, strict=True))
            shared = _shared(listed, begins, ends)
            attends = any(ATTENTION.search(names[token]) for token in listed[:shared])
            if attends and _SHARED * shortest <= shared < shortest:
                return begins
    return ()


def _begins_alike(tokens: list[int], count: int) -> tuple[int, ...]:
    """`count` places, 0 first, at which the longest common stretches begin; else empty."""
    size = len(tokens)
    if size < 4 * count:
        return ()
    scored = []
    for place in range(2, size - 1):
        length = 0
        while place + length < size and length < place and tokens[length] == tokens[place + length]:
            length += 1
        scored.append((length, -place))
    scored.sort(reverse=True)
    chosen = sorted(-place for length, place in scored[: count - 1] if length > 1)
    return (0, *chosen) if len(chosen) == count - 1 else ()


def _shared(tokens: list[int], begins: tuple[int, ...], ends: tuple[int, ...]) -> int:
    """Tokens that all parts have in common at their begin."""
    shared = 0
    shortest = min(end - begin for begin, end in zip(begins, ends, strict=True))
    while shared < shortest and len({tokens[begin + shared] for begin in begins}) == 1:
        shared += 1
    return shared


def _split(
    tokens: Int32s, units: list[tuple[int, int]], parts: tuple[int, ...], template: Int32s
) -> list[tuple[int, int]]:
    """Units cut where the template's own layers begin, by the tokens they begin with."""
    found: list[tuple[int, int]] = []
    head = template[: max(2, parts[1] // 4)].tolist()
    listed = tokens.tolist()
    for first, last in units:
        begins = [first]
        for begin in parts[1:]:
            near = range(max(first + begin - 3, begins[-1] + 1), min(first + begin + 4, last))
            exact = [at for at in near if listed[at : at + len(head)] == head]
            if exact:
                begins.append(min(exact, key=lambda at: abs(at - first - begin)))
        ends = [*(begin - 1 for begin in begins[1:]), last]
        found += list(zip(begins, ends, strict=True))
    return found
