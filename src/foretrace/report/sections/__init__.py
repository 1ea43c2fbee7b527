"""The page's answers, one file each; a section whose result is missing is not made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.report.sections.blocks import block_section as block_section
    from foretrace.report.sections.collectives import collective_section as collective_section
    from foretrace.report.sections.estimate import certainty_section as certainty_section
    from foretrace.report.sections.estimate import estimate_section as estimate_section
    from foretrace.report.sections.estimate import footprint_section as footprint_section
    from foretrace.report.sections.estimate import plan_section as plan_section
    from foretrace.report.sections.hang import hang_section as hang_section
    from foretrace.report.sections.levers import help_section as help_section
    from foretrace.report.sections.levers import sensitivity_section as sensitivity_section
    from foretrace.report.sections.memory import memory_section as memory_section
    from foretrace.report.sections.operators import operator_section as operator_section
    from foretrace.report.sections.path import path_section as path_section
    from foretrace.report.sections.roofline import attention_section as attention_section
    from foretrace.report.sections.roofline import roofline_section as roofline_section
    from foretrace.report.sections.step import step_section as step_section
    from foretrace.report.sections.timeline import timeline_section as timeline_section
    from foretrace.report.sections.trust import recording_section as recording_section
    from foretrace.report.sections.trust import trust_section as trust_section
    from foretrace.report.sections.whatif import cause_section as cause_section
    from foretrace.report.sections.whatif import change_section as change_section
    from foretrace.report.sections.whatif import effects_section as effects_section
    from foretrace.report.sections.whatif import ground_section as ground_section
    from foretrace.report.sections.whatif import memory_change_section as memory_change_section

lazily(__name__)
