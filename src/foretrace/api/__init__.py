"""Floor 11: the public face, `Job` and the verbs; delegates, computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.analyze import Selection as Selection
    from foretrace.analyze.questions import *  # noqa: F403  every question is a verb
    from foretrace.api.analyses import compare as compare
    from foretrace.api.analyses import diagnose as diagnose
    from foretrace.api.analyses import interpreter_lock as interpreter_lock
    from foretrace.api.analyses import memory as memory
    from foretrace.api.analyses import roofline as roofline
    from foretrace.api.analyses import throughput as throughput
    from foretrace.api.analyses import trend as trend
    from foretrace.api.analyses import what_helps as what_helps
    from foretrace.api.balancing import STUDY_MACHINE as STUDY_MACHINE
    from foretrace.api.balancing import STUDY_MODEL as STUDY_MODEL
    from foretrace.api.balancing import balance as balance
    from foretrace.api.edited import Edited as Edited
    from foretrace.api.edited import remedies as remedies
    from foretrace.api.estimates import estimate as estimate
    from foretrace.api.estimates import write_estimate_report as write_estimate_report
    from foretrace.api.estimates import write_estimate_trace as write_estimate_trace
    from foretrace.api.exchanges import Format as Format
    from foretrace.api.exchanges import convert as convert
    from foretrace.api.exchanges import draw as draw
    from foretrace.api.exchanges import synthesise as synthesise
    from foretrace.api.job import Job as Job
    from foretrace.api.links import benchmark as benchmark
    from foretrace.api.links import inspect as inspect
    from foretrace.api.links import link as link
    from foretrace.api.named import captured_for as captured_for
    from foretrace.api.outputs import write_trace as write_trace
    from foretrace.api.overview import overview as overview
    from foretrace.api.predictions import scenarios as scenarios
    from foretrace.api.predictions import substitute as substitute
    from foretrace.api.predictions import whatif as whatif
    from foretrace.api.predictions import write_whatif_report as write_whatif_report
    from foretrace.api.predictions import write_whatif_trace as write_whatif_trace
    from foretrace.api.recording import WorldRecorder as WorldRecorder
    from foretrace.api.recording import record as record
    from foretrace.api.reports import report as report
    from foretrace.api.reports import write_report as write_report
    from foretrace.api.searches import search as search
    from foretrace.api.searches import tables as tables
    from foretrace.api.searches import write_search_report as write_search_report
    from foretrace.api.searches import write_tables as write_tables
    from foretrace.api.serving import fewest_gpus as fewest_gpus
    from foretrace.api.serving import knee as knee
    from foretrace.api.serving import makes_tokens as makes_tokens
    from foretrace.api.serving import serve as serve
    from foretrace.api.serving import serve_staged as serve_staged
    from foretrace.api.serving import write_serving_trace as write_serving_trace
    from foretrace.api.verbs import blocks as blocks
    from foretrace.api.verbs import load as load
    from foretrace.api.verbs import replay as replay
    from foretrace.api.verbs import simulate as simulate
    from foretrace.capture import capture as capture
    from foretrace.exchange import anonymise as anonymise
    from foretrace.graph import Part as Part
    from foretrace.graph import Phase as Phase
    from foretrace.whatif import Sizes as Sizes
    from foretrace.whatif.edits import *  # noqa: F403  every edit is a name of the package
    from foretrace.world import WorldRun as WorldRun
    from foretrace.world import run as run

lazily(__name__)
