"""Floor 8: results become something a person or a viewer opens; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.report.answers import Answers as Answers
    from foretrace.report.cost_plot import cost_plot as cost_plot
    from foretrace.report.cost_plot import standalone_html as standalone_html
    from foretrace.report.estimate_page import ESTIMATED as ESTIMATED
    from foretrace.report.estimate_page import EstimatePage as EstimatePage
    from foretrace.report.estimate_page import write_estimate_page as write_estimate_page
    from foretrace.report.estimate_rows import Fact as Fact
    from foretrace.report.estimate_rows import assumption_text as assumption_text
    from foretrace.report.estimate_rows import estimate_facts as estimate_facts
    from foretrace.report.estimate_rows import estimate_subject as estimate_subject
    from foretrace.report.estimate_rows import part_text as part_text
    from foretrace.report.estimate_rows import source_text as source_text
    from foretrace.report.page import ReportPage as ReportPage
    from foretrace.report.page import write_page as write_page
    from foretrace.report.replay_rows import component_rows as component_rows
    from foretrace.report.replay_rows import constant_rows as constant_rows
    from foretrace.report.replay_rows import duration_shares as duration_shares
    from foretrace.report.replay_rows import glance as glance
    from foretrace.report.replay_rows import null_model_rows as null_model_rows
    from foretrace.report.risk_page import RiskPage as RiskPage
    from foretrace.report.risk_page import RiskTable as RiskTable
    from foretrace.report.risk_page import risk_html as risk_html
    from foretrace.report.risk_page import write_risk_page as write_risk_page
    from foretrace.report.risk_plot import sweep_plot as sweep_plot
    from foretrace.report.steps_plot import distribution_plot as distribution_plot
    from foretrace.report.steps_plot import scale_plot as scale_plot
    from foretrace.report.tables import html_table as html_table
    from foretrace.report.tables import replay_html as replay_html
    from foretrace.report.whatif_page import AFTER as AFTER
    from foretrace.report.whatif_page import BEFORE as BEFORE
    from foretrace.report.whatif_page import WhatifPage as WhatifPage
    from foretrace.report.whatif_page import WhatifSide as WhatifSide
    from foretrace.report.whatif_page import write_whatif_page as write_whatif_page
    from foretrace.report.whatif_rows import DifferenceRow as DifferenceRow
    from foretrace.report.whatif_rows import change_text as change_text
    from foretrace.report.whatif_rows import difference_rows as difference_rows
    from foretrace.report.whatif_rows import origin_text as origin_text
    from foretrace.report.whatif_rows import reason_texts as reason_texts
    from foretrace.report.whatif_rows import signed_milliseconds as signed_milliseconds
    from foretrace.report.whatif_rows import sweep_subject as sweep_subject
    from foretrace.report.whatif_rows import whatif_facts as whatif_facts
    from foretrace.report.whatif_rows import whatif_subject as whatif_subject

lazily(__name__)
