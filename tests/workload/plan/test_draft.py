from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import DescriptionKey, WorkloadError
from foretrace.workload import (
    Adapters,
    Axis,
    Channels,
    ContextExchange,
    Dispatch,
    Implementation,
    Overlap,
    Plan,
    PlanDraft,
    Precision,
    Recompute,
    Sharding,
    TableScheme,
    TableSharding,
    draft_of,
    load_plan,
    parsed_keys,
    plan_names,
    plan_table,
)
from foretrace.workload.plan.keys import KEYS, plan_value
from tests.workload.plan.plans import plans

# What a TOML file may hold.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["full"]),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=5,
)

FULL = """
[parallelism]
tp = 8
cp = 2
dp = 4
pp = 2
ep = 4
etp = 2
order = ["tp", "cp", "pp", "dp"]
sequence_parallel = true
context_exchange = "ring"

[batch]
micro_batch = 2
global_batch = 64
sequence = 4096

[pipeline]
schedule = "interleaved"
chunks = 2
contiguous = 4
layers_of_chunk = [3, 4, 4, 3]

[sharding]
level = "zero3"
ranks = 4
reshard_after_forward = false
prefetch = 0
bucket_bytes = 1000000

[memory]
recompute = "selective"

[experts]
token_shares = [0.75, 0.25]

[overlap]
tensor = true
gradients = false

[precision]
products = "fp8"
optimizer_bytes = 8

[implementation]
attention = "plain"
launch = "graph"

[tables]
scheme = "row-wise"
exceptions = [[3, "data-parallel"]]
capacity_bytes = 1000
"""


def test_everything_that_a_file_states_reaches_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FULL)

    plan = load_plan(path).plan()

    assert plan == Plan(
        name="mine",
        path=path,
        tensor=8,
        context=2,
        data=4,
        pipeline=2,
        expert=4,
        expert_tensor=2,
        order=(Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE, Axis.DATA),
        sequence_parallel=True,
        context_exchange=ContextExchange.RING,
        micro_batch=2,
        global_batch=64,
        sequence=4096,
        schedule="interleaved",
        num_chunks=2,
        contiguous=4,
        layers_of_chunk=(3, 4, 4, 3),
        sharding=Sharding.ZERO3,
        shard_ranks=4,
        reshard_after_forward=False,
        prefetch=0,
        bucket_bytes=1_000_000,
        recompute=Recompute.SELECTIVE,
        token_shares=(0.75, 0.25),
        overlap=Overlap(tensor=True, gradients=False),
        precision=Precision(products="fp8", optimizer_bytes=8.0),
        implementation=Implementation(attention="plain", launch="graph"),
        tables=TableSharding(
            scheme=TableScheme.ROW,
            exceptions=((3, TableScheme.DATA),),
            capacity_bytes=1000,
        ),
    )
    # A word that merely equals its member would not be it.
    assert plan.sharding is Sharding.ZERO3
    assert plan.recompute is Recompute.SELECTIVE
    assert plan.context_exchange is ContextExchange.RING
    assert plan.tables is not None
    assert plan.tables.scheme is TableScheme.ROW


def leaves(of: type, prefix: str = "") -> set[str]:
    """Fields of a plan and of its parts, as drafts call them."""
    found = set()
    for field in fields(of):
        parts = {"overlap": Overlap, "precision": Precision, "tables": TableSharding}
        parts |= {"dispatch": Dispatch, "implementation": Implementation, "adapters": Adapters}
        parts |= {"channels": Channels}
        part = parts.get(field.name)
        if part is not None and is_dataclass(part):
            found |= leaves(part, f"{field.name}.")
        else:
            found.add(prefix + field.name)
    return found


def test_every_field_of_a_plan_has_one_key_in_plan_files() -> None:
    assert sorted(key.field for key in KEYS) == sorted(leaves(Plan) - {"name", "path"})
    assert len({key.path for key in KEYS}) == len(KEYS)


@given(plans())
def test_a_plan_written_as_tables_is_read_back(plan: Plan) -> None:
    tables = json.loads(json.dumps(plan_table(plan)))

    assert draft_of(tables).plan() == plan


def test_a_draft_knows_what_it_states_and_nothing_else() -> None:
    draft = draft_of(tomllib.loads("[parallelism]\ntp = 1\n"))

    assert draft.states("tensor")
    assert not draft.states("data")


def test_flags_beat_the_file() -> None:
    draft = draft_of(tomllib.loads("[parallelism]\ntp = 8\ndp = 4\n"))

    plan = draft.with_keys({"tp": 2, "overlap.tensor": True, "pp": None}).plan()

    assert (plan.tensor, plan.data, plan.pipeline) == (2, 4, 1)
    assert plan.overlap == Overlap(tensor=True)


