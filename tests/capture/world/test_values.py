"""What code is told that asks tensors without memory for their values."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402

from foretrace.capture.world.on_cpu import attention_without_masks  # noqa: E402
from foretrace.capture.world.values import (  # noqa: E402
    SubstitutedValues,
    arrays_of_substitutes,
)
from tests.capture.world.test_memory import observer  # noqa: E402


def test_a_whole_number_that_was_computed_is_one_and_said_with_its_line(tmp_path: Path) -> None:
    found = observer(tmp_path)

    with found, FakeTensorMode():
        kept = (torch.rand(3) * 9).long()
        line = inspect.stack(context=0)[0].lineno + 1
        told = kept.max().item()
        assert (told, kept.float().sum().item(), bool(kept.any())) == (1, 1.0, False)

    said = f"a number that was computed (torch.int64) was 1 in {Path(__file__).name}, line {line}"
    assert found.journal.substitutes[said] == 1
    assert len(found.journal.substitutes) == 3


def test_arrays_hold_what_is_known_and_substitutes(tmp_path: Path) -> None:
    found, values = observer(tmp_path), SubstitutedValues()
    kept, known = torch.ones(2), torch.tensor([4, 2])

    with arrays_of_substitutes(values, found.journal), FakeTensorMode(allow_non_fake_inputs=True):
        computed = torch.rand(2, 3).detach().cpu()
        places = torch.rand(2).long()
        values.state(places, known)
        told = [computed.numpy(), np.asarray(computed), computed.bool().numpy(), places.numpy()]
        told += [torch.rand(()).numpy(), kept.numpy()]

    assert [one.shape for one in told] == [(2, 3)] * 3 + [(2,), (), (2,)]
    assert [one.tolist() for one in told[2:]] == [[[False] * 3] * 2, [4, 2], 1.0, [1.0, 1.0]]
    assert (told[0] == 1).all()
    assert set(found.journal.substitutes) == {
        "a number that was computed (torch.float32) was 1.0",
        "a number that was computed (torch.bool) was False",
    }


def test_one_known_side_decides_what_an_or_and_an_and_are(tmp_path: Path) -> None:
    """As generation ends where a length is reached, whatever tokens came."""
    found = observer(tmp_path)

    with found, FakeTensorMode():
        unknown = torch.rand(4) > 0.5
        is_long, is_short = torch.full((4,), True), torch.full((4,), False)
        left = torch.ones(4, dtype=torch.int64) & ~unknown
        left = left & ~(unknown | is_long)
        assert left.max().item() == 0
        assert not bool((unknown & is_short).any())
        assert not found.journal.substitutes
        assert not bool((unknown | is_short).any())  # not known: a flag is false

    assert len(found.journal.substitutes) == 1


def test_whole_numbers_that_were_made_beside_all_modes_are_known(tmp_path: Path) -> None:
    """As the states of generators, of which scripts make seeds for all ranks."""
    seed = torch.tensor([7, 0, 0, 0, 0, 0, 0, 0, 5], dtype=torch.uint8)
    found = observer(tmp_path)

    with found, FakeTensorMode(allow_non_fake_inputs=True):
        assert seed[:8].to("cpu").view(torch.int64).item() == 7

    assert not found.journal.substitutes


def test_flex_attention_is_causal_attention_and_said(tmp_path: Path) -> None:
    found = observer(tmp_path)

    with found, attention_without_masks(found.journal, lambda mask: mask), FakeTensorMode():
        query, key = torch.empty(2, 8, 16, 4), torch.empty(2, 2, 16, 4)
        plain = flex.flex_attention(query, key, key, enable_gqa=True)
        out, aux = flex.flex_attention(
            query, key, key, enable_gqa=True, return_aux=flex.AuxRequest(lse=True)
        )

    assert plain.shape == out.shape == query.shape
    assert aux.lse is not None
    assert (aux.lse.shape, aux.lse.dtype) == ((2, 8, 16), torch.float32)
    assert list(found.journal.substitutes.values()) == [2]
    assert any("scaled_dot_product" in text for text in found.journal.texts)
