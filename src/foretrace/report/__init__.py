"""Floor 10: results become something a person or a viewer opens; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.report.answer_page import answer_html as answer_html
    from foretrace.report.answer_page import write_answer_page as write_answer_page
    from foretrace.report.answers import Answers as Answers
    from foretrace.report.answers import OptimizerSeen as OptimizerSeen
    from foretrace.report.answers import OptimizerSpan as OptimizerSpan
    from foretrace.report.cost_plot import cost_plot as cost_plot
    from foretrace.report.cost_plot import standalone_html as standalone_html
    from foretrace.report.estimate_page import ESTIMATED as ESTIMATED
    from foretrace.report.estimate_page import EstimatePage as EstimatePage
    from foretrace.report.estimate_page import write_estimate_page as write_estimate_page
    from foretrace.report.page import ReportPage as ReportPage
    from foretrace.report.page import write_page as write_page
    from foretrace.report.risk_plot import corruption_plot as corruption_plot
    from foretrace.report.risk_plot import sweep_plot as sweep_plot
    from foretrace.report.search_plot import plan_pages as plan_pages
    from foretrace.report.search_plot import search_drawings as search_drawings
    from foretrace.report.steps_plot import MOST_NAMED as MOST_NAMED
    from foretrace.report.steps_plot import distribution_plot as distribution_plot
    from foretrace.report.steps_plot import gain_plot as gain_plot
    from foretrace.report.steps_plot import scale_plot as scale_plot
    from foretrace.report.steps_plot import table_plot as table_plot
    from foretrace.report.whatif_page import AFTER as AFTER
    from foretrace.report.whatif_page import BEFORE as BEFORE
    from foretrace.report.whatif_page import WhatifPage as WhatifPage
    from foretrace.report.whatif_page import WhatifSide as WhatifSide
    from foretrace.report.whatif_page import write_whatif_page as write_whatif_page

lazily(__name__)
