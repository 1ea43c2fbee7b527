"""Duration changes against the same draws, changed: step times of every rank and step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.analyze import Selection
from foretrace.cost import measured_inflation
from foretrace.graph import Part, Phase
from foretrace.simulate import simulate
from foretrace.whatif import (
    CudaGraphs,
    DataLoading,
    Delay,
    Network,
    RemoveSync,
    Speed,
    WorkEdit,
)
from foretrace.whatif.arrange.arranged import unchanged
from foretrace.whatif.edits.changed import changed
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.durations import transfers_of
from foretrace.whatif.inflation import uninflated
from foretrace.whatif.recorded.read import program_of
from tests.truth import (
    AllKernels,
    Change,
    Job,
    JobConfig,
    KernelFamily,
    LateLoader,
    LongerSegment,
    SlowFamily,
    SlowLink,
    SlowRank,
    make_job,
)
from tests.whatif.edits.jobs import eight, made, measured_costs, of_eight, recovered

MAX_ERROR = 0.0015  # of a step; the replay of what was recorded has 0.0001
MS = 1_000_000


def process_groups(link: str) -> tuple[str, ...]:
    return tuple(sorted({str(one.group) for one in of_eight().collectives if one.link == link}))


def first_calls(rank: int, layer: int) -> list[LongerSegment]:
    """Two more milliseconds before the first kernel of each forward pass of a layer."""
    found: list[LongerSegment] = []
    last = None
    for each in of_eight().operations(rank):
        block = each.block
        is_own = (block.part, block.phase, block.layer) == ("layer", "forward", layer)
        if not is_own or each.collective >= 0:
            continue
        if block.microbatch != last:
            found.append(LongerSegment(rank, each.correlation, 2 * MS))
        last = block.microbatch
    return found


CASES: list[tuple[str, Change, WorkEdit]] = [
    ("faster products", KernelFamily("gemm", 0.7), Speed(1 / 0.7, Selection(named="gemm"))),
    (
        "slower attention",
        KernelFamily("attention", 2.0),
        Speed(0.5, Selection(named="attention")),
    ),
    ("faster kernels", AllKernels(0.8), Speed(1.25, Selection())),
    ("a slow rank", SlowRank(7, 1.1), Speed(1 / 1.1, Selection(ranks=(7,)))),
    (
        "a family of one rank",
        SlowFamily(7, "gemm", 1.3),
        Speed(1 / 1.3, Selection(named="gemm", ranks=(7,))),
    ),
    (
        "a late loader",
        LateLoader(1, 3 * MS),
        Delay(3 * MS, Selection(parts=(Part.DATA,), ranks=(1,))),
    ),
    (
        "another loading time",
        LateLoader(1, 3 * MS),
        DataLoading(eight().data_loading_ns + 3 * MS, ranks=(1,)),
    ),
    *(
        (f"a slow link: {link}", SlowLink(link, 2.0), Network(factor=2.0, groups=(f"@{link}",)))
        for link in ("tp", "dp", "pp", "ring")
    ),
]


@pytest.mark.parametrize(
    ("change", "edit"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_change_gives_the_steps_that_the_changed_job_took(change: Change, edit: WorkEdit) -> None:
    if isinstance(edit, Network):
        (link,) = edit.groups
        edit = Network(
            extra_ns=edit.extra_ns,
            factor=edit.factor,
            groups=process_groups(link.removeprefix("@")),
        )
    true_ns = of_eight(change).step_ns
    assert np.abs(true_ns / of_eight().step_ns - 1).max() > 10 * MAX_ERROR

    predicted_ns = made(recovered(eight()), edit).step_ns

    assert np.abs(predicted_ns / true_ns - 1).max() < MAX_ERROR


def test_host_time_before_every_block_of_a_layer_gives_the_steps_it_makes() -> None:
    true_ns = of_eight(*first_calls(1, 0)).step_ns
    where = Selection(parts=(Part.LAYER,), phases=(Phase.FORWARD,), layers=(0,), ranks=(1,))
    assert np.abs(true_ns / of_eight().step_ns - 1).max() > 5 * MAX_ERROR

    predicted_ns = made(recovered(eight()), Delay(2 * MS, where)).step_ns

    assert np.abs(predicted_ns / true_ns - 1).max() < MAX_ERROR


def test_a_delay_of_every_transfer_is_its_factor_where_all_are_alike() -> None:
    of = recovered(eight())
    groups = process_groups("pp")
    transfer_ns = np.median(of.graph.measured_ns[of.has_link("pp")])
    true_ns = of_eight(SlowLink("pp", 2.0)).step_ns

    predicted_ns = made(of, Network(extra_ns=int(transfer_ns), groups=groups)).step_ns

    assert np.abs(predicted_ns / true_ns - 1).max() < MAX_ERROR


def test_changes_together_give_the_steps_of_all_of_them() -> None:
    true_ns = of_eight(KernelFamily("gemm", 0.7), SlowLink("dp", 2.0), LateLoader(1, MS)).step_ns

    predicted_ns = made(
        recovered(eight()),
        DataLoading(eight().data_loading_ns + MS, ranks=(1,)),
        Network(factor=2.0, groups=process_groups("dp")),
        Speed(1 / 0.7, Selection(named="gemm")),
    ).step_ns

    assert np.abs(predicted_ns / true_ns - 1).max() < MAX_ERROR


def test_a_loss_that_is_not_read_lets_the_host_run_ahead_as_in_the_job_that_does_not() -> None:
    config = JobConfig(num_steps=4, event_sync=False, work_scale=0.1, data_loading_ns=0)
    of = recovered(config)
    free = make_job(replace(config, loss_item=False))
    graph = made(of, RemoveSync(calls="cudaStreamSynchronize")).arranged.graph

    predicted_ns = int(simulate(graph).end_ns.max() - simulate(of.graph).end_ns.max())

    # What remains of the reading is its copy and its call.
    true_ns = end_of(free) - end_of(of.job)
    assert true_ns < -0.01 * end_of(of.job)
    assert abs(predicted_ns / true_ns - 1) < 0.01


def end_of(job: Job) -> int:
    """The moment at which the last operation ends."""
    ends = [each.end_ns for rank in range(job.num_ranks) for each in job.operations(rank)]
    return max(ends)


@pytest.mark.parametrize(
    ("change", "edit"),
    [
        (KernelFamily("gemm", 0.5), Speed(2.0, Selection(named="gemm"))),
        (KernelFamily("gemm", 2.0), Speed(0.5, Selection(named="gemm"))),
        (SlowLink("dp", 0.5), Network(factor=0.5, groups=("@dp",))),
        (SlowLink("tp", 3.0), Network(factor=3.0, groups=("@tp",))),
    ],
    ids=["faster products", "slower products", "a faster link", "a slower link"],
)
@pytest.mark.slow
def test_kernels_that_overlap_anew_are_slowed_as_the_recording_shows(
    change: Change, edit: WorkEdit
) -> None:
    of = recovered(replace(eight(), contention=1.4, num_microbatches=2))
    if isinstance(edit, Network):
        edit = Network(factor=edit.factor, groups=process_groups(edit.groups[0].removeprefix("@")))
    true_ns = of.job.after(change).step_ns
    before = simulate(of.graph)

    arranged, costs = changed(unchanged(of.graph), measured_costs(of.graph), [edit])
    first = simulate(arranged.graph, costs.duration_ns)
    once = simulate(arranged.graph, uninflated(arranged, costs, before, first).duration_ns)
    twice = simulate(arranged.graph, uninflated(arranged, costs, before, once).duration_ns)

    errors = [np.abs(of.step_ns(each) / true_ns - 1).max() for each in (first, once, twice)]
    assert errors[0] > 0.006
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < 0.0015


@pytest.mark.slow
def test_without_contention_nothing_is_slowed_though_names_and_launches_are_alike() -> None:
    of = recovered(eight())
    true_ns = of_eight(KernelFamily("gemm", 0.5)).step_ns
    arranged, costs = changed(
        unchanged(of.graph),
        measured_costs(of.graph),
        [Speed(2.0, Selection(named="gemm"))],
    )
    timeline = simulate(arranged.graph, costs.duration_ns)

    corrected = uninflated(arranged, costs, simulate(of.graph), timeline)

    # products of several sizes share a name and a grid here, which looks like a slowdown
    assert measured_inflation(of.recording.measured).factor("gemm") > 1.2
    predicted_ns = of.step_ns(simulate(arranged.graph, corrected.duration_ns))
    assert np.abs(predicted_ns / true_ns - 1).max() < MAX_ERROR


@pytest.mark.parametrize("num_kernels", [60, 200])
def test_launches_as_a_graph_give_the_job_that_launches_one(num_kernels: int) -> None:
    config = JobConfig(
        num_steps=3,
        event_sync=False,
        work_scale=0.01,
        data_loading_ns=0,
        jitter_ns=0,
        num_optimizer_kernels=num_kernels,
    )
    of = recovered(config)
    other = make_job(replace(config, cuda_graph=True))
    job = made(of, CudaGraphs(Selection(parts=(Part.OPTIMIZER,))))

    timeline = simulate(job.arranged.graph, job.costs.duration_ns)

    true_ns = end_of(other) - end_of(of.job)
    predicted_ns = int(timeline.end_ns.max() - simulate(of.graph).end_ns.max())
    assert true_ns < -0.15 * end_of(of.job)
    assert abs(predicted_ns / true_ns - 1) < 0.005


@pytest.mark.parametrize("link", ["tp", "pp"])
def test_groups_of_the_plan_are_the_process_groups_that_serve_them(link: str) -> None:
    of = recovered(eight())
    program = program_of(of.recording)

    job = CostedJob.of(unchanged(of.graph), measured_costs(of.graph), program=program)
    by_plan = transfers_of(job, (link,))
    by_name = transfers_of(job, process_groups(link))

    assert by_plan.sum() > 100
    assert (by_plan == by_name).all()
