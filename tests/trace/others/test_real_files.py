"""Files that other projects publish, where their repositories lie: see `tests.repositories`."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from tests.repositories import shown_bytes

LENS, PIPIT, TENSORFLOW = "AMD-AGI+TraceLens", "hpcgroup+pipit", "tensorflow+profiler"
BABEL = "ammarwa+Babeltrace2-ROCpd-Plugin"
# Repository, path, device operations but communication, largest error of a replay's end, percent.
FILES = (
    (
        PIPIT,
        (
            "ad30bc8498bdd16cc93b4eb8397d5d5bbae3e33b:"
            "pipit/tests/data/cloverleaf-nsys/perlmutter-cloverleaf-cuda.sqlite"
        ),
        1_591,
        0.02,
    ),
    (
        PIPIT,
        (
            "46d41f2a6681112c86f3a090f9241ad05226ed43:"
            "pipit/tests/data/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
        ),
        20,
        0.05,
    ),
    ("lsaeteurn+vectoraddition", "report1.sqlite", 4_609, 0.01),
    ("lsaeteurn+vectoraddition", "report4.sqlite", 1_793, 0.01),
    (
        "0x822a5b87+test-cuda",
        "7e25f8547a6caac778206b1ad4e9279131c8b4ba:report1.sqlite",
        16,
        0.01,
    ),
    (
        "JiangShanCode+CUDATutorial",
        "eb8f6973929fed3e6eb6e40882f42c02d4995e88:report1.sqlite",
        3,
        0.01,
    ),
    (
        "annikola+cuda_bitonic_sort",
        "212ddd6781958b8ab7d48b23d7cb6b359d3e2746:report1.sqlite",
        155,
        0.01,
    ),
    (
        "igouProto+CSC746CUDALab",
        "55ce2215b12d236fd9db0b6447a7d38e54684bec:report1.sqlite",
        18_433,
        0.01,
    ),
    ("HGLiu1998+batched_gemm", "ck_bmm/37ca13315e70/28_results.db", 151, 0.01),
    (BABEL, "94174f559c639f36dfad3b73ec28b5dc93cc81ec:test_rocm_database.db", 4, 0.01),
    (LENS, "tests/rocprof/908_results.json.gz", 42_605, 0.01),
    (LENS, "tests/test_data_jax_te_fused_attn_categorization/934987a2fc2f.xplane.pb", 150, 0.1),
    (LENS, "tests/traces/mi300/jax_conv_minimal_08/tw003.xplane.pb", 235, 0.05),
    (
        LENS,
        (
            "tests/traces/mi300/jax_conv_minimal_legacy/"
            "chi-mi300x-013.ord.vultr.cpe.ice.amd.com.xplane.pb"
        ),
        78,
        0.01,
    ),
    (
        TENSORFLOW,
        (
            "d6853e0c4b0dbc7466a516f51335584945ea49b5:"
            "demo/plugins/profile/GPU-multi-worker/34.83.195.179_6003.xplane.pb"
        ),
        1_556,
        0.01,
    ),
)


@pytest.mark.parametrize("case", FILES, ids=lambda case: case[1].rpartition("/")[2])
def test_a_file_is_read_and_replayed(case: tuple[str, str, int, float], tmp_path: Path) -> None:
    name, path, operations, error = case
    file = tmp_path / path.rpartition("/")[2]
    file.write_bytes(shown_bytes(name, path))

    job = ft.load(file, cache=tmp_path / "cache")
    found = ft.replay(job)

    assert int(job.graph.is_device.sum()) == operations
    assert found.step_time_ns > 0
    off = abs(found.replayed_step_time_ns - found.step_time_ns)
    assert off <= found.step_time_ns * error / 100
