"""CONTRIBUTING's recipe for a schedule, followed in a copy of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes.package import COMMAND, copied, printed, tried

ORDER = '''

def pairs(num_stages: int, num_microbatches: int) -> Schedule:
    """Two microbatches forward, then the same two backward."""
    index = np.tile(np.arange(num_microbatches), 2)
    kind = np.repeat([Pass.FORWARD, Pass.BACKWARD], num_microbatches).astype(np.int64)
    order = np.lexsort((index, kind, index // 2))
    orders = Orders.of_stages(
        [(kind[order], index[order], np.full(len(order), stage)) for stage in range(num_stages)]
    )
    return one_way("pairs", orders, num_microbatches)
'''
PYTHON = """
import foretrace as ft
from foretrace.workload import Plan, check_schedule, schedule_of

check_schedule(schedule_of(Plan(pipeline=4, global_batch=8, schedule="pairs")))
plan = {"pp": 4, "global_batch": 8, "sequence": 512}
steps = {
    name: ft.estimate("llama3.2-1b", plan | {"schedule": name}, "dgx-h100").step_ns
    for name in ("1f1b", "pairs", "gpipe")
}
# A pair of microbatches waits for the whole pipeline to be empty; 1F1B never does.
assert steps["pairs"] > 1.2 * steps["1f1b"], steps
print(*steps)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the schedule: a function in one file, a name in another."""
    folder = tmp_path_factory.mktemp("package")
    schedules = copied(folder) / "workload" / "schedule"
    with (schedules / "orders.py").open("a", encoding="utf-8") as file:
        file.write(ORDER)
    text = (schedules / "catalogue.py").read_text(encoding="utf-8")
    text = text.replace("    gpipe,\n", "    gpipe,\n    pairs,\n", 1)
    text = text.replace('    "gpipe": gpipe,\n', '    "gpipe": gpipe,\n    "pairs": pairs,\n', 1)
    (schedules / "catalogue.py").write_text(text, encoding="utf-8")
    return folder


def test_a_plan_names_it_and_its_step_is_simulated(package: Path) -> None:
    assert printed(package, "-c", PYTHON).split() == ["1f1b", "pairs", "gpipe"]


def test_a_command_knows_it(package: Path) -> None:
    line = "estimate --model llama3.2-1b --machine dgx-h100 --pp 4 --global-batch 8 --sequence 512"

    known = tried(package, *COMMAND, *line.split(), "--schedule", "pairs")
    unknown = tried(package, *COMMAND, *line.split(), "--schedule", "triples")

    assert "schedule pairs" in known.stdout
    assert unknown.returncode == 1
    assert "known are none, gpipe, pairs, 1f1b" in " ".join(unknown.stderr.split())
