"""Predict training and serving runs of large AI models, from their traces or a model alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.analyze.questions import *  # noqa: F403  every question is a verb
    from foretrace.api import Edited as Edited
    from foretrace.api import Job as Job
    from foretrace.api import Part as Part
    from foretrace.api import Phase as Phase
    from foretrace.api import Selection as Selection
    from foretrace.api import Sizes as Sizes
    from foretrace.api import anonymise as anonymise
    from foretrace.api import balance as balance
    from foretrace.api import benchmark as benchmark
    from foretrace.api import blocks as blocks
    from foretrace.api import capture as capture
    from foretrace.api import compare as compare
    from foretrace.api import convert as convert
    from foretrace.api import diagnose as diagnose
    from foretrace.api import draw as draw
    from foretrace.api import estimate as estimate
    from foretrace.api import fewest_gpus as fewest_gpus
    from foretrace.api import inspect as inspect
    from foretrace.api import interpreter_lock as interpreter_lock
    from foretrace.api import knee as knee
    from foretrace.api import link as link
    from foretrace.api import load as load
    from foretrace.api import memory as memory
    from foretrace.api import overview as overview
    from foretrace.api import record as record
    from foretrace.api import remedies as remedies
    from foretrace.api import replay as replay
    from foretrace.api import report as report
    from foretrace.api import roofline as roofline
    from foretrace.api import run as run
    from foretrace.api import scenarios as scenarios
    from foretrace.api import search as search
    from foretrace.api import serve as serve
    from foretrace.api import serve_staged as serve_staged
    from foretrace.api import simulate as simulate
    from foretrace.api import substitute as substitute
    from foretrace.api import synthesise as synthesise
    from foretrace.api import tables as tables
    from foretrace.api import throughput as throughput
    from foretrace.api import trend as trend
    from foretrace.api import what_helps as what_helps
    from foretrace.api import whatif as whatif
    from foretrace.whatif.edits import *  # noqa: F403  every edit is a name of the package

__version__ = "0.1.0"

lazily(__name__)
