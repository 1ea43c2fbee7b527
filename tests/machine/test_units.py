from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import MachineError
from foretrace.machine.figures import UNITS, QuantityKind, quantity


@pytest.mark.parametrize(
    ("written", "kind", "expected"),
    [
        ("80 GiB", QuantityKind.SIZE, 80 * 2**30),
        ("80 GB", QuantityKind.SIZE, 80e9),
        ("228KiB", QuantityKind.SIZE, 228 * 1024),
        ("3.35 TB/s", QuantityKind.BANDWIDTH, 3350.0),
        ("400 Gb/s", QuantityKind.BANDWIDTH, 50.0),
        ("1 GiB/s", QuantityKind.BANDWIDTH, 2**30 / 1e9),
        ("312 TFLOP/s", QuantityKind.OPERATIONS, 312_000.0),
        ("1 POP/s", QuantityKind.OPERATIONS, 1_000_000.0),
        ("1.2 us", QuantityKind.TIME, 1200.0),
        ("1410 MHz", QuantityKind.CLOCK, 1.41),
        ("14.3 kW", QuantityKind.POWER, 14_300.0),
        (108, QuantityKind.COUNT, 108),
        ("7:1", QuantityKind.RATIO, 7.0),
        (2.8, QuantityKind.RATIO, 2.8),
    ],
)
def test_a_quantity_has_the_unit_used_inside(
    written: str | float, kind: QuantityKind, expected: float
) -> None:
    found = quantity(written, kind)

    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.text == str(written)


@pytest.mark.parametrize(
    ("written", "kind", "said"),
    [
        ("400 Gbps", QuantityKind.BANDWIDTH, "did you mean 'Gb/s'"),
        ("400 GBps", QuantityKind.BANDWIDTH, "did you mean 'GB/s'"),
        ("400 gb/s", QuantityKind.BANDWIDTH, "did you mean 'GB/s' or 'Gb/s'"),
        ("400 W", QuantityKind.BANDWIDTH, "where a bandwidth has one of kB/s, MB/s"),
        ("312 TFLOPS", QuantityKind.OPERATIONS, "did you mean 'TFLOP/s'"),
        ("80 Gb", QuantityKind.SIZE, "did you mean 'GB'"),
        ("1,410 MHz", QuantityKind.CLOCK, "no thousands separator"),
        ("fast", QuantityKind.CLOCK, "not a number with a unit"),
        (80, QuantityKind.SIZE, "has no unit"),
        ("12", QuantityKind.TIME, 'as in "1.2 us"'),
        ("-1 us", QuantityKind.TIME, "not a number with a unit"),
        ("108", QuantityKind.COUNT, "without quotes"),
        (1.5, QuantityKind.COUNT, "not a count"),
        (0, QuantityKind.COUNT, "above 0"),
        ("0 GB/s", QuantityKind.BANDWIDTH, "leave it out instead"),
        ("9" * 400 + " GB", QuantityKind.SIZE, "leave it out instead"),
        (0, QuantityKind.RATIO, "not a ratio"),
        (True, QuantityKind.COUNT, "not a count"),
        ("7 to 1", QuantityKind.RATIO, "not a ratio"),
        ("7:0", QuantityKind.RATIO, "not a ratio"),
        (float("nan"), QuantityKind.RATIO, "not a ratio"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(
    written: str | float, kind: QuantityKind, said: str
) -> None:
    with pytest.raises(MachineError, match="(?s).*" + said):
        quantity(written, kind)


@given(number=st.integers(1, 10**6), data=st.data())
def test_a_bit_is_an_eighth_of_a_byte(number: int, data: st.DataObject) -> None:
    prefix = data.draw(st.sampled_from("kMGTP"))

    in_bits = quantity(f"{number} {prefix}b/s", QuantityKind.BANDWIDTH).value
    in_bytes = quantity(f"{number} {prefix}B/s", QuantityKind.BANDWIDTH).value

    assert 8 * in_bits == pytest.approx(in_bytes)


@pytest.mark.parametrize("kind", sorted(UNITS))
def test_units_of_a_kind_differ_in_value_or_are_bits_operations_and_bytes(
    kind: QuantityKind,
) -> None:
    # FLOP/s and OP/s are the same thing under two names; nothing else is.
    values = [value for unit, value in UNITS[kind].items() if not unit.endswith("LOP/s")]

    assert len(set(values)) == len(values)
