"""Requests from files and laws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foretrace.base import NS_PER_S, WorkloadError
from foretrace.serve import read_requests, requests_named
from tests.serve.made import requests_of


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_lengths_and_arrivals_are_read_and_nothing_else(tmp_path: Path) -> None:
    rows = [
        {"request_id": "b", "input_toks": 7, "output_toks": 3, "arrival_time": 1787267980.25},
        {"request_id": "a", "input_toks": 5, "output_toks": 2, "arrival_time": 1787267980.0},
    ]
    told = [{**row, "first_token_ts": 4.0, "queued_ts": 1.0} for row in rows]

    plain, more = (
        read_requests(written(tmp_path / name, "\n".join(map(json.dumps, each))))
        for name, each in (("plain.jsonl", rows), ("more.jsonl", told))
    )

    assert plain.names == ("a", "b")
    assert plain.arrival_ns.tolist() == [0, NS_PER_S // 4]
    assert plain.prompt_tokens.tolist() == more.prompt_tokens.tolist() == [5, 7]
    assert more.output_tokens.tolist() == [2, 3]
    assert (more.arrival_ns == plain.arrival_ns).all()


@pytest.mark.parametrize(
    ("name", "text", "second_ns"),
    [
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,5,2\n2023-11-16 18:15:47.5,7,3\n",  # noqa: E501
            NS_PER_S,
        ),
        (
            "mooncake.jsonl",
            (
                '{"timestamp": 0, "input_length": 5, "output_length": 2}\n'
                '{"timestamp": 30, "input_length": 7, "output_length": 3}\n'
            ),
            NS_PER_S * 3 // 100,
        ),
        (
            "qwen.jsonl",
            (
                '{"timestamp": 60.25, "input_length": 5, "output_length": 2}\n'
                '{"timestamp": 61.25, "input_length": 7, "output_length": 3}\n'
            ),
            NS_PER_S,
        ),
        (
            "dates.jsonl",
            (
                '{"timestamp": "2024-01-01T00:00:00", "input_length": 5, "output_length": 2}\n'
                '{"timestamp": "2024-01-01T00:00:01", "input_length": 7, "output_length": 3}\n'
            ),
            NS_PER_S,
        ),
        (
            "burstgpt.csv",
            (
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                "5,ChatGPT,5,2,7,Conversation log\n6,GPT-4,7,3,10,API log\n"
            ),
            NS_PER_S,
        ),
        ("tabs.tsv", "input_toks\toutput_toks\n5\t2\n7\t3\n", 0),
        ("semicolons.csv", "input_toks;output_toks\n5;2\n7;3\n", 0),
        (
            "benchmark.json",
            '{"backend": "vllm", "input_lens": [5, 7], "output_lens": [2, 3], "ttfts": [1, 2]}',
            0,
        ),
        (
            "under.json",
            '{"requests": [{"input_len": 5, "output_len": 2}, {"input_len": 7, "output_len": 3}]}',
            0,
        ),
        (
            "vllm.json",
            '[{"prompt_len": 5, "output_len": 2}, {"prompt_len": 7, "output_len": 3}]',
            0,
        ),
    ],
)
def test_common_forms(name: str, text: str, second_ns: int, tmp_path: Path) -> None:
    found = read_requests(written(tmp_path / name, text))

    assert found.prompt_tokens.tolist() == [5, 7]
    assert found.output_tokens.tolist() == [2, 3]
    assert found.arrival_ns.tolist() == [0, second_ns]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"input_toks": 0, "output_toks": 3}', "has a prompt of 0 tokens, expected 1 or more"),
        ('{"input_toks": 4, "output_toks": 0}', "has a reply of 0 tokens"),
        ('{"input_toks": 4, "output_toks": -5}', "has a reply of -5 tokens, expected 1 or more"),
        ('{"input_toks": 4.5, "output_toks": 1}', "count no tokens"),
        ('{"conversations": []}', "texts need a tokenizer"),
        ('{"input_toks": 4}', "cannot tell how long"),
        ("[1]", "expected a mapping for every request"),
        ("", "holds no request"),
        ("{", "cannot read requests"),
        ('{"input_toks": 4, "output_toks": 1, "arrival": "noon"}', "must be a time"),
    ],
)
def test_bad_requests_are_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=words):
        read_requests(written(tmp_path / "bad.jsonl", text))


def test_laws_have_their_rate_and_their_lengths() -> None:
    law = "rate=20,prompt=500,output=100,prompt_spread=0.5,requests=20000"

    even, random, bursts = (
        requests_named(f"{name}:{law}") for name in ("constant", "poisson", "bursts")
    )

    for one in (even, random, bursts):
        assert one.rate == pytest.approx(20, rel=0.05)
        assert np.median(one.prompt_tokens) == pytest.approx(500, rel=0.02)
        assert (one.output_tokens == 100).all()
    spread = [float(np.diff(one.arrival_ns).std()) for one in (even, random, bursts)]
    assert spread == pytest.approx([0, NS_PER_S / 20, 2 * NS_PER_S / 20], rel=0.05, abs=10)


@pytest.mark.parametrize(
    "law", ["poisson:rate=1", "poisson:rate=x,prompt=1,output=1", "poisson:rate=1,prompt=1,out=2"]
)
def test_a_law_that_is_none(law: str) -> None:
    with pytest.raises(WorkloadError, match="cannot read the law"):
        requests_named(law)


@pytest.mark.parametrize("lengths", ["prompt=0,output=1", "prompt=nan,output=1"])
def test_a_law_of_nothing_is_a_sentence(lengths: str) -> None:
    with pytest.raises(WorkloadError, match=r"has prompts of (0|nan) tokens, expected 1 or more"):
        requests_named(f"poisson:rate=1,{lengths}")


def test_shares_are_all_requests() -> None:
    requests = requests_of(range(7), range(1, 8), range(1, 8))

    parts = [requests.share(part, 3) for part in range(3)]

    assert sorted(name for part in parts for name in part.names) == sorted(requests.names)


def test_what_is_kept_of_prompts_is_stated_or_told_by_hashes(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    rows = [([1, 2, 3], 1400), ([1, 2, 9], 1500), ([1, 2, 9], 1200), ([7], 100)]
    lines = [
        json.dumps({"timestamp": at, "input_length": size, "output_length": 5, "hash_ids": ids})
        for at, (ids, size) in enumerate(rows)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    stated = tmp_path / "stated.csv"
    stated.write_text(
        "prompt_tokens,output_tokens,cached_tokens\n10,2,4\n6,2,9\n", encoding="utf-8"
    )

    found = read_requests(path)

    assert found.cached_tokens is not None
    assert found.cached_tokens.tolist() == [0, 1024, 1200, 0]
    assert found.new_tokens.tolist() == [1400, 476, 1, 100]
    assert read_requests(stated).new_tokens.tolist() == [6, 1]
    law = requests_named("constant:rate=1,prompt=100,output=2,requests=3,hits=0.25")
    assert law.new_tokens.tolist() == [75] * 3
    with pytest.raises(WorkloadError, match="share of hits of 2 is none"):
        found.with_hits(2)


def test_a_hash_stands_for_as_many_tokens_as_fit(tmp_path: Path) -> None:
    rows = [
        {"timestamp": at, "input_length": size, "output_length": 2, "hash_ids": hashes}
        for at, size, hashes in ((0, 60, [1, 2, 3, 4]), (1, 70, [1, 2, 3, 8, 9]))
    ]

    found = read_requests(written(tmp_path / "q.jsonl", "\n".join(map(json.dumps, rows))))

    assert found.cached_tokens is not None
    assert found.cached_tokens.tolist() == [0, 3 * 16]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan"), 1e-12])
def test_a_rate_at_which_nothing_comes_is_a_sentence(rate: float) -> None:
    with pytest.raises(WorkloadError, match="3 requests cannot come at a rate of"):
        requests_of([0, 1, 2], [5, 5, 5], [2, 2, 2]).at_rate(rate)


@pytest.mark.parametrize(
    ("last", "words"), [("Infinity", "holds what is no time"), ("1e300", "more than engines run")]
)
def test_arrivals_beyond_all_time_are_a_sentence(last: str, words: str, tmp_path: Path) -> None:
    rows = [f'{{"input_toks": 5, "output_toks": 2, "arrival_time": {at}}}' for at in ("0", last)]

    with pytest.raises(WorkloadError, match=words):
        read_requests(written(tmp_path / "far.jsonl", "\n".join(rows)))
