"""The presets against measurements and device reports that others published."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import polars as pl

from foretrace.machine import chip_named, load_chip, load_host, load_machine

CHIP_BY_GPU = {
    "a100_sxm": "a100-sxm-80gb",
    "b200_sxm": "b200-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "A100": "a100-sxm-80gb",
    "A100-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "GH200": "gh200-96gb",
    "H100": "h100-sxm",
    "MI250X": "mi250x-die",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA L4": "l4",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "V100": "v100-sxm2-32gb",
}
BYTES_BY_DTYPE = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
HOST_BY_SYSTEM = {
    "a100_sxm-nvswitch": "dgx-a100",
    "h100_sxm-nvswitch": "dgx-h100",
    "h200_sxm-nvswitch": "dgx-h200",
    "b200_sxm-nvswitch": "dgx-b200",
    "gb200-nvswitch": "gb200-nvl72",
    "perlmutter-node": "perlmutter",
    "vidur-a100_dgx": "dgx-a100",
    "vidur-h100_dgx": "dgx-h100",
}


def products(data_dir: Path) -> pl.DataFrame:
    """The best achieved operations per ns of each GPU, format and file."""
    frames = [
        pl.read_parquet(path).filter(pl.col("time_ns") > 0, pl.col("dtype").is_in(BYTES_BY_DTYPE))
        for path in sorted((data_dir / "measured").glob("gemm-*.parquet"))
    ]
    batch = [
        frame.get_column("batch").fill_null(1) if "batch" in frame.columns else 1
        for frame in frames
    ]
    counted = [
        frame.with_columns(
            (2.0 * times * pl.col("m") * pl.col("n") * pl.col("k") / pl.col("time_ns")).alias(
                "rate"
            )
        ).select("gpu", "dtype", "rate")
        for frame, times in zip(frames, batch, strict=True)
    ]
    return pl.concat(counted).group_by("gpu", "dtype").agg(pl.col("rate").max())


def test_no_matrix_product_beats_a_peak_and_the_best_comes_near(data_dir: Path) -> None:
    found = products(data_dir)

    assert len(found) > 15
    for gpu, dtype, rate in found.iter_rows():
        peak = load_chip(CHIP_BY_GPU[gpu]).peak_flops_per_ns(dtype)
        assert peak is not None, (gpu, dtype)
        # The least: L4 and T4 in fp32 are held by their 72 and 70 W.
        assert 0.4 * peak < rate <= peak, (gpu, dtype, rate / peak)


def test_no_collective_beats_the_links_that_carry_it(data_dir: Path) -> None:
    # All-reduces are left out: NVSwitch adds up on the way, so that less passes each link.
    found = (
        pl.read_parquet(data_dir / "measured" / "collectives.parquet")
        .filter(pl.col("system").is_in(HOST_BY_SYSTEM), pl.col("collective") != "all_reduce")
        .group_by("system", "collective")
        .agg(pl.col("busbw_gbs").max())
    )

    assert len(found) > 10
    for system, collective, measured in found.iter_rows():
        links = load_machine(HOST_BY_SYSTEM[system]).tiers[0].bytes_per_ns
        assert 0.25 * links < measured <= links, (system, collective)


def test_the_links_of_v100_hosts_carry_what_was_measured(data_dir: Path) -> None:
    found = (
        pl.read_parquet(data_dir / "measured" / "collectives.parquet")
        .filter(pl.col("system") == "vtrain-v100-node")
        .get_column("busbw_gbs")
        .max()
    )
    links = load_host("dgx-1-v100").scale_up_bytes_per_ns

    assert isinstance(found, float)
    assert links is not None
    assert 0.5 * links < found <= links


def reported_devices(path: Path) -> list[dict[str, object]]:
    """What a trace's devices report of themselves, at the head of the file as a rule."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        text = b""
        for size in (20_000, 4_000_000):
            text += file.read(size)
            match = re.search(rb'"deviceProperties":\s*(\[.*?\])', text, re.DOTALL)
            if match:
                return [one for one in json.loads(match[1]) if "totalGlobalMem" in one]
    return []


def test_every_device_of_the_public_traces_is_known(data_dir: Path) -> None:
    paths = [
        path
        for pattern in ("*.json.gz", "*.json")
        for path in sorted((data_dir / "traces").rglob(pattern))
    ]
    reports = {
        (
            str(device["name"]),
            int(str(device["totalGlobalMem"])),
            int(str(device["numSms"])),
            int(str(device.get("sharedMemPerMultiprocessor", 0))),
        )
        for path in paths
        for device in reported_devices(path)
    }

    known = set()
    for name, memory_bytes, num_processors, shared_bytes in sorted(reports):
        chip = chip_named(name, memory_bytes=memory_bytes, num_processors=num_processors)
        assert chip is not None, (name, memory_bytes, num_processors)
        assert memory_bytes <= chip.memory_bytes, name
        assert shared_bytes in {0, chip.shared_bytes}, name  # older profilers and AMD say nothing
        known.add(chip.name)

    assert known >= {"a100-sxm-80gb", "a100-sxm-40gb", "v100-sxm2-32gb", "h100-sxm", "mi300x"}