def test_settings_are_read_as_in_a_file() -> None:
    texts = ["tp=8", "recompute = full", 'schedule="gpipe"', "order=['pp', 'tp', 'dp', 'cp']"]

    plan = PlanDraft().with_keys(parsed_keys([*texts, "overlap.gradients=false"])).plan()

    assert plan.tensor == 8
    assert plan.recompute is Recompute.FULL
    assert plan.schedule == "gpipe"
    assert plan.order[0] is Axis.PIPELINE
    assert not plan.overlap.gradients


def test_a_file_extends_another_or_a_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "megatron"\n[parallelism]\ntp = 4\n')

    draft = load_plan("mine", [tmp_path])

    assert draft.plan().tensor == 4
    assert draft.plan().sharding is Sharding.ZERO1
    assert "mine" in plan_names([tmp_path])


@pytest.mark.parametrize("name", plan_names())
def test_a_preset_states_its_title_and_can_be_read(name: str) -> None:
    draft = load_plan(name)

    assert draft.title not in {"", name}
    assert draft.stated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[paralellism]\ntp = 1", "did you mean 'parallelism'?"),
        ("[parallelism]\ntensor = 1", "[parallelism] of plan file"),
        ("[parallelism]\ntp = 0", "'tp' of [parallelism] of plan file"),
        ("[parallelism]\ntp = 0", "is 0, where a whole number of at least 1 is expected"),
        ("[parallelism]\ntp = true", "is True, where a whole number"),
        ("[parallelism]\ntp = 2.0", "is 2.0, where a whole number"),
        ("[parallelism]\norder = ['tp']", "a list of tp, cp, dp, pp in some order"),
        ("[parallelism]\nsequence_parallel = 1", "is 1, where true or false"),
        ("[batch]\nsequence = -1", "is -1, where"),
        ("[pipeline]\nlayers_of_chunk = []", "is [], where a list of whole numbers"),
        ("[pipeline]\nschedule = ''", "where the name of a schedule, or of its file"),
        ("[sharding]\nlevel = 'zero-3'", "one of none, zero1, zero2, zero3 is expected; did you"),
        ("[memory]\nrecompute = 'all'", "one of none, selective, full"),
        ("[experts]\ntoken_shares = [-1]", "a list of shares of at least 0"),
        ("[experts]\ntoken_shares = [inf]", "a list of shares of at least 0"),
        ("[precision]\nproducts = 'bf17'", "did you mean 'bf16'?"),
        ("[precision]\noptimizer_bytes = nan", "is nan, where a number of at least 0"),
        ("[implementation]\nlaunch = 'graphs'", "did you mean 'graph'?"),
        ("[tables]\nexceptions = [[1, 'x']]", "a list of [table, scheme]"),
        ("[tables]\nexceptions = [1]", "a list of [table, scheme]"),
        ("parallelism = 3", "is 3, where a table is expected"),
        ("kind = 'model'", 'write kind = "plan"'),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)

    with pytest.raises(WorkloadError) as caught:
        load_plan(path)

    assert message in str(caught.value)
    assert "wrong.toml" in str(caught.value)


def _holds(key: DescriptionKey, value: object) -> bool:
    try:
        plan_value(key, value, "a plan")
    except WorkloadError:
        return False
    return True


@given(st.sampled_from(KEYS), ANYTHING)
def test_any_value_is_read_and_written_back_or_refused(key: DescriptionKey, value: object) -> None:
    if value is not None and not _holds(key, value):
        with pytest.raises(WorkloadError, match=key.name):
            PlanDraft().with_keys({key.path: value})
        return

    plan = PlanDraft().with_keys({key.path: value}).plan()

    assert draft_of(plan_table(plan)).plan() == plan


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tpp": 8}, "plans have no key 'tpp': did you mean 'tp'?"),
        ({"zzzzzz": 8}, "see docs/plans.md"),
        ({"gradients": True}, "write overlap.gradients or precision.gradients"),
        ({"tp": "eight"}, "'tp' of what was asked for is 'eight'"),
    ],
)
def test_a_flag_that_means_nothing_is_refused(keys: Mapping[str, object], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        PlanDraft().with_keys(keys)

    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["tp", "=8", ""])
def test_a_setting_without_a_key_and_a_value_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="sets nothing: write a key and a value"):
        parsed_keys([text])


def test_a_plan_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        WorkloadError, match=r"no plan is called 'megatrom'.* did you mean megatron"
    ):
        load_plan("megatrom")
