"""Floor 7: results become something a person or a viewer opens; computes nothing."""

from __future__ import annotations

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
from foretrace.report.numbers import bytes_text as bytes_text
from foretrace.report.numbers import component_text as component_text
from foretrace.report.numbers import count_text as count_text
from foretrace.report.numbers import duration_text as duration_text
from foretrace.report.numbers import milliseconds_text as milliseconds_text
from foretrace.report.numbers import number_text as number_text
from foretrace.report.numbers import percent_text as percent_text
from foretrace.report.numbers import rate_text as rate_text
from foretrace.report.numbers import signed_percent_text as signed_percent_text
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
from foretrace.report.tables import breakdown_html as breakdown_html
from foretrace.report.tables import html_table as html_table
from foretrace.report.tables import replay_html as replay_html
