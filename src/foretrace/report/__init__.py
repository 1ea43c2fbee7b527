"""Floor 6: results become something a person or a viewer opens; computes nothing."""

from __future__ import annotations

from foretrace.report.numbers import bytes_text as bytes_text
from foretrace.report.numbers import component_text as component_text
from foretrace.report.numbers import count_text as count_text
from foretrace.report.numbers import duration_text as duration_text
from foretrace.report.numbers import milliseconds_text as milliseconds_text
from foretrace.report.numbers import percent_text as percent_text
from foretrace.report.numbers import signed_percent_text as signed_percent_text
from foretrace.report.page import ReplayPage as ReplayPage
from foretrace.report.page import write_page as write_page
from foretrace.report.sections import component_rows as component_rows
from foretrace.report.sections import constant_rows as constant_rows
from foretrace.report.sections import duration_shares as duration_shares
from foretrace.report.sections import glance as glance
from foretrace.report.sections import null_model_rows as null_model_rows
from foretrace.report.tables import breakdown_html as breakdown_html
from foretrace.report.tables import replay_html as replay_html
