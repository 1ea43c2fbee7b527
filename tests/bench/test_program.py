"""What a program says, of traces written by hand; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace
from foretrace.base import TraceError
from foretrace.bench import generate
from foretrace.bench.assembly import program_of
from foretrace.bench.repetition import Item, RepeatedCalls, runs_of, wiring
from foretrace.bench.schema import parsed_schema
from foretrace.bench.text import text_of
from foretrace.bench.timing import NOTHING_MEASURED, OperatorTimes
from foretrace.bench.tree import tree_of
from foretrace.trace import read_execution_nodes
from tests.bench.traces import ADD_, LINEAR, MM, RELU, TRANSPOSE, Seen, Written

INPUT, WEIGHT = Seen(10, 11), Seen(12, 13)


def step_of(path: Path) -> list[str]:
    """The lines of a program's step, comments left out."""
    text = generate(path).text
    body = text[text.index("def step(") :].split("\n\n\n")[0].splitlines()[2:]
    return [line.partition("  #")[0].strip() for line in body if not line.strip().startswith("#")]


def test_results_are_reused_and_forgotten_after_their_last_use(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, MM, [INPUT, WEIGHT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [Seen(21, 22)], makes=[Seen(24, 25)])
    trace.add(26, MM, [Seen(24, 25), WEIGHT], makes=[Seen(27, 28)])

    assert step_of(trace.write(tmp_path)) == [
        "t2 = aten.mm.default(x.a0, x.a1)",
        "t3 = aten.relu.default(t2)",
        "del t2",
        "aten.mm.default(t3, x.a1)",
        "del t3",
    ]


def test_an_id_that_is_used_again_is_another_tensor(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [WEIGHT], makes=[Seen(21, 22)])  # the first is gone
    trace.add(24, RELU, [Seen(21, 22)], makes=[Seen(25, 26)])

    assert step_of(trace.write(tmp_path)) == [
        "aten.relu.default(x.a0)",
        "t2 = aten.relu.default(x.a1)",
        "aten.relu.default(t2)",
        "del t2",
    ]


def test_what_autograd_kept_opens_the_operator_that_made_it(tmp_path: Path) -> None:
    turned = Seen(31, 13, strides=(1, 4))
    trace = Written()
    trace.add(30, TRANSPOSE, [WEIGHT], makes=[turned], parent=29)
    trace.add(32, MM, [INPUT, turned], makes=[Seen(33, 34)], parent=29)
    trace.add(29, LINEAR, [INPUT, WEIGHT], makes=[Seen(33, 34)])
    trace.add(40, MM, [Seen(33, 34), Seen(41, 13, strides=(1, 4))], makes=[Seen(42, 43)])

    assert step_of(trace.write(tmp_path)) == [
        "t2 = aten.t.default(x.a0)",
        "t3 = aten.mm.default(x.a1, t2)",
        "aten.mm.default(t3, t2)",
        "del t3, t2",
    ]


def test_an_operator_stays_whole_if_nothing_inside_it_is_read(tmp_path: Path) -> None:
    turned = Seen(31, 13, strides=(1, 4))
    trace = Written()
    trace.add(30, TRANSPOSE, [WEIGHT], makes=[turned], parent=29)
    trace.add(32, MM, [INPUT, turned], makes=[Seen(33, 34)], parent=29)
    trace.add(29, LINEAR, [INPUT, WEIGHT], makes=[Seen(33, 34)])

    assert step_of(trace.write(tmp_path)) == ["aten.linear.default(x.a0, x.a1)"]


def test_a_view_that_no_operator_returned_is_cut(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [Seen(24, 22, shape=(2,), strides=(1,), offset=3)], makes=[Seen(25, 26)])

    assert step_of(trace.write(tmp_path))[:2] == [
        "t1 = aten.relu.default(x.a0)",
        "t2 = t1.as_strided((2,), (1,), 3)",
    ]


def test_tensors_of_one_memory_share_it(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, MM, [INPUT, Seen(14, 11, strides=(1, 4))], makes=[Seen(21, 22)])

    text = generate(trace.write(tmp_path)).text

    assert "memory = make.floats(16)" in text
    assert "x.a0 = memory.as_strided((4, 4), (4, 1), 0)" in text
    assert "x.a1 = memory.as_strided((4, 4), (1, 4), 0)" in text


def test_a_number_that_was_wrapped_is_a_number_again(tmp_path: Path) -> None:
    trace = Written()
    number = Seen(14, 15, shape=(), strides=(), dtype="double")
    trace.add(20, ADD_, [INPUT, number, 2], makes=[INPUT])

    assert step_of(trace.write(tmp_path)) == ["aten.add_.Tensor(x.a0, 1.0, alpha=2)"]


def test_a_size_that_depends_on_values_is_the_recorded_one(tmp_path: Path) -> None:
    trace = Written()
    found = Seen(21, 22, shape=(3, 2), strides=(2, 1), dtype="long int")
    trace.add(20, "aten::nonzero(Tensor self) -> Tensor", [INPUT], makes=[found])
    trace.add(23, RELU, [found], makes=[Seen(24, 25)])

    assert step_of(trace.write(tmp_path))[:2] == [
        "t1 = aten.nonzero.default(x.a0)",
        "t1 = sized(t1, (3, 2))",
    ]


def test_an_operator_of_a_library_has_a_place_to_be_registered(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, "fbgemm::merge(Tensor a) -> Tensor", [INPUT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [Seen(21, 22)], makes=[Seen(24, 25)])

    made = generate(trace.write(tmp_path))

    assert made.program.coverage.share == 0.5
    assert made.to_polars().rows() == [("fbgemm::merge", "from the library 'fbgemm'", 1, 0)]
    assert '# "fbgemm::merge": your_function,  # 1 calls: from the library' in made.text
    assert 't1 = other("fbgemm::merge", [x.a0], [((4, 4), torch.float32)])' in made.text


def test_a_node_that_ended_later_did_not_run_inside(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [WEIGHT], makes=[Seen(24, 25)], parent=20)

    assert len(step_of(trace.write(tmp_path))) == 2


def test_a_worker_of_a_kernel_is_not_replayed_by_itself(tmp_path: Path) -> None:
    trace = Written()
    trace.add(90, "", name="[pytorch|profiler|execution_trace|thread]", parent=1)
    trace.add(21, RELU, [WEIGHT], makes=[Seen(24, 25)], parent=90)
    trace.add(20, RELU, [INPUT], makes=[Seen(26, 27)])

    assert step_of(trace.write(tmp_path)) == ["aten.relu.default(x.a0)"]


def test_streams_wait_for_what_they_need(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])
    trace.add(23, RELU, [Seen(21, 22)], makes=[Seen(24, 25)])
    trace.add(26, RELU, [Seen(24, 25)], makes=[Seen(27, 28)])
    trace.add(29, RELU, [Seen(27, 28)], makes=[Seen(30, 31)])
    tree = tree_of(read_execution_nodes(trace.write(tmp_path)))
    stream = {20: 7, 23: 20, 26: 7, 29: 7}
    measured = OperatorTimes({}, stream, 0, 0, is_joined=True)

    text = text_of(program_of(tree, source="", measured=measured), recipe="{}")

    lines = [line.strip() for line in text[text.index("def step(") :].splitlines()[2:9]]
    assert lines[0].startswith("t1 = aten.relu")
    assert lines[1] == "with on(20, after=[-1]):"
    assert lines[4] == "join(20)"


def test_the_verb_takes_words(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])

    made = foretrace.benchmark(str(trace.write(tmp_path)), mode="compute")
    made.write(tmp_path / "out" / "bench.py")

    assert made.as_json()["operators"] == 1
    assert (tmp_path / "out" / "bench.py").read_text(encoding="utf-8") == made.text


