"""What the tables take from the package: the only lines here that know how it is called inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from foretrace.graph import ExecutionGraph
from foretrace.workload import PlanDraft, load_plan


class Answer(Protocol):
    """A result that has a form in JSON."""

    def as_json(self) -> object:
        """Builtins only."""


def plain(answer: Answer) -> Any:
    """What a command prints of a result under `--json`."""
    return answer.as_json()


def counts(graph: ExecutionGraph) -> dict[str, int]:
    """How large a graph is."""
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "collectives": len(graph.collectives),
    }


def drafted(preset: str, keys: Mapping[str, object]) -> PlanDraft:
    """A shipped plan with keys of one's own."""
    return load_plan(preset).with_keys(keys)
