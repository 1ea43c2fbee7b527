"""Floor 2: hardware as data: chips, hosts, network tiers; presets with a source per number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.base import Citation as Citation
    from foretrace.machine.check import DescriptionCheck as DescriptionCheck
    from foretrace.machine.check import Remark as Remark
    from foretrace.machine.check import Severity as Severity
    from foretrace.machine.check import check as check
    from foretrace.machine.chip import COST_FILES as COST_FILES
    from foretrace.machine.chip import Chip as Chip
    from foretrace.machine.chip import chip_named as chip_named
    from foretrace.machine.chip import chip_names as chip_names
    from foretrace.machine.chip import load_chip as load_chip
    from foretrace.machine.chip import tells_costs as tells_costs
    from foretrace.machine.figures import Figure as Figure
    from foretrace.machine.figures import QuantityKind as QuantityKind
    from foretrace.machine.figures import quantity as quantity
    from foretrace.machine.host import Host as Host
    from foretrace.machine.host import host_names as host_names
    from foretrace.machine.host import load_host as load_host
    from foretrace.machine.imported import ImportedDescription as ImportedDescription
    from foretrace.machine.imported import import_description as import_description
    from foretrace.machine.links import LinkLevel as LinkLevel
    from foretrace.machine.links import LinkWay as LinkWay
    from foretrace.machine.links import MachineLinks as MachineLinks
    from foretrace.machine.links import links_of as links_of
    from foretrace.machine.machine import Description as Description
    from foretrace.machine.machine import Hardware as Hardware
    from foretrace.machine.machine import Machine as Machine
    from foretrace.machine.machine import described as described
    from foretrace.machine.machine import hardware as hardware
    from foretrace.machine.machine import load_machine as load_machine
    from foretrace.machine.machine import machine_names as machine_names
    from foretrace.machine.machine import with_hosts as with_hosts
    from foretrace.machine.stated import figure_text as figure_text
    from foretrace.machine.stated import with_figures as with_figures
    from foretrace.machine.tiers import Tier as Tier
    from foretrace.machine.tiers import TierKind as TierKind

lazily(__name__)
