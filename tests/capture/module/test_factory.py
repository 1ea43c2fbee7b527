"""Modules named on a command line: files, packages, sizes that are passed on, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from foretrace.base import WorkloadError
from foretrace.capture import program_of

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
        self.last = nn.Linear(8, 1)
    def forward(self, data):
        for layer in self.layers:
            data = layer(data)
        return self.last(data)

def make(micro_batch=4):
    assert torch.empty(1).device.type == "meta"
    return Net(), torch.zeros(micro_batch, 8)

def described():
    return {"module": Net(), "inputs": [torch.zeros(2, 8)], "loss": lambda out: out.mean(),
            "name": "mine", "layers": "layers.[01]", "divided": {}}

def odd():
    return {"module": Net(), "inputs": torch.zeros(2, 8), "speed": 1}

def nothing():
    return None

def fails():
    raise KeyError("size")

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nets_of_a_user.py"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_file_s_function_makes_a_module_without_memory(file: Path) -> None:
    found = program_of(f"{file}:make")

    assert (found.name, found.batch, found.num_layers) == ("Net", 4, 3)
    assert "returns no loss" in found.notes[0]


def test_sizes_are_passed_to_functions_that_take_them(file: Path) -> None:
    assert program_of(f"{file}:make", micro_batch=16, sequence=7).batch == 16


def test_a_mapping_says_more(file: Path) -> None:
    found = program_of(f"{file}:described")

    assert (found.name, found.num_layers, found.notes) == ("mine", 2, ())


def test_a_module_of_the_current_folder_is_found(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)

    assert program_of("nets_of_a_user:make").name == "Net"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("{file}", "names no function"),
        ("{file}:missing", "there is no function 'missing'"),
        ("{file}:number", "there is no function 'number'"),
        ("{file}:odd", "returns 'speed', which is not known"),
        ("{file}:nothing", "returns NoneType: expected is a module and its inputs"),
        ("{file}:fails", "fails with KeyError: 'size'"),
        ("no_such_package_here:make", "cannot be loaded: ModuleNotFoundError"),
        ("{file}x.py:make", "cannot be loaded: FileNotFoundError"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(file: Path, named: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        program_of(named.format(file=file))
