from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.machine import (
    check,
    chip_names,
    described,
    host_names,
    load_chip,
    load_host,
    load_machine,
    machine_names,
)
from tests.pages import check_made, table

PAGE = Path(__file__).parents[2] / "docs" / "machines.md"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def chips() -> str:
    rows = []
    for name in chip_names():
        chip = load_chip(name)
        peaks = [chip.peak_flops_per_ns(dtype) for dtype in ("bf16", "fp16", "fp8")]
        rows.append(
            [
                f"`{name}`",
                f"{chip.memory_bytes / 2**30:.0f}",
                number(chip.memory_bytes_per_ns),
                number((chip.peak_flops_per_ns("fp32", on_matrix_units=False) or 0) / 1e3),
                *(number(peak and peak / 1e3) for peak in peaks),
                number(chip.link_bytes_per_ns),
                number(chip.power_watts),
            ]
        )
    heads = ["chip", "GiB", "GB/s", "fp32", "bf16", "fp16", "fp8 TFLOP/s", "links GB/s", "W"]
    return table(heads, rows)


def hosts() -> str:
    rows = []
    for name in host_names():
        host = load_host(name)
        rows.append(
            [
                f"`{name}`",
                f"{host.num_chips} x `{host.chip.name}`",
                host.topology,
                number(host.scale_up_bytes_per_ns),
                number(host.network_bytes_per_ns),
                host.network,
            ]
        )
    heads = ["host", "chips", "topology", "scale-up GB/s", "network GB/s", "network"]
    return table(heads, rows)


def machines() -> str:
    rows = []
    for name in machine_names():
        machine = load_machine(name)
        tiers = [
            f"{tier.name}: {tier.num_ranks} at {number(tier.shared_bytes_per_ns)} GB/s"
            + ("" if tier.latency_ns is None else f", {number(tier.latency_ns / 1e3)} us")
            for tier in machine.tiers
        ]
        rows.append([f"`{name}`", f"`{machine.host.name}`", "; ".join(tiers)])
    return table(["machine", "host", "tiers, each chip's share while all send"], rows)


def assumed() -> str:
    keys: dict[tuple[str, str], list[str]] = {}
    for name in (*chip_names(), *host_names(), *machine_names()):
        for figure in described(name).figures:
            if figure.assumed:
                keys.setdefault((name, figure.assumed), []).append(figure.key)
    rows = [[f"`{name}`", ", ".join(group), why] for (name, why), group in keys.items()]
    return table(["preset", "numbers", "why"], rows)


@pytest.mark.parametrize("build", [chips, hosts, machines, assumed])
def test_the_tables_of_the_page_are_the_presets(
    request: pytest.FixtureRequest, build: Callable[[], str]
) -> None:
    check_made(PAGE, build, request)


def test_the_files_of_the_page_are_right(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2

    for example in examples:
        path = tmp_path / f"{tomllib.loads(example)['kind']}.toml"
        path.write_text(example)
        severities = {remark.severity.value for remark in check(described(path)).remarks}
        assert "implausible" not in severities
