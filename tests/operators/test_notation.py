"""Operators in index notation: their arithmetic, traffic and results, and what wrong lines say."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import ModelError
from foretrace.operators import IndexedOperator, parsed_operator

torch = pytest.importorskip("torch")

MATMUL = "def mm(fp16(64, 32) A, fp16(32, 16) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
BATCHED = """
def bmm(fp32(3, 8, 5) A, fp32(3, 5, 7) B) -> (C) {  # one for each
    C(b, m, n) +=! A(b, m, k) * B(b, k, n)
}"""
CONVOLUTION = """def conv(fp32(2, 3, 18, 17) I, fp32(5, 3, 3, 4) W) -> (O) {
    O(n, m, h, w) +=! I(n, c, h + kh, w + kw) * W(m, c, kh, kw) }"""
DEPTHWISE = """def depthwise(fp32(2, 3, 9, 9) I, fp32(3, 3, 3) W) -> (O) {
    O(n, c, h, w) +=! I(n, c, h + kh, w + kw) * W(c, kh, kw) }"""
STRIDED = """def strided(fp32(1, 2, 11, 12) I, fp32(4, 2, 3, 2) W) -> (O) {
    O(n, m, h, w) +=! I(n, c, 2*h + kh, 3*w + kw) * W(m, c, kh, kw) }"""
STENCIL = """def blur(fp32(10, 12) A) -> (B) {
    B(i, j) = 0.25*A(i - 1, j) + 0.25*A(i + 1, j) + 0.25*A(i, j - 1) + 0.25*A(i, j + 1) }"""
SCORES = """def scores(fp32(2, 4, 6, 8) Q, fp32(2, 4, 9, 8) K) -> (S) {
    S(b, h, q, k) +=! 0.5 * Q(b, h, q, d) * K(b, h, k, d) }"""

# Text, FLOPs, distinct elements by tensor, halo by tensor, closed forms written out.
CASES = {
    "matmul": (MATMUL, 2 * 64 * 16 * 32, {"A": 64 * 32, "B": 32 * 16, "C": 64 * 16}, {}),
    "batched": (BATCHED, 2 * 3 * 8 * 7 * 5, {"A": 120, "B": 105, "C": 168}, {}),
    "convolution": (
        CONVOLUTION,
        2 * (2 * 5 * 16 * 14) * (3 * 3 * 4),
        {"I": 2 * 3 * 18 * 17, "W": 180, "O": 2 * 5 * 16 * 14},
        {"I": 2 * 3 * (18 * 17 - 16 * 14)},
    ),
    "depthwise": (
        DEPTHWISE,
        2 * (2 * 3 * 7 * 7) * 9,
        {"I": 486, "W": 27, "O": 294},
        {"I": 6 * (81 - 49)},
    ),
    "strided": (
        STRIDED,
        2 * (4 * 5 * 4) * (2 * 3 * 2),
        # Of 12 columns every third is skipped.
        {"I": 2 * 11 * 8, "W": 48, "O": 80},
        {"I": 2 * (11 * 8 - 5 * 4)},
    ),
    "stencil": (STENCIL, (8 * 10) * 7, {"A": 10 * 12 - 4, "B": 80}, {"A": 36}),
    "scores": (SCORES, 3 * (2 * 4 * 6 * 9) * 8, {"Q": 384, "K": 576, "S": 432}, {}),
}


def arrays(operator: IndexedOperator) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in operator.shapes.items()}


def by_torch(case: str, given: dict[str, np.ndarray]) -> np.ndarray:
    first, *others = (torch.from_numpy(each) for each in given.values())
    functional = torch.nn.functional
    if case in {"matmul", "batched"}:
        found = first @ others[0]
    elif case == "depthwise":
        found = functional.conv2d(first, others[0][:, None], groups=3)
    elif case == "scores":
        found = 0.5 * first @ others[0].transpose(-1, -2)
    elif case == "stencil":
        kernel = torch.tensor([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]]).double()
        found = functional.conv2d(first[None, None], kernel[None, None])[0, 0]
    else:
        found = functional.conv2d(first, others[0], stride=(2, 3) if case == "strided" else 1)
    return np.asarray(found)


@pytest.mark.parametrize("case", CASES)
def test_arithmetic_and_traffic_are_the_closed_forms_and_the_result_is_torchs(case: str) -> None:
    text, flops, elements, halo = CASES[case]
    found = parsed_operator(text)
    item = 2 if case == "matmul" else 4
    assert found.flops == flops
    assert found.elements_by_tensor == elements
    assert found.num_bytes == item * sum(elements.values())
    assert found.intensity == pytest.approx(flops / (item * sum(elements.values())))
    assert {name: each for name, each in found.halo_by_tensor.items() if each} == halo
    given = arrays(found)
    assert found.run(given) == pytest.approx(by_torch(case, given), rel=1e-12, abs=1e-12)


def test_products_are_told_from_other_operators() -> None:
    sizes = {case: parsed_operator(text).product_sizes for case, (text, *_) in CASES.items()}
    assert sizes["matmul"] == (1, 64, 16, 32)
    assert sizes["batched"] == (3, 8, 7, 5)
    assert sizes["scores"] == (8, 6, 9, 8)
    assert [case for case, found in sizes.items() if found is None] == [
        *("convolution", "depthwise", "strided", "stencil")
    ]


def test_what_is_added_to_is_read_too() -> None:
    kept = parsed_operator(MATMUL.replace("+=!", "+="))
    assert kept.num_bytes == 2 * (64 * 32 + 32 * 16 + 2 * 64 * 16)


@pytest.mark.parametrize(
    ("line", "said", "under"),
    [
        ("C(m, n) +=! A(m, k) * B(n, k)", "k takes 32 values in A and 16 in B", "k)"),
        ("C(m, n) +=! A(m, q) * B(k, n) + Z(m)", "'Z' is no tensor: there are A, B", "Z(m)"),
        ("C(m, n) +=! A(m) * B(k, n)", "A has 2 dimensions, and 1 indices are here", "A(m)"),
        ("C(m, n) = A(m, k) * B(k, n)", "k is no index of the result", "C(m, n)"),
        ("C(m, n) +=! A(m, k) * B(k, n", "`,` or `)` is expected, and '}' is here", "}"),
        ("C(m, m) +=! A(m, k) * B(k, n)", "an index stands twice in C", "C(m"),
        ("C(m, 2*n) +=! A(m, k) * B(k, n)", "the result stands at bare indices", "C(m"),
        ("C(m, n) +=! A(m, k) * 2 * ", "a tensor is expected, and '}' is here", "}"),
        ("C(m, n) +=! A(m, i + k) * B(i + k, n)", "nothing says how far i goes", "i + k"),
        ("C(m, n) +=! A(m, k + 40) * B(k, n)", "no value of k", "k + 40"),
        ("C(m, n) +=! A(m, k) * A(m, k)", "nothing says how far n goes", "C(m"),
    ],
)
def test_a_wrong_line_is_shown_with_a_caret(line: str, said: str, under: str) -> None:
    text = f"def mm(fp16(64, 32) A, fp16(32, 16) B) -> (C) {{\n  {line} }}"
    with pytest.raises(ModelError) as caught:
        parsed_operator(text, where="mm.txt")
    sentence, shown, caret = str(caught.value).split("\n")
    assert sentence.startswith("mm.txt, line 2: ")
    assert said in sentence
    assert shown == f"  {line} }}"
    assert caret == " " * (len(caret) - 1) + "^"
    assert shown[len(caret) - 1 :].startswith(under)


def test_sizes_and_formats_are_checked() -> None:
    for text, said in (
        (MATMUL.replace("fp16(32", "half(32"), "'half' is no number format"),
        (MATMUL.replace("64", "0"), "sizes of at least 1"),
        (MATMUL + " x", "one statement in braces"),
        (MATMUL.replace("(C)", "(D)"), "D is what the operator makes"),
    ):
        with pytest.raises(ModelError, match=said):
            parsed_operator(text)
