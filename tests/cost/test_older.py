from __future__ import annotations

import pytest

from foretrace.cost import operation_of
from foretrace.cost.older import for_older_kernels, is_of_older, is_older
from foretrace.machine import load_chip


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ampere_fp16_s1688gemm_fp16_256x64_ldg8_f2f_tn", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm>", True),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128", False),
        ("void cutlass::device_kernel<cutlass_90_tensorop>", False),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", False),
        ("", False),
    ],
)
def test_a_name_says_which_chips_a_kernel_was_built_for(kernel: str, expected: bool) -> None:
    assert is_older(kernel) is expected


def test_older_kernels_reach_less_of_newer_chips_tensor_cores_only() -> None:
    chip = load_chip("h100-sxm")

    seen = for_older_kernels(chip)

    assert seen.peak_by_dtype["bf16"] == pytest.approx(0.629 * chip.peak_by_dtype["bf16"])
    assert seen.peak_by_dtype["fp32"] == chip.peak_by_dtype["fp32"]
    assert for_older_kernels(load_chip("a100-sxm-80gb")) == load_chip("a100-sxm-80gb")


def test_a_blackwell_processor_does_as_many_older_instructions_as_a_hopper_s() -> None:
    def per_clock(name: str) -> float:
        chip = load_chip(name)
        cycles = (chip.num_processors or 0) * (chip.matrix_cycles_per_ns or 0.0)
        return for_older_kernels(chip).peak_by_dtype["bf16"] / cycles

    assert per_clock("b200-sxm") == pytest.approx(per_clock("h100-sxm"), rel=0.01)
    # A card's own instructions are no wider than these.
    card = load_chip("rtx-pro-6000")
    assert for_older_kernels(card).peak_by_dtype["bf16"] == card.peak_by_dtype["bf16"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("older", True), ("flash2", True), ("uneven over releases", True), ("even", False)],
)
def test_kinds_of_kernels_say_which_chips_they_were_built_for(kind: str, expected: bool) -> None:
    assert is_of_older(kind) is expected


def test_products_by_older_kernels_are_costed_apart() -> None:
    text = '{"dims": [[8, 16], [16, 32]], "types": ["c10::Half", "c10::Half"]}'

    assert operation_of("aten::mm", text, "ampere_fp16_s1688gemm").kind == "older"
    assert operation_of("aten::mm", text, "nvjet_hsh").kind == "library"
