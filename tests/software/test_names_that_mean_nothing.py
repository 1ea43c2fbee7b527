"""What software of a name that nobody described has, beside what is stated by no name at all."""

from __future__ import annotations

from foretrace.software import kernel_factors, software_called, unstated_software

_PRODUCTS = "gemm library bf16"


def test_a_name_that_means_nothing_is_slower_than_the_mean_where_such_runs_taught() -> None:
    named, unstated = software_called("wonder-9"), unstated_software()

    slower = kernel_factors(named, "Ampere")[_PRODUCTS]
    mean = kernel_factors(unstated, "Ampere")[_PRODUCTS]

    assert 1.15 < slower / mean < 1.25  # 1.27 to 1.33 of three sources, 1.08 over libraries


def test_each_source_of_such_runs_is_predicted_by_the_others() -> None:
    named = software_called("wonder-9")

    taught = [
        kernel_factors(named, "Ampere", without=(source,))[_PRODUCTS]
        for source in ("aleph-alpha", "flagperf-paddle", "internevo")
    ]

    assert max(taught) - min(taught) < 0.04
    assert len(set(taught)) == 3


def test_where_no_such_run_is_known_a_name_is_as_none() -> None:
    named, unstated = software_called("wonder-9"), unstated_software()

    assert kernel_factors(named, "Hopper") == kernel_factors(unstated, "Hopper")
