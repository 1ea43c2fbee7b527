"""Recorded jobs whose transfers share a machine's links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace.base import NetworkUse, ScenarioError
from foretrace.graph import Recording
from foretrace.machine import Machine, load_machine
from foretrace.whatif import Baseline, Parallelism, baseline_of, predict
from foretrace.whatif.recorded_links import represented_groups
from foretrace.workload import Group, groups_of
from tests.acceptance.edited_jobs import BelievedCosts, job
from tests.graph.recorded import recording_of
from tests.truth import make_job


@pytest.fixture(scope="module")
def recording() -> Recording:
    """A generated job of two stages and two copies."""
    return recording_of(make_job(job(tp=1, dp=2, pp=2, layers=2, microbatches=2)))


def tree(folder: Path, oversubscription: float, bandwidth: str = "50 GB/s") -> Machine:
    """Hosts under a spine."""
    path = folder / f"{oversubscription}.toml"
    path.write_text(
        'kind = "machine"\nhost = "dgx-h100"\n'
        '[[tiers]]\nname = "host"\nkind = "scale-up"\nranks = 8\n'
        '[[tiers]]\nname = "leaf"\nkind = "rack"\nranks = 16\n'
        '[[tiers]]\nname = "spine"\nkind = "pod"\nranks = 64\n'
        f'oversubscription = "{oversubscription}:1"\nbandwidth = "{bandwidth}"\n',
        encoding="utf-8",
    )
    return load_machine(path)


def shared(recording: Recording, machine: Machine) -> Baseline:
    """What predictions start from where links are shared."""
    return baseline_of(recording, machine=machine, network=NetworkUse.SHARED)


def test_what_was_recorded_is_replayed_to_the_nanosecond(
    recording: Recording, tmp_path: Path
) -> None:
    found = predict(shared(recording, tree(tmp_path, 1)), ())

    assert found.timeline.end_ns.tolist() == found.replayed.end_ns.tolist()
    assert found.links is not None
    assert found.links.rows[0].busy_share > 0


def test_copies_that_cross_a_spine_are_slowed_by_what_all_ask_of_it(
    recording: Recording, tmp_path: Path
) -> None:
    more = Parallelism(dp=32)
    full, narrow = (shared(recording, tree(tmp_path, times)) for times in (1, 7))

    alone, crowded = (predict(base, (more,)) for base in (full, narrow))

    assert alone.links is not None
    assert crowded.links is not None
    assert alone.step_ns == alone.links.private_ns
    assert crowded.links.private_ns == alone.step_ns
    assert crowded.step_ns > alone.step_ns
    spine = crowded.links.rows[2]
    assert spine.held_ns > 0
    wider = predict(shared(recording, tree(tmp_path, 7 / 1.01)), (more,))
    assert crowded.step_ns - wider.step_ns == pytest.approx(spine.gain_ns, rel=0.1)


def test_every_rank_is_in_one_group_of_those_that_recorded_ones_stand_for(
    recording: Recording,
) -> None:
    base = baseline_of(recording, costs=BelievedCosts())
    found = predict(base, (Parallelism(dp=32),))
    graph, plan = found.graph, found.after.plan

    groups = represented_groups(graph, plan)

    assert len(graph.ranks) < plan.num_ranks
    assert {len(one.ranks) for one in graph.collectives.makes} == {2, 32, 64}  # all: norms
    pairs: set[tuple[int, ...]] = set()
    rings: set[tuple[int, ...]] = set()
    for one, alike in zip(graph.collectives.makes, groups, strict=True):
        assert tuple(alike[0]) == tuple(sorted(one.ranks))
        into = {2: pairs, 32: rings, 64: set()}[alike.shape[1]]
        into.update(map(tuple, alike.tolist()))
    assert rings == set(map(tuple, groups_of(plan, Group.DATA).tolist()))
    assert pairs == set(map(tuple, groups_of(plan, Group.PIPELINE).tolist()))
    assert np.all([len(np.unique(one)) == one.size for one in groups])


def test_links_are_the_machines_to_say(recording: Recording) -> None:
    with pytest.raises(ScenarioError, match="state the one that was recorded"):
        baseline_of(recording, network=NetworkUse.SHARED)
