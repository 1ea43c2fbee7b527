from __future__ import annotations

import pytest

from foretrace.machine import (
    Chip,
    Host,
    Machine,
    Severity,
    check,
    chip_named,
    chip_names,
    described,
    host_names,
    load_chip,
    load_host,
    load_machine,
    machine_names,
)

CHIPS = chip_names()
ALL = (*CHIPS, *host_names(), *machine_names())
MATRIX_CLOCK = {"tf32", "fp16", "bf16", "fp8", "fp4", "int8"}


def test_names_are_many_and_none_is_used_twice() -> None:
    assert len(ALL) > 50
    assert len(set(ALL)) == len(ALL)


@pytest.mark.parametrize("name", ALL)
def test_every_number_of_a_preset_has_a_source_or_says_why_it_is_assumed(name: str) -> None:
    found = described(name)

    assert found.title
    for figure in found.figures:
        assert figure.source is not None or figure.assumed, figure.key
        if figure.source is not None:
            assert figure.source.title, figure.key
            assert figure.source.url.startswith("https://"), figure.key


@pytest.mark.parametrize("name", ALL)
def test_no_number_of_a_preset_is_implausible(name: str) -> None:
    found = described(name)

    remarks = [each for each in check(found).remarks if each.severity is not Severity.MISSING]

    assert remarks == []


@pytest.mark.parametrize("name", CHIPS)
def test_a_peak_is_processors_times_clock_times_operations(name: str) -> None:
    chip = load_chip(name)

    for dtype, per_clock in chip.per_clock_by_dtype.items():
        clock = chip.matrix_cycles_per_ns if dtype in MATRIX_CLOCK else chip.cycles_per_ns
        assert chip.num_processors is not None
        assert clock is not None
        product = chip.num_processors * clock * per_clock
        assert product == pytest.approx(chip.peak_by_dtype[dtype], rel=0.03), dtype


def test_most_chips_state_operations_per_clock() -> None:
    with_them = [name for name in CHIPS if load_chip(name).per_clock_by_dtype]

    assert len(with_them) > len(CHIPS) / 2


@pytest.mark.parametrize(
    ("dtype", "flops_per_ns"),
    [
        ("bf16", 989_400.0),
        ("c10::BFloat16", 989_400.0),
        ("torch.float16", 989_400.0),
        ("c10::Half", 989_400.0),
        ("float", 66_900.0),
        ("double", 66_900.0),
        ("tf32", 494_700.0),
        ("float8_e4m3fn", 1_978_900.0),
        ("signed char", 1_978_900.0),
    ],
)
def test_a_peak_is_found_by_any_name_of_the_format(dtype: str, flops_per_ns: float) -> None:
    chip = load_chip("h100-sxm")

    assert chip.peak_flops_per_ns(dtype) == pytest.approx(flops_per_ns)


def test_vector_units_run_narrow_formats_at_the_peak_of_fp32() -> None:
    chip = load_chip("h100-sxm")

    assert chip.peak_flops_per_ns("bf16", on_matrix_units=False) == pytest.approx(66_900.0)
    assert chip.peak_flops_per_ns("fp64", on_matrix_units=False) == pytest.approx(33_500.0)


def test_a_format_that_a_chip_lacks_has_no_peak() -> None:
    assert load_chip("v100-sxm2-32gb").peak_flops_per_ns("bf16") is None


@pytest.mark.parametrize(
    ("called", "memory_bytes", "num_processors", "expected"),
    [  # as devices reported themselves to the profiler
        ("NVIDIA A100-PG509-200", 42_505_273_344, 108, "a100-sxm-40gb"),
        ("NVIDIA A100-PG509-200", 42_297_524_224, 108, "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", 85_174_583_296, 108, "a100-sxm-80gb"),
        ("Tesla V100-SXM2-32GB", 34_079_637_504, 80, "v100-sxm2-32gb"),
        ("Tesla V100-DGXS-32GB", 34_087_305_216, 80, "v100-sxm2-32gb"),
        ("NVIDIA GeForce RTX 2080 Ti", 11_554_586_624, 68, "rtx-2080-ti"),
        ("NVIDIA H100 80GB HBM3", 85_018_279_936, 132, "h100-sxm"),
        ("AMD Instinct MI300X VF", 205_571_227_648, 304, "mi300x"),
        ("AMD Radeon Graphics", 68_702_699_520, 104, "mi250-die"),
    ],
)
def test_a_device_is_known_by_what_it_reports(
    called: str, memory_bytes: int, num_processors: int, expected: str
) -> None:
    chip = chip_named(called, memory_bytes=memory_bytes, num_processors=num_processors)

    assert chip is not None
    assert chip.name == expected
    # A device never reports more than it has.
    assert memory_bytes <= chip.memory_bytes < 1.03 * memory_bytes


@pytest.mark.parametrize(
    ("called", "memory_bytes", "num_processors"),
    [
        ("AMD Radeon Graphics", None, None),  # two chips call themselves so
        ("NVIDIA PG509-210", None, None),  # with 40 or 80 GB
        ("NVIDIA A100-SXM4-80GB", 42_505_273_344, None),  # not with this memory
        ("NVIDIA A100-SXM4-80GB", None, 42),  # a slice of one
        ("ARTEMIS", None, None),
        ("", None, None),
    ],
)
def test_a_device_that_could_be_several_or_a_slice_is_none(
    called: str, memory_bytes: int | None, num_processors: int | None
) -> None:
    assert chip_named(called, memory_bytes=memory_bytes, num_processors=num_processors) is None


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_is_known_by_its_own_name(name: str) -> None:
    chip = chip_named(name.upper())

    assert chip is not None
    assert chip.name == name


@pytest.mark.parametrize("name", CHIPS)
def test_a_device_name_means_one_chip_once_memory_and_processors_are_known(name: str) -> None:
    chip = load_chip(name)

    for called in chip.device_names:
        found = chip_named(
            called, memory_bytes=chip.memory_bytes, num_processors=chip.num_processors
        )
        assert found is not None, called
        assert found.name == name, called


def test_llama_3_trained_on_24_thousand_gpus_with_a_seventh_between_pods() -> None:
    machine = load_machine("llama3-24k")

    assert machine.chip.name == "h100-sxm"
    assert machine.num_ranks == 24_576
    assert [tier.num_ranks for tier in machine.tiers] == [8, 16, 3072, 24_576]
    assert machine.group_bytes_per_ns(range(8)) == pytest.approx(450.0)
    assert machine.group_bytes_per_ns(range(0, 3072, 8)) == pytest.approx(50.0)
    assert machine.group_bytes_per_ns([0, 3072]) == pytest.approx(50.0 / 7)


def test_a_host_is_a_machine_of_its_own() -> None:
    machine = load_machine("perlmutter")

    assert machine.num_ranks == 4
    assert machine.group_bytes_per_ns([0, 3]) == pytest.approx(300.0)
    assert machine.host.network_bytes_per_ns == pytest.approx(25.0)


def test_what_a_name_describes_is_told_by_the_name_alone() -> None:
    assert isinstance(described("h200-sxm"), Chip)
    assert isinstance(described("dgx-h200"), Host)
    assert isinstance(described("multi-building-122k"), Machine)
    assert load_host("dgx-h200").chip == described("h200-sxm")


@pytest.mark.parametrize("name", ALL)
def test_everything_becomes_plain_json(name: str) -> None:
    found = described(name).as_json()

    assert found["name"] == name
    assert found["figures"]
