# ruff: noqa: PLR1714  numba compiles plain comparisons best
"""Compiled functions over the text of JSON: where values end, numbers, and strings' contents.

What is not JSON by the letter but has one meaning is read: bare NaN and Infinity, control
characters inside strings, missing values.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from foretrace.base import UInt8s, njit

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
MORE = -1  # instead of a position: the buffer ends here
BAD = -2  # instead of a position: this is not JSON
ABSENT = -1
HALF_OF_TEN_TO_19 = 5 * 10**18

# Nothing here allocates, so arrays need no reference counts: without them 1.8 times faster.
compiled = njit(_nrt=False)


@compiled
def string_end(buffer: UInt8s, i: int, n: int) -> Scalar:
    """Position of the quote that closes the string whose text begins at `i`, or MORE."""
    while True:
        c = buffer[i]
        if c == 34:
            return i if i < n else MORE
        if c == 92:
            i += 2
        elif c == 0 and i >= n:
            return MORE
        else:
            i += 1


@compiled
def value_end(buffer: UInt8s, i: int, n: int) -> Scalar:
    """Position after the value that begins at `i`, of any kind, or MORE."""
    c = buffer[i]
    if c == 34:
        i = string_end(buffer, i + 1, n)
        return i + 1 if i >= 0 else MORE
    if c == 123 or c == 91:
        depth = 0
        while True:
            c = buffer[i]
            if c == 34:
                i = string_end(buffer, i + 1, n)
                if i < 0:
                    return MORE
                i += 1
            elif c == 123 or c == 91:
                depth += 1
                i += 1
            elif c == 125 or c == 93:
                depth -= 1
                i += 1
                if depth == 0:
                    return i
            elif c == 0 and i >= n:
                return MORE
            else:
                i += 1
    while True:
        c = buffer[i]
        if c == 44 or c == 125 or c == 93 or c == 32 or c == 10 or c == 13 or c == 9:
            return i
        if c == 0 and i >= n:
            return MORE
        i += 1


@compiled
def number_at(
    buffer: UInt8s, i: int, n: int, scale: int, limit: int
) -> tuple[Scalar, Scalar, Scalar]:
    """The number at `i` times ten to `scale`, rounded, halves up.

    Returns (whether it is one within the limit, its value, position after it or MORE).
    Digits are kept as an integer, so nothing is lost on the way through a float.
    """
    begin = i
    if buffer[i] == 34:
        i += 1
    is_negative = buffer[i] == 45
    if is_negative:
        i += 1
    mantissa = np.int64(0)
    num_digits = 0
    shift = np.int64(scale)
    first_lost = np.int64(0)
    num_lost = 0
    is_more_lost = False
    is_fraction = False
    is_too_large = False
    while True:
        c = buffer[i]
        if c >= 48 and c <= 57:
            num_digits += 1
            digit = np.int64(c) - 48
            if num_lost == 0 and mantissa <= 922337203685477579:
                mantissa = mantissa * 10 + digit
                if is_fraction:
                    shift -= 1
            elif not is_fraction:
                is_too_large = True
            elif num_lost == 0:
                first_lost = digit
                num_lost = 1
            elif digit != 0:
                is_more_lost = True
        elif c == 46 and not is_fraction:
            is_fraction = True
        else:
            break
        i += 1
    if num_digits > 0 and (buffer[i] == 101 or buffer[i] == 69):
        i += 1
        is_negative_exponent = buffer[i] == 45
        if buffer[i] == 45 or buffer[i] == 43:
            i += 1
        exponent = np.int64(0)
        num_digits = 0
        while buffer[i] >= 48 and buffer[i] <= 57:
            num_digits += 1
            if exponent < 10000:
                exponent = exponent * 10 + (np.int64(buffer[i]) - 48)
            i += 1
        shift = shift - exponent if is_negative_exponent else shift + exponent
    c = buffer[i]
    if buffer[begin] == 34:
        if c == 34 and i < n:
            i += 1
        else:
            num_digits = 0
    elif c == 0 and i >= n:
        return False, np.int64(0), np.int64(MORE)
    elif not (c == 44 or c == 125 or c == 93 or c == 32 or c == 10 or c == 13 or c == 9):
        num_digits = 0
    if num_digits == 0:
        return False, np.int64(0), np.int64(value_end(buffer, begin, n))
    if is_too_large:
        return False, np.int64(0), np.int64(i)
    while shift > 0 and mantissa != 0:
        if mantissa >= limit // 10:
            return False, np.int64(0), np.int64(i)
        mantissa *= 10
        shift -= 1
    is_half = first_lost == 5 and not is_more_lost
    is_above_half = first_lost > 5 or (first_lost == 5 and is_more_lost)
    if shift < 0:
        has_tail = first_lost > 0 or is_more_lost
        if shift < -18:
            # Ten to the 19th is more than an int64 holds; its half is not.
            is_near_half = shift == -19
            is_half = is_near_half and mantissa == HALF_OF_TEN_TO_19 and not has_tail
            is_above_half = is_near_half and (
                mantissa > HALF_OF_TEN_TO_19 or (mantissa == HALF_OF_TEN_TO_19 and has_tail)
            )
            mantissa = np.int64(0)
        else:
            power = np.int64(1)
            while shift < 0:
                power *= 10
                shift += 1
            rest = mantissa % power
            mantissa = mantissa // power
            is_half = rest * 2 == power and not has_tail
            is_above_half = rest * 2 > power or (rest * 2 == power and has_tail)
    if is_above_half or (is_half and not is_negative):
        mantissa += 1
    if mantissa >= limit:
        return False, np.int64(0), np.int64(i)
    return True, -mantissa if is_negative else mantissa, np.int64(i)


@compiled
def hex_at(buffer: UInt8s, i: int) -> Scalar:
    """The four hexadecimal digits at `i`; ABSENT if they are none."""
    value = np.int64(0)
    for k in range(4):
        c = np.int64(buffer[i + k])
        if c >= 48 and c <= 57:
            value = value * 16 + c - 48
        elif c >= 97 and c <= 102:
            value = value * 16 + c - 87
        elif c >= 65 and c <= 70:
            value = value * 16 + c - 55
        else:
            return np.int64(ABSENT)
    return value


@compiled
def unescape(buffer: UInt8s, begin: int, end: int, text: UInt8s, at: int) -> Scalar:
    """Write a string's content as UTF-8 from `at` on; where it ends. out: text.

    A surrogate without its other half becomes U+FFFD; a backslash before a character that
    needs none is left out.
    """
    i = begin
    while i < end:
        c = buffer[i]
        if c != 92 or i + 1 >= end:
            text[at] = c
            at += 1
            i += 1
            continue
        c = buffer[i + 1]
        i += 2
        if c == 117 and i + 4 <= end:
            code = hex_at(buffer, i)
            if code < 0:
                text[at] = c
                at += 1
                continue
            i += 4
            if code >= 0xD800 and code < 0xDC00:
                low = np.int64(ABSENT)
                if i + 6 <= end and buffer[i] == 92 and buffer[i + 1] == 117:
                    low = hex_at(buffer, i + 2)
                if low >= 0xDC00 and low < 0xE000:
                    code = 0x10000 + (code - 0xD800) * 1024 + (low - 0xDC00)
                    i += 6
                else:
                    code = np.int64(0xFFFD)
            elif code >= 0xDC00 and code < 0xE000:
                code = np.int64(0xFFFD)
            if code < 0x80:
                text[at] = code
                at += 1
            elif code < 0x800:
                text[at] = 0xC0 | (code >> 6)
                text[at + 1] = 0x80 | (code & 63)
                at += 2
            elif code < 0x10000:
                text[at] = 0xE0 | (code >> 12)
                text[at + 1] = 0x80 | ((code >> 6) & 63)
                text[at + 2] = 0x80 | (code & 63)
                at += 3
            else:
                text[at] = 0xF0 | (code >> 18)
                text[at + 1] = 0x80 | ((code >> 12) & 63)
                text[at + 2] = 0x80 | ((code >> 6) & 63)
                text[at + 3] = 0x80 | (code & 63)
                at += 4
            continue
        if c == 110:
            text[at] = 10
        elif c == 116:
            text[at] = 9
        elif c == 114:
            text[at] = 13
        elif c == 98:
            text[at] = 8
        elif c == 102:
            text[at] = 12
        else:
            text[at] = c
        at += 1
    return at


@compiled
def compact(buffer: UInt8s, begin: int, end: int, text: UInt8s, at: int) -> Scalar:
    """Write a value as it stands, without the blanks between its parts; its end. out: text."""
    is_inside_string = False
    i = begin
    while i < end:
        c = buffer[i]
        if is_inside_string:
            text[at] = c
            at += 1
            if c == 92:
                i += 1
                text[at] = buffer[i]
                at += 1
            elif c == 34:
                is_inside_string = False
        elif not (c == 32 or c == 10 or c == 13 or c == 9):
            text[at] = c
            at += 1
            if c == 34:
                is_inside_string = True
        i += 1
    return at


@compiled
def is_text(buffer: UInt8s, begin: int, end: int, text: UInt8s) -> Scalar:
    """Whether these bytes are `text`."""
    if end - begin != len(text):
        return False
    for k in range(len(text)):
        if buffer[begin + k] != text[k]:
            return False
    return True
