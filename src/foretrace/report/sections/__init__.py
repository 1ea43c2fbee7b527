"""The page's answers, one file each; a section whose result is missing is not made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.report.sections.collectives import collective_section as collective_section
    from foretrace.report.sections.collectives import longest_wait_for as longest_wait_for
    from foretrace.report.sections.levers import help_section as help_section
    from foretrace.report.sections.step import step_section as step_section
    from foretrace.report.sections.step import timeline_section as timeline_section
    from foretrace.report.sections.trust import recording_section as recording_section
    from foretrace.report.sections.trust import trust_section as trust_section

lazily(__name__)
