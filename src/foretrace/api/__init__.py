"""Floor 7: the public face, `Job` and the verbs; delegates, computes nothing."""

from __future__ import annotations

from foretrace.api.display import register_displays as register_displays
from foretrace.api.job import Job as Job
from foretrace.api.outputs import write_report as write_report
from foretrace.api.outputs import write_trace as write_trace
from foretrace.api.verbs import breakdown as breakdown
from foretrace.api.verbs import inspect as inspect
from foretrace.api.verbs import load as load
from foretrace.api.verbs import record as record
from foretrace.api.verbs import replay as replay
from foretrace.api.verbs import simulate as simulate

register_displays()
