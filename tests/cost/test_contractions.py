"""Contractions become products; the copies they need are told, and what they take without."""

from __future__ import annotations

import math

import pytest

from foretrace.base import ModelError
from foretrace.cost import ContractionStep, FittedKernels, contraction_steps
from foretrace.machine import load_chip

A100 = FittedKernels(load_chip("a100-sxm-80gb"))


def steps(expression: str, *shapes: tuple[int, ...]) -> tuple[ContractionStep, ...]:
    return contraction_steps(expression, shapes, "bf16", kernels=A100)


def test_products_in_any_order_of_sides_need_no_copies() -> None:
    for expression, shapes in (
        ("mk,kn->mn", ((512, 256), (256, 128))),
        ("km,nk->mn", ((256, 512), (128, 256))),
        ("bmk,bkn->bmn", ((4, 512, 256), (4, 256, 128))),
        ("mk,kn->nm", ((512, 256), (256, 128))),
    ):
        (found,) = steps(expression, *shapes)
        assert found.copied == ()
        assert found.sizes[1:] == (512, 128, 256)
        assert found.gain == 1


def test_scores_of_attention_as_models_hold_them_copy_queries_and_keys() -> None:
    (found,) = steps("bqhd,bkhd->bhqk", (8, 512, 16, 128), (8, 640, 16, 128))
    assert found.sizes == (8 * 16, 512, 640, 128)
    assert found.copied == ("bqhd", "bkhd")
    assert found.copied_bytes == 2 * 2 * 8 * 16 * 128 * (512 + 640)
    assert found.flops == 2 * 8 * 16 * 512 * 640 * 128
    assert found.copies_ns > 0
    assert 1 < found.gain < 3


def test_two_indices_in_another_order_are_a_copy() -> None:
    (kept,) = steps("mab,abn->mn", (512, 16, 32), (16, 32, 256))
    (turned,) = steps("mab,ban->mn", (512, 16, 32), (32, 16, 256))
    assert kept.copied == ()
    assert turned.copied == ("ban",)
    assert turned.product_ns == kept.product_ns


def test_the_order_needs_least_arithmetic() -> None:
    shapes = (2_000, 10), (10, 2_000), (2_000, 5)
    found = steps("ij,jk,kl->il", *shapes)
    naive = 2 * math.prod((2_000, 10, 2_000, 5))
    assert sum(one.flops for one in found) == 2 * (10 * 2_000 * 5) * 2
    assert sum(one.flops for one in found) < naive
    assert found[0].expression in {"jk,kl->jl", "kl,jk->lj"}
    assert found[-1].expression.endswith("->il")


@pytest.mark.parametrize(
    ("expression", "shapes", "said"),
    [
        ("mk,kn", ((2, 3), (3, 4)), "no contraction"),
        ("mk->m", ((2, 3),), "no contraction"),
        ("mk,kn->mn", ((2, 3), (4, 4)), "'k' of 'mk,kn->mn' is 3 and 4"),
        ("mm,mn->mn", ((2, 2), (2, 4)), "does not name the dimensions"),
        ("mk,kn->mn", ((2, 3),), "is of 2 tensors, and 1 are given"),
    ],
)
def test_what_does_not_fit_is_a_sentence(
    expression: str, shapes: tuple[tuple[int, ...], ...], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        steps(expression, *shapes)
