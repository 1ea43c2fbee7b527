"""Texts of a trace enter a program as data: none of them runs, none breaks it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from foretrace.base import TraceError
from foretrace.bench import Recipe, generate
from tests.bench.conftest import step_here
from tests.bench.traces import RELU, Seen, Written

INPUT = Seen(10, 11)
ALLREDUCE = "c10d::allreduce_(Tensor[] tensors, Any group) -> (Tensor[], Any)"
CODE = "open('ran', 'w').close()"
TEXTS = [
    f"\n{CODE}",
    f"\f{CODE}",
    f"\x1c{CODE}",
    f"\u2028{CODE}",
    f"\r{CODE}",
    f'"); {CODE}; ("',
    f"'); {CODE}; ('",
    f'"""; {CODE}; """',
    f'\\"""\n{CODE}\n"""',
    f'\\"); {CODE}  # ',
    'one  # two, (three "  # "',
    f"{' ' * 90}, (\n    {CODE}, '  # ', [",
    "\x00\x1b[2J",
]


def trace_of(text: str, folder: Path) -> Path:
    """A trace whose texts that go into a program as they are all say this, or end with it."""
    trace = Written()
    # Labels, names of operators and libraries, schemas, groups, texts among the arguments.
    trace.add(3, "", name=text)
    for node, schema, name in (
        (20, RELU, "aten::relu"),
        (30, "aten::x.y(Tensor self) -> Tensor", f"mine::{text}"),
        (40, f"aten::{text}.default(Tensor self) -> Tensor", "aten::relu"),
        (50, f"aten::relu.{text}(Tensor self) -> Tensor", "aten::relu"),
        (60, f"{text}::relu(Tensor self) -> Tensor", "aten::relu"),
    ):
        trace.add(node, schema, [INPUT], makes=[Seen(node + 1, node + 2)], parent=3, name=name)
    trace.add(70, "mine::said(Tensor self, str how) -> ()", [INPUT, text], parent=3)
    trace.add(80, "aten::upper(str self) -> str", [f"{'long, ' * 30}{text}"], parent=3)
    trace.nodes[-2]["inputs"]["types"] = ["Tensor(float)", "String"]
    trace.nodes[-1]["inputs"]["types"] = ["String"]
    trace.add(91, "", parent=90, name="record_param_comms")
    trace.nodes[-1]["attrs"].append({"name": "pg_name", "type": "", "value": text})
    trace.add(90, ALLREDUCE, [[INPUT]], parent=3)
    groups = [{"pg_name": text, "ranks": [0, 1], "group_size": 2}]
    trace.add(4, "", [json.dumps(groups)], name="## process_group:init ##")
    path = trace.write(folder)
    name = re.sub(r"[/\x00]", "", text) or "et"
    return path.rename(folder / f"{name}.json")


def shape_of_program(text: str) -> str:
    """A program's syntax tree with every text in it, and so its docstring, left out."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_a_trace_are_data_in_a_program(
    text: str, is_flat: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hostile", "harmless", "run"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "run")
    trace = trace_of(text, tmp_path / "hostile")
    recipe = Recipe(is_flat=is_flat)

    made = generate(trace, recipe=recipe)
    harmless = generate(trace_of("a-b", tmp_path / "harmless"), recipe=recipe)

    assert made.text.isascii()
    assert shape_of_program(made.text) == shape_of_program(harmless.text)
    pytest.importorskip("torch")
    made.write(tmp_path / "bench.py")
    step_here(tmp_path / "bench.py")
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("is_device", [False, True])
def test_number_formats_and_devices_are_those_of_pytorch(
    text: str, is_device: bool, tmp_path: Path
) -> None:
    said = f"float{text}"
    seen = Seen(10, 11, device=said) if is_device else Seen(10, 11, dtype=said)
    trace = Written()
    trace.add(20, RELU, [seen], makes=[Seen(21, 22)])
    path = trace.write(tmp_path)

    with pytest.raises(TraceError, match="where one of PyTorch's is expected"):
        generate(path)


@pytest.mark.parametrize(
    "schema",
    [
        "aten::__class__.mro(Tensor self) -> Tensor",
        "aten::relu.__init__(Tensor self) -> Tensor",
        "aten::from_file(Tensor self) -> Tensor",
        "load_library::relu(Tensor self) -> Tensor",
    ],
)
def test_what_is_no_operator_is_not_called(schema: str, tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, schema, [INPUT], makes=[Seen(21, 22)], name="aten::relu")

    text = generate(trace.write(tmp_path)).text
    step = text[text.index("def step(") :].split("\n\n\n")[0]

    assert 'other("aten::relu", [x.a0], [((4, 4), torch.float32)])' in step


def test_nodes_that_lie_inside_themselves_are_refused(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)], parent=30)
    trace.add(30, "", name="one", parent=31)
    trace.add(31, "", name="two", parent=30)

    with pytest.raises(TraceError, match="lies inside itself"):
        generate(trace.write(tmp_path))


def test_sizes_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    trace = Written()
    trace.add(20, RELU, [INPUT], makes=[Seen(21, 22)])
    trace.nodes[0]["inputs"]["shapes"] = [["4", "4"]]

    with pytest.raises(TraceError, match="whole numbers are expected"):
        generate(trace.write(tmp_path))
