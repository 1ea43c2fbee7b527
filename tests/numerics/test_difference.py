from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foretrace.base import TraceError
from foretrace.numerics import checkpoint_difference, wasserstein_distance
from foretrace.numerics.checkpoints import stored_tensors

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
Tensors = dict[str, "torch.Tensor"]


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """The format by its description: length of the head, head, numbers."""
    head, at, body = {}, 0, b""
    for name, one in tensors.items():
        held = one.contiguous().view(torch.uint8).numpy().tobytes()
        head[name] = {
            "dtype": NAMES[one.dtype],
            "shape": list(one.shape),
            "data_offsets": [at, at + len(held)],
        }
        at += len(held)
        body += held
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def tensors(seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(40, 30, generator=generator) * 0.02,
        "b.weight": torch.randn(50, generator=generator),
    }


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "first.safetensors", tensors())


def verdicts(first: Path, other: Tensors, tmp_path: Path) -> dict[str, str]:
    second = write_safetensors(tmp_path / "second.safetensors", other)
    return {one.name: one.verdict for one in checkpoint_difference(first, second).rows}


def test_verdicts_follow_from_yardsticks(first: Path, tmp_path: Path) -> None:
    held = tensors()
    narrow = {name: one.bfloat16() for name, one in held.items()}
    trained = {name: one * 1.05 for name, one in held.items()}

    assert set(verdicts(first, held, tmp_path).values()) == {"same"}
    assert set(verdicts(first, narrow, tmp_path).values()) == {"rounding"}
    assert set(verdicts(first, trained, tmp_path).values()) == {"training"}
    assert set(verdicts(first, tensors(1), tmp_path).values()) == {"another model"}


def test_a_shift_is_the_distance_of_every_kind(first: Path, tmp_path: Path) -> None:
    moved = {name: one + 0.25 for name, one in tensors().items()}
    second = write_safetensors(tmp_path / "second.safetensors", moved)

    found = checkpoint_difference(first, second)

    for one in found.rows:
        assert (one.largest, one.mean) == pytest.approx((0.25, 0.25), abs=1e-6)
        assert one.wasserstein == pytest.approx(0.25, abs=1e-6)
        assert one.wasserstein == pytest.approx(
            wasserstein_distance(tensors()[one.name], moved[one.name])
        )


def test_every_form_of_a_checkpoint_is_the_same_one(first: Path, tmp_path: Path) -> None:
    # It takes longer to load than all tests here.
    from torch.distributed.checkpoint.state_dict_saver import save

    held = tensors()
    torch.save({"model": held}, tmp_path / "whole.pt")
    shards = tmp_path / "shards"
    shards.mkdir()
    by_name = {}
    for at, name in enumerate(held):
        write_safetensors(shards / f"model-{at}.safetensors", {name: held[name]})
        by_name[name] = f"model-{at}.safetensors"
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": by_name}))
    spread = tmp_path / "distributed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        save(dict(held), checkpoint_id=spread, no_dist=True)

    for other in (shards, index, spread):
        found = checkpoint_difference(first, other)
        assert {one.verdict for one in found.rows} == {"same"}
        assert len(found.rows) == 2
    assert set(stored_tensors(tmp_path / "whole.pt")) == {"model.a.weight", "model.b.weight"}


def test_what_is_in_one_alone_or_of_another_shape_is_said(first: Path, tmp_path: Path) -> None:
    other = {"a.weight": torch.zeros(3), "b.weight": tensors()["b.weight"], "c": torch.ones(2)}
    second = write_safetensors(tmp_path / "second.safetensors", other)

    found = checkpoint_difference(first, second)

    assert [one.name for one in found.rows] == ["b.weight"]
    assert "a.weight is (40, 30) in the first and (3,) in the second" in str(found)
    assert "c is in the second alone" in str(found)


def test_numbers_that_are_none_are_a_verdict_of_their_own(first: Path, tmp_path: Path) -> None:
    broken = tensors()
    broken["b.weight"][3] = float("nan")

    assert verdicts(first, broken, tmp_path)["b.weight"] == "not a number"


def test_a_comparison_that_was_ended_goes_on(first: Path, tmp_path: Path) -> None:
    second = write_safetensors(tmp_path / "second.safetensors", tensors(1))
    journal = tmp_path / "journal.jsonl"
    whole = checkpoint_difference(first, second, journal=journal)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1] + lines[2][:20])

    resumed = checkpoint_difference(first, second, journal=journal)

    assert resumed.as_json() == whole.as_json()
    with pytest.raises(TraceError, match="is no journal of a comparison of these checkpoints"):
        checkpoint_difference(first, first, journal=journal)


def test_half_a_checkpoint_is_said(first: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(first.read_bytes()[:-10])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors"}}))
    (tmp_path / "text.pt").write_text("no checkpoint")
    (tmp_path / "head.safetensors").write_bytes(b"\xff" * 20)
    for path, words in (
        (cut, "is cut off: the tensor b.weight ends at byte"),
        (index, "names 1 shards, of which 1 are missing, the first one.safetensors"),
        (tmp_path / "text.pt", "cannot be read as a checkpoint"),
        (tmp_path / "head.safetensors", "no safetensors file, or cut off in its head"),
        (tmp_path / "nothing", "does not exist"),
    ):
        with pytest.raises(TraceError, match=words):
            checkpoint_difference(first, path)
