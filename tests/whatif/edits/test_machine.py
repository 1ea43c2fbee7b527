from __future__ import annotations

import pytest

from foretrace.base import ScenarioError
from foretrace.machine import load_machine
from foretrace.whatif import OnMachine, Scenario, SetMachine, Sizes
from foretrace.workload import Plan


def scenario(machine: str | None = "superpod-h100") -> Scenario:
    found = None if machine is None else load_machine(machine)
    return Scenario(sizes=Sizes(), plan=Plan(data=8, global_batch=8), machine=found)


def test_figures_of_a_tier_change_the_machine_of_the_scenario() -> None:
    edit = SetMachine({"network.pod.bandwidth": "200Gb/s"})

    machine = edit.applied(scenario()).machine

    assert machine is not None
    assert machine.tiers[1].bytes_per_ns == 25.0
    assert edit.sentence(scenario()) == "network.pod.bandwidth 400 Gb/s -> 200Gb/s"


def test_figures_come_on_top_of_another_machine() -> None:
    edits = (OnMachine(load_machine("superpod-h100")), SetMachine({"chip.power": "500 W"}))
    found = scenario("gb200-nvl72")
    for edit in edits:
        found = edit.applied(found)

    assert found.machine is not None
    assert found.machine.name == "superpod-h100"
    assert found.machine.chip.power_watts == 500


def test_without_a_machine_it_is_asked_for() -> None:
    with pytest.raises(ScenarioError, match="state it"):
        SetMachine({"network.pod.bandwidth": "200 Gb/s"}).applied(scenario(None))


def test_no_figure_and_no_such_figure_are_refused() -> None:
    with pytest.raises(ScenarioError, match="no figure of the machine is stated"):
        SetMachine().applied(scenario())
    with pytest.raises(ScenarioError, match="its tiers are 'host'"):
        SetMachine({"network.row.bandwidth": "200 Gb/s"}).applied(scenario())


def test_edits_of_figures_can_be_counted_and_compared() -> None:
    one = SetMachine({"chip.power": "500 W", "host.power": "5 kW"})
    other = SetMachine({"host.power": "5 kW", "chip.power": "500 W"})

    assert one == other
    assert len({one, other}) == 1
