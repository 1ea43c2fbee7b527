"""`read_sizes`: widths, heads and batch of recordings whose model is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import ScenarioError
from foretrace.graph import Recording
from foretrace.machine import load_machine
from foretrace.whatif.baseline import base_scenario
from foretrace.whatif.recorded.program import Program
from foretrace.whatif.recorded.read import program_of
from foretrace.whatif.resize.named import Divided, Sizes
from foretrace.whatif.resize.of_model import sizes_of
from foretrace.whatif.resize.read import read_sizes
from foretrace.workload import Implementation, Plan, Transformer
from tests.models import transformer
from tests.truth import JobConfig, single_kernel_layer
from tests.whatif.recorded.recordings import recording_of
from tests.whatif.resize.models import program_of_model


def small_model() -> Transformer:
    """Three layers of a small Llama."""
    model = transformer("llama3.2-1b")
    return replace(model, num_layers=3)


def loaded(path: Path) -> Program:
    """A recording of files, cut into pieces."""
    import foretrace

    recording: Recording = foretrace.load(path).recording
    return program_of(recording)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(micro_batch=2, global_batch=2, sequence=1024),
        Plan(tensor=2, data=2, micro_batch=2, global_batch=4, sequence=1024),
        Plan(
            tensor=2,
            micro_batch=4,
            global_batch=4,
            sequence=512,
            sequence_parallel=True,
            implementation=Implementation(attention="plain", fuses_projections=False),
        ),
        Plan(tensor=2, pipeline=2, micro_batch=1, global_batch=4, sequence=1024),
    ],
    ids=["alone", "divided", "plain attention", "stages"],
)
def test_the_models_own_sizes_are_read_off_its_shapes(plan: Plan) -> None:
    model = small_model()

    found = read_sizes(program_of_model(model, plan))

    assert found.sizes == sizes_of(model)
    assert (found.micro_batch, found.sequence) == (plan.micro_batch, plan.sequence)
    assert found.divided == Divided()
    assert found.notes == ()


def test_shapes_as_wide_as_a_whole_model_are_taken_not_to_be_divided_and_a_note_says_so() -> None:
    """Generated jobs write the same shapes whatever their tensor-parallel degree."""
    program = program_of(recording_of(JobConfig(tp=2, num_layers=2, num_steps=1)))

    found = read_sizes(program)

    expected = Sizes(
        layers=2,
        hidden=4096,
        feed_forward=16_384,
        heads=32,
        key_value_heads=32,
        head_width=128,
    )
    assert found.sizes == expected
    assert (found.micro_batch, found.sequence) == (4, 2048)
    assert not found.divided.attention
    assert "not to be divided over 2" in found.notes[0]


def test_stated_sizes_win_and_say_what_is_divided() -> None:
    program = program_of(recording_of(JobConfig(tp=2, num_layers=2, num_steps=1)))

    found = read_sizes(program, stated=Sizes(heads=64, feed_forward=32_768, key_value_heads=64))

    assert (found.sizes.heads, found.sizes.feed_forward) == (64, 32_768)
    assert found.divided.attention
    assert found.divided.feed_forward
    assert found.origin["heads"] == "stated"


def test_a_stated_size_that_shapes_contradict_is_refused_with_both_numbers() -> None:
    program = program_of(recording_of(JobConfig(tp=2, num_layers=2, num_steps=1)))

    with pytest.raises(ScenarioError, match="heads 48 is stated, and shapes show 32 on each of 2"):
        read_sizes(program, stated=Sizes(heads=48))


def test_the_scenario_before_edits_has_the_recorded_batch() -> None:
    plan = Plan(tensor=2, pipeline=2, micro_batch=2, global_batch=8, sequence=1024)
    program = program_of_model(small_model(), plan)

    scenario = base_scenario(program, machine=load_machine("superpod-h100"))

    assert scenario.plan.micro_batch == 2
    assert scenario.plan.sequence == 1024
    assert scenario.plan.num_microbatches == 4
    assert scenario.plan.precision.products == "bf16"
    assert scenario.machine == load_machine("superpod-h100")


def test_what_is_stated_of_the_batch_wins() -> None:
    program = program_of_model(small_model(), Plan(micro_batch=2, global_batch=4, sequence=1024))

    scenario = base_scenario(program, micro_batch=1, sequence=2048)

    assert (scenario.plan.micro_batch, scenario.plan.sequence) == (1, 2048)
    assert scenario.plan.num_microbatches == 2


def test_a_small_llama_on_cpus_is_read_with_its_grouped_attention(repository: Path) -> None:
    found = read_sizes(loaded(repository / "examples" / "cpu-llama-tp2-dp2"))

    assert found.sizes == Sizes(
        layers=3,
        hidden=256,
        feed_forward=704,
        heads=8,
        key_value_heads=4,
        head_width=32,
        vocabulary=2048,
    )
    assert (found.micro_batch, found.sequence, found.dtype) == (4, 128, "fp32")
    assert not found.divided.vocabulary  # each rank has all of it


def test_megatron_with_eight_tensor_ranks_is_read_as_its_description_says(data_dir: Path) -> None:
    """Sizes: README of the traces; heads and their width: `attention` of their operators."""
    found = read_sizes(loaded(data_dir / "traces" / "megatron-tp8"))

    assert found.sizes == Sizes(
        layers=40,
        hidden=4096,
        feed_forward=16_384,
        heads=64,
        key_value_heads=64,
        head_width=64,
        vocabulary=51_200,
    )
    assert (found.micro_batch, found.sequence, found.dtype) == (4, 2048, "fp16")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen_Qwen1.5-0.5B-Chat__1016005", (1024, 2816, 16, 16, 64, 151_936)),
        ("gaunernst_bert-small-uncased__1016001", (512, 2048, 8, 8, 64, 30_522)),
    ],
)
def test_models_of_the_hub_are_read_as_their_configurations_say(
    data_dir: Path, name: str, expected: tuple[int, ...]
) -> None:
    sizes = read_sizes(loaded(data_dir / "traces" / "h100-inference" / f"{name}.json.gz")).sizes

    assert (
        sizes.hidden,
        sizes.feed_forward,
        sizes.heads,
        sizes.key_value_heads,
        sizes.head_width,
        sizes.vocabulary,
    ) == expected


def test_a_layer_without_attention_says_nothing_of_heads() -> None:
    config = JobConfig(num_layers=2, num_steps=1, layer=single_kernel_layer(10_000, 20_000))

    found = read_sizes(program_of(recording_of(config)))

    assert replace(found.sizes, layers=None) == Sizes(hidden=4096)
    assert (found.micro_batch, found.sequence) == (4, 2048)
    assert found.to_polars().height == len(Sizes.__dataclass_fields__) + 2
    assert found.as_json()["dtype"] == "bf16"
