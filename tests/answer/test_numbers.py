from __future__ import annotations

import pytest

from foretrace.answer import (
    bytes_text,
    count_text,
    duration_text,
    long_duration_text,
    milliseconds_text,
    percent_text,
    signed_percent_text,
)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (85, "85 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (12_400, "12.40 us"),
        (615_140_000, "615.1 ms"),
        (1_300_000_000, "1.30 s"),
        (-3_500, "-3.50 us"),
    ],
)
def test_a_duration_takes_the_unit_that_suits(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (615_137_000, "615.14"),
        (4_072_400, "4.072"),
        (1_234_567_890, "1,234.57"),
        (-12_345_678, "-12.35"),
        (0, "0.000"),
    ],
)
def test_milliseconds_keep_what_a_column_needs(duration_ns: int, text: str) -> None:
    assert milliseconds_text(duration_ns) == text


@pytest.mark.parametrize(
    ("percent", "plain", "signed"),
    [
        (0.0, "0.000 %", "0.000 %"),
        (0.0123, "0.012 %", "+0.012 %"),
        (-0.0123, "-0.012 %", "-0.012 %"),
        (0.0003, "0.0003 %", "+0.0003 %"),
        (-0.00001, "-0.0000 %", "0.0000 %"),
        (3.456, "3.46 %", "+3.46 %"),
        (21.04, "21.0 %", "+21.0 %"),
        (-1234.5, "-1,234 %", "-1,234 %"),
    ],
)
def test_percent_keeps_three_digits(percent: float, plain: str, signed: str) -> None:
    assert percent_text(percent) == plain
    assert signed_percent_text(percent) == signed


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (-1, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (67_108_864, "64.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_sizes_are_binary(num_bytes: int, text: str) -> None:
    assert bytes_text(num_bytes) == text


def test_counts_agree_with_their_noun() -> None:
    assert count_text(1, "rank") == "1 rank"
    assert count_text(8, "rank") == "8 ranks"
    assert count_text(16_384, "rank") == "16,384 ranks"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0 s"), (5e9, "5.00 s"), (119e9, "119 s"), (150e9, "2.50 min"), (8.64e13, "24.0 h"),
     (1e18, "11,574 d"), (float("inf"), "never")],
)  # fmt: skip
def test_long_times_are_shown_in_the_unit_that_suits(duration_ns: float, text: str) -> None:
    assert long_duration_text(duration_ns) == text
