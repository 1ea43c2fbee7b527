"""The recipe for an edit, followed in a copy of the package: two files, and it is there."""

from __future__ import annotations

from pathlib import Path

from tests.recipes.package import COMMAND, copied, printed

EDIT = '''
"""`Pause`: the host stops before its calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.graph import NodeKind
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import (
    EditTurn, Holds, Key, StatedValues, WorkEdit, duration_ns_of
)
from foretrace.whatif.scenario import Scenario


@dataclass(frozen=True)
class Pause(WorkEdit):
    """Every launch takes so much longer."""

    extra_ns: int

    PAUSE = Key("pause", Holds.NAME, "What each launch takes more.", "a time", "TIME")
    KEYS = (PAUSE,)
    TURNS = (EditTurn.DELAYS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Pause]:
        """One, if it is stated."""
        for each in stated.fields(cls.KEYS).values():
            yield cls(duration_ns_of(each))

    def sentence(self, before: Scenario) -> str:
        """What changes."""
        return f"launches take {self.extra_ns} ns more"

    def check(self, job: CostedJob) -> None:
        """Nothing can be wrong with it."""

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:
        """With the time."""
        return job.with_delay(job.graph.nodes_of(NodeKind.LAUNCH), self.extra_ns)
'''
LINE = "    from foretrace.whatif.edits.pause import Pause as Pause\n"


def test_an_edit_is_a_module_and_a_line(tmp_path: Path, repository: Path) -> None:
    edits = copied(tmp_path) / "whatif" / "edits"
    (edits / "pause.py").write_text(EDIT, encoding="utf-8")
    listed = (edits / "__init__.py").read_text(encoding="utf-8")
    before = "\nlazily(__name__)"
    (edits / "__init__.py").write_text(listed.replace(before, LINE + before), encoding="utf-8")
    example = repository / "examples" / "planted" / "nothing"
    scenarios = tmp_path / "scenarios.toml"
    scenarios.write_text("[[scenario]]\nname = 'slow'\npause = '3 us'\n", encoding="utf-8")

    told = printed(tmp_path, *COMMAND, "whatif", example, "--pause", "3us", "--json")
    in_file = printed(tmp_path, *COMMAND, "whatif", example, "--scenarios", scenarios, "--json")
    in_python = printed(tmp_path, "-c", "import foretrace as ft; print(ft.Pause(3))")

    assert '"launches take 3000 ns more"' in told
    assert '"edit": "Pause"' in told
    assert '"launches take 3000 ns more"' in in_file
    assert in_python.strip() == "Pause(extra_ns=3)"
