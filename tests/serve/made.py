"""Requests, engines and step times that tests make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from foretrace.base import Int64s
from foretrace.serve import (
    Engine,
    EngineStepTimes,
    PipelineStages,
    ProfileGrid,
    Requests,
    StepCalibration,
)


def requests_of(arrival: object, prompt: object, output: object) -> Requests:
    def column(values: object) -> Int64s:
        return np.asarray(values, np.int64)

    arrivals = column(arrival)
    names = tuple(map(str, range(len(arrivals))))
    return Requests("made", arrivals, column(prompt), column(output), names)


def grown_times(
    *, num_tokens: int = 4096, num_sequences: int = 512, ranks: int = 1
) -> EngineStepTimes:
    """Steps that grow with all that they work on, in ns."""

    def grid(*factors: float) -> ProfileGrid:
        axes = tuple(np.array([0.0, 8.0, 64.0, 1024.0]) for _ in factors)
        corners = np.meshgrid(*axes, indexing="ij")
        total = 3.0 + sum(factor * corner for factor, corner in zip(factors, corners, strict=True))
        product = corners[-1] * corners[-2]
        return ProfileGrid(axes, total + 0.01 * product)

    tokens = np.arange(num_tokens + 1, dtype=np.float64)
    return EngineStepTimes(
        token_ns=100 + 2 * tokens,
        sequence_ns=np.arange(num_sequences + 1) * np.float64(5),
        shared_ns=np.arange(ranks * num_tokens + 1) * np.float64(0.1),
        decode=grid(1, 0.1),
        prefill=grid(2, 0.2),
        mixed=grid(2, 0.2, 1, 0.1),
        num_ranks=ranks,
        low=0.9,
        high=1.1,
        source="made",
        calibration=StepCalibration(np.array([[1.0, 0.0], [1.1, 50.0]])),
    )


def staged(times: EngineStepTimes, shares: list[float], sent_ns: float = 0.0) -> EngineStepTimes:
    """The same layers over stages."""
    zeros = np.zeros(len(times.token_ns))
    both = np.repeat(np.array(shares)[:, None], 2, axis=1)
    return replace(times, pipeline=PipelineStages(both, zeros, zeros + sent_ns))


BLOCK = 4
MOST_PROMPT, MOST_OUTPUT = 40, 30


@st.composite
def workloads(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 25))
    numbers = st.integers
    gaps = draw(st.lists(numbers(0, 3000), min_size=count, max_size=count))
    prompt = draw(st.lists(numbers(1, MOST_PROMPT), min_size=count, max_size=count))
    output = draw(st.lists(numbers(1, MOST_OUTPUT), min_size=count, max_size=count))
    cached = draw(st.lists(numbers(0, MOST_PROMPT), min_size=count, max_size=count))
    made = requests_of(np.cumsum(gaps) - gaps[0], prompt, output)
    if draw(st.booleans()):
        return made
    return replace(made, cached_tokens=np.minimum(np.array(cached), made.prompt_tokens))


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    return Engine(
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.integers(MOST_PROMPT + MOST_OUTPUT, 96)),
        block_size=BLOCK,
        enable_chunked_prefill=draw(st.booleans()),
        enable_prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        scheduler_reserve_full_isl=draw(st.booleans()),
        is_static=draw(st.booleans()),
        num_speculative_tokens=draw(st.sampled_from([0, 0, 1, 3])),
        acceptance_rate=draw(st.sampled_from([0.0, 0.5, 1.0])),
        sequence_blocks=draw(st.sampled_from([0, 0, 1, MOST_OF_SEQUENCE])),
    )


MOST_OF_SEQUENCE = 2
LEAST_BLOCKS = (MOST_PROMPT + MOST_OUTPUT) // BLOCK + 3 + MOST_OF_SEQUENCE


def constant_step(step_ns: int) -> EngineStepTimes:
    """Steps that all take as long, whatever they work on."""
    flat = [np.array([0.0, 1.0])]
    return EngineStepTimes(
        token_ns=np.full(2049, float(step_ns)),
        sequence_ns=np.zeros(257),
        shared_ns=np.zeros(2049),
        decode=ProfileGrid((*flat * 2,), np.zeros((2, 2))),
        prefill=ProfileGrid((*flat * 2,), np.zeros((2, 2))),
        mixed=ProfileGrid((*flat * 4,), np.zeros((2, 2, 2, 2))),
        num_ranks=1,
        low=1.0,
        high=1.0,
        source="one constant",
    )
