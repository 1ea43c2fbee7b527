"""Edits of the machine: another one, or other figures of its network's tiers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foretrace.base import MachineError, ScenarioError
from foretrace.machine import Machine, figure_text, load_machine, with_figures
from foretrace.whatif.edits.edit import Edit, EditTurn, Holds, Key, StatedValues, hash_of_entries

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_TABLES = ("network", "host", "chip")  # what keys of `set` begin with that are a machine's


def is_of_machine(key: str) -> bool:
    """Whether a key of `set` is a figure of a machine, not one of a plan."""
    return key.partition(".")[0] in _TABLES


@dataclass(frozen=True)
class OnMachine(Edit):
    """The job runs on this machine: another GPU, another network."""

    machine: Machine

    ON_MACHINE = Key(
        "on_machine",
        Holds.NAME,
        "A machine to run on instead, or its file.",
        "the name of a machine, or its file",
        "NAME",
    )
    KEYS = (ON_MACHINE,)
    TURNS = (EditTurn.MACHINE,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[OnMachine]:
        """The machine of that name."""
        for name in stated.fields(cls.KEYS).values():
            yield cls(load_machine(str(name), stated.folders))

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario on this machine."""
        return replace(scenario, machine=self.machine)

    def sentence(self, before: Scenario) -> str:
        """`machine dgx-a100 -> dgx-h100`."""
        was = "unknown" if before.machine is None else before.machine.name
        return f"machine {was} -> {self.machine.name}"


@dataclass(frozen=True)
class SetMachine(Edit):
    """Other figures of the machine, by key: `SetMachine({"network.pod.bandwidth": "400Gb/s"})`.

    Keys are `network.TIER.FIGURE`, `host.FIGURE`, `chip.FIGURE` and `chip.peak.FORMAT`, with the
    figures and units of machine files. The machine keeps its name.
    """

    figures: Mapping[str, object] = field(default_factory=dict)

    SET = Key("set", Holds.TABLE, "", "a table of keys of a plan or a machine")  # as `PlanKeys`
    TURNS = (EditTurn.FIGURES,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[SetMachine]:
        """One of all keys of `set` that are a machine's."""
        table = stated.table(cls.SET)
        figures = {name: each for name, each in table.items() if is_of_machine(name)}
        if figures:
            yield cls(figures)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario on the machine with these figures.

        Raises:
            ScenarioError: if no machine is stated, or it has no such figure.
        """
        try:
            return replace(scenario, machine=with_figures(self._machine(scenario), self.figures))
        except MachineError as err:
            raise ScenarioError(str(err)) from err

    def sentence(self, before: Scenario) -> str:
        """`network.pod.bandwidth 200 Gb/s -> 400 Gb/s`."""
        machine = self._machine(before)
        return ", ".join(
            f"{key} {figure_text(machine, key)} -> {value}" for key, value in self.figures.items()
        )

    def _machine(self, scenario: Scenario) -> Machine:
        if not self.figures:
            raise ScenarioError(
                "no figure of the machine is stated: give one, as in "
                'SetMachine({"network.pod.bandwidth": "400 Gb/s"})'
            )
        if scenario.machine is None:
            raise ScenarioError(
                f"{next(iter(self.figures))!r} changes a machine, and nobody said which one the "
                "recording was made on: state it (machine=..., --machine)."
            )
        return scenario.machine

    def __hash__(self) -> int:
        """By its figures."""
        return hash_of_entries(self.figures)
