from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.answer import short_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "aten::mm"),
        ("void at::native::add_kernel<float>(int, float*)", "add_kernel<float>"),
        ("void run<f(int)>(std::array<char*, 3ul>, (anonymous namespace)::x) const", "run<f(int)>"),
        (
            "void at::native::each<4, gpu<Mul> (Base&, Mul const&)::{lambda(int)#1}>(int, Base&)",
            "each<4, gpu<Mul> >",
        ),
        ("flash_bwd_kernel<Traits<64, 128>, true, false>", "flash_bwd_kern... false>"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void cutlass::Kernel2<cutlass_80_gemm>(cutlass_80_gemm::Params)", "cutlass_80_gemm"),
        ("cutlass_80_tensorop_f16_s16816gemm_128x64_nn_align8", "cutlass...8x64_nn_align8"),
    ],
)
def test_a_name_keeps_what_tells_it_from_others(name: str, short: str) -> None:
    assert short_name(name, 24 if "..." in short else 60) == short


@given(name=st.text(max_size=80), width=st.integers(5, 60))
def test_no_name_is_longer_than_its_room(name: str, width: int) -> None:
    assert len(short_name(name, width)) <= width
