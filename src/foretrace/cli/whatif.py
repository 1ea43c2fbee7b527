"""`foretrace whatif`: a recorded job with something different about it, predicted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from foretrace import api
from foretrace.api import Edited
from foretrace.base import NetworkUse, SweepEngine, written_together
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli import whatif_options as own
from foretrace.cli.collector import collector_paused
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import ProgressLine, activity
from foretrace.cli.settings import machine_folders
from foretrace.cli.source import Reading
from foretrace.machine import load_machine
from foretrace.simulate import Cores
from foretrace.whatif import Edit, Order, Prediction, edits_of, stated_of
from foretrace.workload import JobConfiguration, PlanDraft

COMMAND_LINE = "the command line"


@own.with_edits
def whatif(
    paths: own.Paths = None,
    *,
    stated: Mapping[str, object],
    scenarios: own.Scenarios = None,
    order: own.BestBy = Order.THROUGHPUT,
    processes: own.Processes = 1,
    engine: options.WhichEngine = SweepEngine.PROCESSES,
    machine: own.Machine = None,
    costs: options.Costs = None,
    model: own.Model = None,
    plan: own.Plan = None,
    config: plans.Configs = None,
    recorded: own.Recorded = None,
    network: options.Network = NetworkUse.PRIVATE,
    cores: own.SharedCores = None,
    without_profiler: own.WithoutProfiler = False,
    report: options.Page = None,
    trace: own.Trace = None,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Predict a recorded job, or an estimate, with other sizes, plan, machine or faster work."""
    folders = machine_folders(costs)
    edits = edits_of(stated, COMMAND_LINE, folders=folders)
    is_other = network is NetworkUse.SHARED or without_profiler
    _check(edits, scenarios, report, trace, is_other=is_other)
    with activity() as doing, collector_paused():
        draft, sizes = stated_of(recorded or ())
        on = None if machine is None else load_machine(machine, folders)
        configured = plans.configured(config)
        of = plans.model_of(model, configured)
        under = _plan(plan, draft, configured)
        plans.tell_notes(under)
        if paths:
            base = reading.job(paths, doing).edit(
                *edits,
                machine=on,
                model=of,
                plan=under,
                sizes=sizes,
                cores=None if cores is None else Cores.of(cores),
                without_profiler=without_profiler,
                network=network,
            )
        elif on is None or of is None or under is None:
            raise typer.BadParameter(
                "nothing is edited: name the files of a recording, or an estimate by --model, "
                "--plan and --machine"
            )
        else:
            base = api.estimate(of, under, on, network=network).edit(*edits)
        doing.now("predicting")
        if scenarios is not None:
            found = api.scenarios(
                base,
                scenarios,
                order=order,
                workers=processes,
                engine=engine,
                folders=folders,
                progress=doing.advance,
            )
        else:
            prediction = base.predict()
            _write(prediction, base, doing, report=report, trace=trace)
    lacks = () if base.job is None else base.job.lacks
    if scenarios is not None:
        outputs.tell(found, title=base.title, top=64, lacks=lacks)
    else:
        outputs.tell(prediction, title=base.title, lacks=lacks, wrote=(report, trace))


def _plan(
    name: str | None, stated: PlanDraft | None, found: JobConfiguration | None
) -> PlanDraft | None:
    """The plan's file or configuration, and what was stated beside it."""
    if name is None and found is None:
        return stated
    draft = plans.draft_of(name, {}, found)
    return draft if stated is None else draft.with_fields(stated.stated)


def _check(
    edits: tuple[Edit, ...],
    scenarios: Path | None,
    report: Path | None,
    trace: Path | None,
    *,
    is_other: bool,
) -> None:
    if not edits and scenarios is None and not is_other:
        raise typer.BadParameter(
            "nothing is different: state an edit, as in --layers 96 or --on-machine dgx-h100 "
            "(--machine says what it ran on), or --scenarios FILE.toml"
        )
    if scenarios is not None and (report is not None or trace is not None):
        raise typer.BadParameter(
            "--report and --trace are about one scenario: state its edits instead of --scenarios"
        )


def _write(
    found: Prediction, base: Edited, doing: ProgressLine, *, report: Path | None, trace: Path | None
) -> None:
    """The files that were asked for."""
    with written_together():
        if trace is not None:
            doing.now(f"writing {trace}")
            api.write_whatif_trace(trace, found)
        if report is not None:
            doing.now(f"writing {report}")
            api.write_whatif_report(report, found, title=base.title)