def test_nothing_measured_is_no_time() -> None:
    assert NOTHING_MEASURED.busy_share is None


def test_a_file_that_is_no_execution_trace_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[1, 2]", encoding="utf-8")

    with pytest.raises(TraceError, match="expected an execution trace"):
        generate(path)


@pytest.mark.parametrize(
    ("text", "operator", "overload", "results"),
    [
        (ADD_, "aten::add_", "Tensor", ("Tensor",)),
        ("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", "aten::unbind", "int",
         ("Tensor[]",)),
        ("aten::p(Tensor a, int[2] k, int[2] d=[1, 1]) -> (Tensor output, Tensor indices)",
         "aten::p", "default", ("Tensor", "Tensor")),
        ("aten::none(Tensor a) -> ()", "aten::none", "default", ()),
    ],
)  # fmt: skip
def test_schemas(text: str, operator: str, overload: str, results: tuple[str, ...]) -> None:
    found = parsed_schema(text)

    assert found is not None
    assert (found.operator, found.overload, found.results) == (operator, overload, results)


def test_schema_parameters_know_what_goes_by_name() -> None:
    found = parsed_schema(ADD_)

    assert found is not None
    shown = [(one.name, one.default, one.is_keyword) for one in found.parameters]
    assert shown == [("self", None, False), ("other", None, False), ("alpha", "1", True)]


def layer(reads: int, weight: int) -> list[Item]:
    """Three calls: from a value and a weight to a value."""
    return [
        Item("mm", (reads, weight), (reads + 1,)),
        Item("relu", (reads + 1,), (reads + 2,)),
        Item("add", (reads + 2, reads), (reads + 3,)),
    ]


def test_layers_in_a_row_are_one_run() -> None:
    items = [Item("first", (), (0,))]
    items += [one for i in range(4) for one in layer(3 * i, 100 + i)]
    items += [Item("last", (12,), (13,))]

    assert runs_of(items) == (RepeatedCalls(1, 3, 4),)


def test_a_layer_wired_otherwise_ends_a_run() -> None:
    items = [one for i in range(6) for one in layer(3 * i, 100 + i)]
    items[11] = Item("add", (11, 2), (12,))  # skips from the first layer

    (run,) = runs_of(items[:9])
    windows = [wiring([items[at] for at in window]) for window in RepeatedCalls(0, 3, 6).windows()]

    assert (run.period, run.count) == (3, 3)
    assert windows[3] != windows[2]
    assert windows[3] != windows[4]


def test_what_has_no_key_is_in_no_run() -> None:
    items = [Item(None, (), ()) for _ in range(30)]

    assert runs_of(items) == ()
