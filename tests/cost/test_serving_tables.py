"""Tables of kernels that serve become shapes, each kind by itself."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from foretrace.cost import read_tables
from foretrace.cost.attention import AttentionShapes
from foretrace.cost.decode import Cutting, DecodeShapes
from foretrace.cost.expert_exchange import ExchangeShapes
from foretrace.cost.experts import ExpertShapes

GPU = {"gpu": "h100_sxm", "time_ns": 9.0, "source": "a benchmark@1", "kernel": "one"}


def write(folder: Path, name: str, *rows: dict[str, object]) -> None:
    pl.DataFrame([{**GPU, **row} for row in rows]).write_parquet(folder / f"{name}-mine.parquet")


def test_decode_rows_are_kept_apart_by_library_and_what_is_kept(tmp_path: Path) -> None:
    one = {"batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 64, "kv_len": 500, "window": 128}
    kinds = ("trtllm", "bf16"), ("vllm", "bf16"), ("vllm", "fp8")
    rows = [{**one, "framework": name, "kv_dtype": dtype} for name, dtype in kinds]
    write(tmp_path, "attention-decode", *rows)

    found = read_tables(tmp_path)

    assert [(each.kind, each.dtype) for each in found] == [
        ("operator", "bf16"),
        ("flash", "bf16"),
        ("flash", "fp8"),
    ]
    shapes = found[0].shapes
    assert isinstance(shapes, DecodeShapes)
    assert (shapes.length.tolist(), shapes.kept_size.tolist()) == ([128], [128])
    assert shapes.total_length.tolist() == [500]
    assert [int(each.shapes.cutting[0]) for each in found] == [Cutting.FILLED, 0, 0]  # type: ignore[union-attr]


def test_attention_by_triton_stands_apart_and_so_does_a_mean_of_it_and_another(
    tmp_path: Path,
) -> None:
    one = {"batch": 2, "heads": 8, "kv_heads": 8, "head_dim": 256, "seq": 512, "causal": True}
    told = {**one, "dtype": "bf16", "framework": "trtllm", "time_ns_alt": 5.0}
    others = "triton", "triton;trtllm_mha", "fa3;triton;vllm_flash_attn"
    own = {**one, "dtype": "bf16", "framework": "sglang", "kernel": "triton", "head_dim": 512}
    rows = [{**told, "alt_kernel": each} for each in others]
    write(tmp_path, "attention", *rows, {**own, "time_ns_alt": None, "alt_kernel": None})

    found = [(each.kind, each.family, len(each.measured_ns)) for each in read_tables(tmp_path)]

    assert found == [
        ("operator", "attention", 3),
        ("triton", "attention by triton", 1),
        ("triton", "attention by triton", 1),
        ("flash over releases", "attention by flash over releases", 1),
        ("flash", "attention by flash", 1),
    ]


def test_encoders_of_pytorch_run_in_the_kernels_of_all_attention(tmp_path: Path) -> None:
    one = {"batch": 2, "heads": 8, "head_dim": 64, "seq": 77, "dtype": "bf16"}
    kinds = ("trtllm", 0.0), ("torch 2.11.0+cu130", 20.0)
    rows = ({**one, "framework": name, "bwd_time_ns": back} for name, back in kinds)
    write(tmp_path, "attention-encoder", *rows)

    found = read_tables(tmp_path)

    assert [(each.model, each.kind) for each in found] == [
        ("attention encoder", "even"),
        ("attention", "cudnn"),
        ("attention backward", "cudnn"),
    ]
    assert all(isinstance(each.shapes, AttentionShapes) for each in found)
    assert [each.shapes.is_causal.tolist() for each in found] == 3 * [[False]]  # type: ignore[union-attr]


def test_encoders_of_two_releases_stand_apart_and_those_of_three_do_not(tmp_path: Path) -> None:
    one = {
        "batch": 2,
        "heads": 8,
        "head_dim": 72,
        "seq": 77,
        "dtype": "bf16",
        "framework": "trtllm",
    }
    releases = "1.3.0rc20", "1.3.0rc10;1.3.0rc20", "1.3.0rc10;1.3.0rc15;1.3.0rc20", "1.3.0rc10"
    write(tmp_path, "attention-encoder", *({**one, "versions": each} for each in releases))

    found = [(each.kind, len(each.measured_ns)) for each in read_tables(tmp_path)]

    assert found == [("uneven", 2), ("uneven over releases", 1), ("uneven older", 1)]


def test_latent_rows_of_prompts_are_attention_and_of_tokens_decode(tmp_path: Path) -> None:
    one = {"batch": 1, "heads": 16, "seq": 64, "kv_len": 64, "kv_dtype": "bf16"}
    write(tmp_path, "mla", {**one, "phase": "context"}, {**one, "phase": "generation"})

    found = read_tables(tmp_path)

    assert [(each.model, each.kind) for each in found] == [
        ("attention", "latent"),
        ("decode", "latent"),
    ]


def test_rows_whose_load_a_table_does_not_tell_are_left_out(tmp_path: Path) -> None:
    one = {"tokens": 64, "hidden": 512, "top_k": 2, "experts": 64, "inter": 256, "tp": 2}
    told = {"dtype": "fp8_block", "distribution": "power_law_1.2", "framework": "trtllm"}
    write(tmp_path, "moe", {**one, **told, "ep": 8}, {**one, **told, "ep": 64})

    (found,) = read_tables(tmp_path)

    assert (found.kind, found.dtype, found.family) == (
        "grouped blockwise",
        "fp8",
        "experts grouped blockwise",
    )
    assert isinstance(found.shapes, ExpertShapes)
    assert (found.shapes.skew.tolist(), found.shapes.width.tolist()) == ([120], [128])


def test_times_of_grouped_products_over_several_releases_are_kinds_apart(tmp_path: Path) -> None:
    one = {"tokens": 64, "hidden": 512, "top_k": 2, "experts": 64, "inter": 256, "tp": 2, "ep": 1}
    told = {"dtype": "bf16", "distribution": "balanced", "framework": "trtllm"}
    releases = "1.3.0rc10", "1.2.0rc5;1.3.0rc10", "1.2.0rc5"
    rows = [{**one, **told, "versions": each} for each in releases]
    # A format that one release alone has; and another library's releases are its own.
    rows.append({**one, **told, "versions": "1.2.0rc5", "dtype": "fp8"})
    rows.append({**one, **told, "versions": "0.19.0;0.24.0", "framework": "vllm"})
    write(tmp_path, "moe", *rows)

    found = [(each.kind, each.dtype) for each in read_tables(tmp_path)]

    assert found == [
        ("grouped", "bf16"),
        ("grouped over releases", "bf16"),
        ("grouped older", "bf16"),
        ("grouped", "fp8"),
        ("served", "bf16"),
    ]


def test_calls_of_a_release_that_is_alone_with_its_sizes_are_a_kind_apart(tmp_path: Path) -> None:
    one = {"tokens": 64, "hidden": 512, "top_k": 2, "experts": 64, "inter": 256, "tp": 2, "ep": 1}
    told = {"dtype": "bf16", "distribution": "balanced", "framework": "sglang"}
    releases = "0.5.6.post2", "0.5.10;0.5.6.post2;0.5.9"
    write(tmp_path, "moe", *({**one, **told, "versions": each} for each in releases))

    assert [each.kind for each in read_tables(tmp_path)] == ["served older", "served"]


def test_experts_of_unpacked_weights_stand_apart_by_how_quick_their_releases_are(
    tmp_path: Path,
) -> None:
    one = {"tokens": 64, "hidden": 512, "top_k": 2, "experts": 64, "inter": 256, "tp": 2, "ep": 1}
    told = {"dtype": "int4_wo", "distribution": "balanced", "framework": "vllm"}
    releases = "0.14.0;0.19.0;0.24.0", "0.14.0;0.18.0;0.19.0", "0.14.0;0.19.0"
    rows = [{**one, **told, "versions": each, "kernel": "a_marlin_moe"} for each in releases]
    write(tmp_path, "moe", *rows)

    found = read_tables(tmp_path)

    assert [each.kind for each in found] == ["marlin", "marlin older", "marlin over releases"]
    assert all(each.is_older for each in found)


def test_exchanges_are_told_by_way_and_by_kernels(tmp_path: Path) -> None:
    one = {"tokens": 64, "hidden": 512, "top_k": 2, "experts": 64, "hosts": 2, "sms": 20}
    ways = ("dispatch", "normal"), ("combine", "normal"), ("dispatch", "ll")
    write(tmp_path, "expert-exchange", *({**one, "op": op, "mode": mode} for op, mode in ways))

    found = read_tables(tmp_path)

    assert [(each.kind, each.dtype) for each in found] == [
        ("dispatch", "fp8"),
        ("combine", "bf16"),
        ("dispatch direct", "fp8"),
    ]
    shapes = found[0].shapes
    assert isinstance(shapes, ExchangeShapes)
    assert (shapes.ranks.tolist(), shapes.network.tolist()) == ([16], [50])
