"""What if: a job under edits, many at once, with other kernels, and the files that this leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from foretrace import __version__, exchange
from foretrace.analyze import (
    busy_fraction,
    class_labels,
    collective_times,
    critical_path,
    idle,
    sensitivity,
    steps,
    what_helps,
    windows,
)
from foretrace.api.edited import Basis, Edited
from foretrace.api.estimates import EditableEstimate
from foretrace.api.job import Job
from foretrace.api.tracks import found_tracks
from foretrace.base import ScenarioError, SweepEngine
from foretrace.graph import Timeline
from foretrace.report import AFTER, BEFORE, WhatifPage, WhatifSide, write_whatif_page
from foretrace.whatif import (
    Edit,
    NamedEdits,
    Order,
    OwnKernel,
    Prediction,
    Substitutable,
    Substitutes,
    Sweep,
    outcome,
    read_scenarios,
    swept,
    tried_substitutes,
)


def whatif(edited: Edited) -> Prediction:
    """The step of a job under edits, beside what it was: `ft.whatif(job.edit(ft.Layers(96)))`.

    Raises:
        ScenarioError: if an edit is illegal, or cannot be made to this recording.
    """
    return edited.prediction


def scenarios(
    subject: Job | Edited,
    written: str | Path | Mapping[str, Sequence[Edit]],
    *,
    order: Order | str = Order.THROUGHPUT,
    workers: int = 1,
    engine: SweepEngine | str = SweepEngine.PROCESSES,
    folders: Sequence[Path] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Many scenarios of one job, each predicted, the best first.

    Args:
        subject: a job, or one under edits that all scenarios share.
        written: a TOML file of scenarios, or edits by name.
        order: what is best: "throughput" (sequences in a second), "per-rank" (of each rank), or
            "step" (the shortest).
        workers: processes; each holds the recording.
        engine: where they run: "processes" of this machine, or "ray", on its cluster.
        folders: of files that names in the file are looked up in, before the presets.
        progress: called with scenarios done and scenarios in all.

    Raises:
        ScenarioError: if the file is wrong. A scenario that is refused stands in the answer.
    """
    base = subject.edit() if isinstance(subject, Job) else subject
    if not isinstance(base.basis, Basis):
        raise ScenarioError(
            "many scenarios are predicted of a recording, and this is an estimate: edit it once "
            "for each"
        )
    if isinstance(written, Mapping):
        listed = tuple(NamedEdits(name, tuple(edits)) for name, edits in written.items())
    else:
        listed = read_scenarios(Path(written), folders=folders)
    return swept(
        base.basis.baseline,
        [NamedEdits(one.name, (*base.edits, *one.edits)) for one in listed],
        order=Order(order),
        workers=workers,
        engine=SweepEngine(engine),
        progress=progress,
    )


def write_whatif_trace(path: str | Path, found: Prediction) -> None:
    """Write the job before and after as a file that opens in Perfetto.

    Args:
        path: where to. Perfetto's own format if the name ends in `.pftrace`, else Chrome's JSON;
            compressed if `.gz` follows.
    """
    timelines = {BEFORE: found.replayed, AFTER: found.timeline}
    exchange.write_trace(
        Path(path),
        timelines,
        tracks_by_title={title: found_tracks(one) for title, one in timelines.items()},
    )


def write_whatif_report(path: str | Path, found: Prediction, *, title: str = "") -> None:
    """Write everything that is known of a prediction as one self-contained HTML page.

    Args:
        path: where to; the page opens offline, in any browser.
        title: of the page; the scenario's name, if left out.
    """
    after = found.timeline
    has_steps = bool(len(windows(after)))
    page = WhatifPage(
        title=title or found.name or "what if",
        version=__version__,
        prediction=found,
        side_by_title={BEFORE: _side(found.replayed), AFTER: _side(after)},
        helps=what_helps(sensitivity(after)) if has_steps else None,
    )
    write_whatif_page(Path(path), page)


def _side(timeline: Timeline) -> WhatifSide:
    has_steps = bool(len(windows(timeline)))
    return WhatifSide(
        timeline=timeline,
        collectives=collective_times(timeline),
        steps=steps(timeline),
        busy=busy_fraction(timeline),
        labels=class_labels(timeline.graph),
        path=critical_path(timeline) if has_steps else None,
        idle=idle(timeline) if has_steps else None,
    )


def substitute(
    subject: Job | Edited | EditableEstimate, kernels: Sequence[OwnKernel] = ()
) -> Substitutes:
    """Every rule of substitution against every family of kernels, what is worth most first.

    Args:
        subject: a job, one of which a machine is stated, or an estimate; without edits.
        kernels: operators in index notation, and the kernels of the job that they describe: these
            are placed under the roofline.

    Raises:
        ScenarioError: if it has edits, or names no chip that is known.
    """
    base = subject if isinstance(subject, Edited) else subject.edit()
    if base.edits:
        raise ScenarioError("rules are tried on a job without edits: give the job itself")
    basis = base.basis
    tried_on = _recorded(basis) if isinstance(basis, Basis) else _estimated(basis)
    return tried_substitutes(tried_on, kernels)


def _recorded(basis: Basis) -> Substitutable:
    """What rules are tried on of a recording."""
    found = basis.baseline
    return Substitutable(
        timeline=found.replayed,
        step_ns=found.replayed_step_ns,
        num_ranks=found.before.plan.num_ranks,
        chip=found.chip,
        step_ns_with=lambda edit: outcome(found, edit.applied(found.before)).step_ns,
    )


def _estimated(basis: EditableEstimate) -> Substitutable:
    """What rules are tried on of an estimate."""
    return Substitutable(
        timeline=basis.timeline,
        step_ns=basis.step_ns,
        num_ranks=basis.plan.num_ranks,
        chip=basis.machine.chip,
        step_ns_with=lambda edit: basis.predict((edit,)).step_ns,
    )
