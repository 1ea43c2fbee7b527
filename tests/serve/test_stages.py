"""Requests in batches through stages: recommenders on cards, generators of pictures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.machine import load_machine
from foretrace.serve import (
    GeneratorWork,
    ServingStage,
    generator_ends,
    generator_work,
    recommender_stages,
    requests_named,
    staged_run,
)
from foretrace.workload import Recommender, load_model
from tests.serve.made import requests_of

LAW = "poisson:rate=100,prompt=1,output=1,requests=200"


def stage(ns: float, *, copies: int = 1, most: int = 8) -> ServingStage:
    """So long whatever the batch."""
    return ServingStage("made", "here", copies, np.full(most + 1, ns))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 3)), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_no_request_is_lost_and_none_overtakes(
    gaps: list[int], sizes: list[tuple[int, int]], batch: int
) -> None:
    arrival = np.cumsum(gaps) - gaps[0]
    requests = requests_of(arrival, [1] * len(gaps), [1] * len(gaps))
    stages = [stage(ns, copies=copies) for ns, copies in sizes]

    run = staged_run(requests, stages, most_batch=batch)

    assert run.sizes.sum() == len(gaps)
    assert (run.sizes <= batch).all()
    assert (run.first_ns >= arrival).all()
    assert (np.diff(run.first_ns) >= 0).all()
    assert (run.last_ns - run.first_ns >= sum(ns for ns, _ in sizes)).all()
    for at, (_, copies) in enumerate(sizes):
        begins, ends = run.start_ns[:, at], run.end_ns[:, at]
        beside = [((begins <= begin) & (ends > begin)).sum() for begin in begins]
        assert max(beside) <= copies


def test_one_stage_of_single_requests_is_the_queue_of_the_textbook() -> None:
    requests = requests_named("poisson:rate=800,prompt=1,output=1,requests=200000")

    run = staged_run(requests, [stage(1e6)])

    waited = float((run.first_ns - requests.arrival_ns).mean())
    load = requests.rate * 1e-3
    assert waited == pytest.approx(load / (2 * (1 - load)) * 1e6, rel=0.02)


def test_a_request_alone_takes_its_stages_to_the_nanosecond() -> None:
    run = staged_run(requests_of([0], [1], [1]), [stage(7), stage(11), stage(13)])

    assert run.last_ns.tolist() == [31]


def dlrm() -> Recommender:
    model = load_model("dlrm-mlperf-v2")
    assert isinstance(model, Recommender)
    return model


def test_narrow_tables_take_fewer_bytes_and_lookups_less_time() -> None:
    machine = load_machine("six-l4")
    found = {
        name: recommender_stages(dlrm(), machine, most_batch=64, table_format=name, dense_cards=2)
        for name in ("fp16", "int8", "int4")
    }
    rows, columns = sum(dlrm().rows), dlrm().size

    for name, width in (("fp16", 2 * columns), ("int8", columns + 4), ("int4", columns // 2 + 4)):
        assert sum(found[name].bytes_by_card) == rows * width
    times = [found[name].stages[1].batch_ns[64] for name in ("fp16", "int8", "int4")]
    assert times[0] > times[1] > times[2]


def test_throughput_is_the_slowest_stages() -> None:
    found = ft.serve_staged(
        "dlrm-mlperf-v2",
        machine="six-l4",
        requests="poisson:rate=10000000,prompt=1,output=1,requests=20000",
        batch=256,
        table_format="int8",
    )

    assert found.most_per_s == min(one.rate for one in found.stages)
    assert 0.8 * found.most_per_s < found.requests_per_s <= found.most_per_s
    assert found.slowest.busy_share > 0.9
    assert found.latency_ms.low <= found.latency_ms.mean <= found.latency_ms.high


def test_what_does_not_fit_is_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="do not fit the cards of"):
        ft.serve_staged("dlrm-mlperf-v2", machine="pc-rtx-4090", requests=LAW, table_format="fp32")
    with pytest.raises(WorkloadError, match="makes tokens one after the other"):
        ft.serve_staged("llama3-8b", machine="six-l4", requests=LAW)
    with pytest.raises(WorkloadError, match="6 of 6 cards cannot run the networks"):
        ft.serve_staged("dlrm-mlperf-v2", machine="six-l4", requests=LAW, dense_cards=6)


def passes(name: str, *, batch: int = 2) -> tuple[GeneratorWork, GeneratorWork]:
    """With scores written to memory, and with fused attention."""
    model, machine = load_model(name), load_machine("dgx-a100")
    plain, fused = (
        generator_work(model, machine, batch=batch, attention=one) for one in ("plain", "flash")
    )
    return plain, fused


def shares(found: GeneratorWork) -> dict[str, float]:
    return {one.kind: one.share for one in found.shares}


def test_convolutions_lead_a_diffusion_network_once_attention_is_fused() -> None:
    """Golden et al., arXiv:2312.14385, as all trends below."""
    plain, fused = passes("stable-diffusion-1.5")
    seen = [one.positions for one in fused.positions]

    by_kind = shares(fused)
    assert max(by_kind, key=lambda kind: by_kind[kind]) == "convolution"
    assert shares(plain)["convolution"] < by_kind["convolution"] < 0.44
    assert fused.num_parameters == pytest.approx(0.86e9, rel=0.01)
    # From level to level four times fewer positions, and again as many on the way up.
    assert set(seen) == {4096, 1024, 256, 64}
    assert seen == seen[: len(seen) // 2] + sorted(seen[len(seen) // 2 :])


def test_attention_over_time_leads_attention_of_clips() -> None:
    clip = shares(passes("modelscope-video", batch=1)[1])

    over_time, within = clip["attention over time"], clip["attention"]
    assert over_time / (over_time + within + clip["attention to the text"]) > 0.6


def test_linear_layers_lead_generators_of_patches_and_of_tokens() -> None:
    patches = shares(passes("stable-diffusion-3-medium")[1])
    tokens = shares(passes("llamagen-3b", batch=64)[1])

    assert "convolution" not in patches
    for one in (patches, tokens):
        assert one["linear"] == max(one.values())
    # Up to 49 % of what was studied; heads of 64 attend a little faster in encoders' tables.
    assert tokens["linear"] < 0.49
    assert patches["linear"] == pytest.approx(0.49, abs=0.03)


def test_diffusion_gains_more_from_fused_attention_than_tokens_one_by_one() -> None:
    gains = {
        name: plain.ns / fused.ns
        for name, (plain, fused) in (
            (name, passes(name))
            for name in ("llamagen-3b", "stable-diffusion-1.5", "stable-diffusion-3-medium")
        )
    }

    of_tokens = gains.pop("llamagen-3b")
    assert of_tokens > 1
    for gain in gains.values():
        assert 1.1 < gain / of_tokens < 2.5


def test_a_picture_of_tokens_takes_a_pass_for_each() -> None:
    model, machine = load_model("llamagen-3b"), load_machine("dgx-a100")
    found = ft.serve_staged("llamagen-3b", machine="dgx-a100", requests=LAW, batch=1)

    one = generator_work(model, machine, batch=2)
    assert found.stages[0].one_ms == pytest.approx(576 * one.ns / 1e6)
    assert [each.positions for each in one.positions] == list(range(72, 577, 72))


def test_a_loop_takes_its_passes() -> None:
    found = ft.serve_staged(
        "stable-diffusion-1.5", machine="dgx-a100", requests=LAW, batch=1, denoising_steps=20
    )
    one = generator_work(load_model("stable-diffusion-1.5"), load_machine("dgx-a100"), batch=2)

    once = sum(end.ms for end in found.ends)
    assert found.stages[0].one_ms == pytest.approx(20 * one.ns / 1e6 + once)
    assert found.stages[0].copies == 8


def test_larger_batches_of_large_heads_take_no_more_each() -> None:
    model, machine = load_model("flux.1-dev"), load_machine("dgx-h100")

    one, eight = (generator_work(model, machine, batch=size).ns / size for size in (1, 8))

    assert eight < one


def test_attention_of_no_known_kind_is_a_sentence() -> None:
    with pytest.raises(WorkloadError, match="'paged': expected flash or plain"):
        generator_work(load_model("flux.1-dev"), load_machine("dgx-h100"), attention="paged")


CLIP_L, CLIP_L_PROJECTED, CLIP_G = 123_060_480, 123_650_304, 694_659_840
CLIP_H, T5_XXL = 340_387_840, 4_762_310_656
PIXELS_OF_4, PIXELS_OF_16 = 49_490_199, 49_545_475  # decoders alone, of 83.65 and 83.82 million


@pytest.mark.parametrize(
    ("name", "parameters"),
    [  # of the published weights
        ("stable-diffusion-1.5", [CLIP_L, PIXELS_OF_4]),
        ("stable-diffusion-xl", [CLIP_L, CLIP_G, PIXELS_OF_4]),
        ("stable-diffusion-3-medium", [CLIP_L_PROJECTED, CLIP_G, T5_XXL, PIXELS_OF_16]),
        ("flux.1-dev", [CLIP_L, T5_XXL, PIXELS_OF_16]),
        ("modelscope-video", [CLIP_H, PIXELS_OF_4]),
    ],
)
def test_texts_are_read_and_pixels_made_by_networks_of_the_published_size(
    name: str, parameters: list[int]
) -> None:
    found = generator_ends(load_model(name), load_machine("dgx-a100"))

    assert [one.parameters for one in found] == parameters
    assert all(one.ms > 0 for one in found)


def test_what_is_done_once_for_a_picture_weighs_more_in_short_loops() -> None:
    model, machine = load_model("stable-diffusion-1.5"), load_machine("dgx-a100")
    few, many = (
        ft.serve_staged(model, requests=LAW, machine=machine, batch=1, denoising_steps=steps)
        for steps in (4, 50)
    )
    once = sum(one.ms for one in few.ends)
    a_pass = generator_work(model, machine, batch=2).ns / 1e6

    assert few.stages[0].one_ms == pytest.approx(4 * a_pass + once, rel=1e-6)
    assert many.stages[0].one_ms == pytest.approx(50 * a_pass + once, rel=1e-6)
    text, pixels = few.ends
    assert text.ms < 0.1 * pixels.ms  # 154 tokens beside a quarter of a million pixels
    assert few.memory[0][1] == 2 * (859_520_964 + text.parameters + pixels.parameters)
    assert not any("not counted" in note for note in few.notes)


def test_a_clip_has_each_frames_pixels_made() -> None:
    machine = load_machine("dgx-a100")
    picture, clip = (
        generator_ends(load_model(name), machine)[-1]
        for name in ("stable-diffusion-1.5", "modelscope-video")
    )

    # 16 frames of a quarter of the area; attention of a sixteenth of the pairs.
    assert 3 < clip.ms / picture.ms < 4.2


def test_a_model_of_totals_alone_is_not_said_to_make_tokens() -> None:
    with pytest.raises(WorkloadError, match="'zionex-12t' is a totals, of which neither"):
        generator_work(load_model("zionex-12t"), load_machine("dgx-h100"))
