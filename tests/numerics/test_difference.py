from __future__ import annotations

import functools
import itertools
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import TraceError
from foretrace.numerics import checkpoint_difference, wasserstein_distance
from foretrace.numerics.checkpoint_pieces import TensorPiece, joined
from foretrace.numerics.checkpoints import stored_tensors

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
Tensors = dict[str, "torch.Tensor"]


def write_safetensors(
    path: Path, tensors: Tensors, offsets: dict[str, list[int]] | None = None
) -> Path:
    """The format by its description: length of the head, head, numbers.

    Of blocks of tensors the offsets stand in the head, as torch.distributed.checkpoint writes them.
    """
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
    blocks = {name: {"saved_offsets": one} for name, one in (offsets or {}).items()}
    told = {"format": "pt", **({"DCP_SHARDING_INFO": json.dumps(blocks)} if blocks else {})}
    text = json.dumps({"__metadata__": told, **head}).encode()
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


class Spread(torch.Tensor):
    """Four blocks, as four processes would save them, each in a file of its own."""

    def __create_write_items__(self, name: str, _: object) -> list[Any]:
        from torch.distributed.checkpoint import metadata, planner

        properties = metadata.TensorProperties(dtype=self.dtype)
        kind = planner.WriteItemType.SHARD
        chunks = [
            metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
            for offsets, sizes in (((0, 0), (7, 30)), ((7, 0), (33, 11)), ((7, 11), (20, 19)),
                                   ((27, 11), (13, 19)))
        ]  # fmt: skip
        return [
            planner.WriteItem(metadata.MetadataIndex(name, one.offsets), kind,
                              tensor_data=planner.TensorWriteData(one, properties, self.size()))
            for one in chunks
        ]  # fmt: skip

    def __get_tensor_shard__(self, index: Any) -> torch.Tensor:
        (row, column), whole = index.offset, self.as_subclass(torch.Tensor)
        if (row, column) == (7, 11):  # whose numbers lie column by column
            return whole[7:27, 11:].t().contiguous().t()
        rows = slice(row, {0: 7, 7: 40, 27: 40}[row])
        return whole[rows, column : {0: 30 if row == 0 else 11, 11: 30}[column]].clone()


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    # They take longer to load than all tests here.
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    held = tensors()
    state = {"a.weight": held["a.weight"].as_subclass(Spread), "b.weight": held["b.weight"]}
    writer = FileSystemWriter(tmp_path / "spread", single_file_per_rank=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is one process is meant
        save(state, storage_writer=writer, no_dist=True)
    return tmp_path / "spread"


def test_blocks_that_processes_saved_are_read_in_parts(first: Path, spread: Path) -> None:
    assert len(list(spread.glob("*.distcp"))) == 5
    assert {one.verdict for one in checkpoint_difference(first, spread).rows} == {"same"}

    whole, found = tensors()["a.weight"], stored_tensors(spread)["a.weight"]
    assert torch.equal(torch.cat(list(found.pieces(101))), whole.flatten())


def test_half_a_distributed_checkpoint_is_said(spread: Path) -> None:
    largest = max(spread.glob("*.distcp"), key=lambda one: one.stat().st_size)
    held = largest.read_bytes()
    largest.write_bytes(held[:-100])
    with pytest.raises(TraceError, match=r"is cut off: the tensor a\.weight ends at byte"):
        stored_tensors(spread)
    largest.unlink()
    with pytest.raises(TraceError, match="names 5 shards, of which 1 are missing"):
        stored_tensors(spread)
    (spread / ".metadata").unlink()
    with pytest.raises(TraceError, match=r"pieces of torch\.distributed\.checkpoint, but no"):
        stored_tensors(spread)


def test_rows_in_safetensors_are_put_together(first: Path, tmp_path: Path) -> None:
    held, folder = tensors(), tmp_path / "rows"
    folder.mkdir()
    paths = [folder / f"shard-{at}-model-00001-of-00001.safetensors" for at in range(2)]
    top, bottom = held["a.weight"][:13], held["a.weight"][13:]
    place = {"a.weight": [0, 0], "b.weight": [0]}
    write_safetensors(paths[0], {"a.weight": top, "b.weight": held["b.weight"]}, place)
    write_safetensors(paths[1], {"a.weight": bottom}, {"a.weight": [13, 0]})

    assert {one.verdict for one in checkpoint_difference(first, folder).rows} == {"same"}

    paths[0].unlink()
    with pytest.raises(TraceError, match=r"a.weight is \(40, 30\), 1,200 elements, of which its 1"):
        stored_tensors(folder)
    paths[1].rename(folder / "model-00002-of-00003.safetensors")
    with pytest.raises(TraceError, match="names 3 shards, of which 2 are missing, the first model"):
        stored_tensors(folder)
    for at in range(2):
        torch.save(held, folder / f"rank-{at}.pt")
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(TraceError, match=r"holds b\.weight in several files"):
        stored_tensors(folder)


def part_of(whole: torch.Tensor, first: int, last: int) -> torch.Tensor:
    return whole[first:last]


@given(st.data())
def test_blocks_make_the_tensor(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    whole = torch.arange(torch.Size(shape).numel())
    cuts = [sorted({0, size, *data.draw(st.lists(st.integers(0, size)))}) for size in shape]
    spans = [list(itertools.pairwise(one)) for one in cuts]
    pieces = []
    for block in itertools.product(*spans):
        own = whole.view(*shape)[tuple(slice(*span) for span in block)].flatten()
        offsets = tuple(begin for begin, _ in block)
        sizes = tuple(end - begin for begin, end in block)
        read = functools.partial(part_of, own)
        pieces.append(TensorPiece(offsets=offsets, sizes=sizes, read=read))
    data.draw(st.randoms()).shuffle(pieces)
    begin, end = sorted(data.draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=2)))

    found = joined("it", shape, pieces)(begin, end)

    assert found.tolist() == whole[begin:end].tolist()
    with pytest.raises(TraceError, match="pieces hold"):
        joined("it", shape, pieces[1:])


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
    write_safetensors(second, {**tensors(1), "c": torch.ones(2)})
    with pytest.raises(TraceError, match="as they are now"):
        checkpoint_difference(first, second, journal=journal)


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
