from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foretrace.analyze import (
    Comparison,
    Verdict,
    activity_by_rank,
    compare,
    is_compute,
    participations,
    windows,
)
from foretrace.analyze.compare import middle_half
from foretrace.analyze.comparison.anatomy import Anatomy, Doing, anatomy
from foretrace.analyze.comparison.noise import noise_of
from foretrace.analyze.comparison.results import SideShare
from foretrace.analyze.comparison.views import apportioned, contribution
from foretrace.base import GraphError
from foretrace.graph import NodeKind, Part, Phase, Recording, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.analyze.strategies import timelines
from tests.graphs import Block, GraphBuilder, timeline_of
from tests.growth import grows_in_proportion
from tests.truth import (
    Change,
    Job,
    JobConfig,
    KernelFamily,
    SlowLink,
    SlowRank,
    make_job,
    write,
)

WHOLE = {
    *("component", "class", "family", "kernel", "operator"),
    *("phase", "block", "collective", "path"),
}


def run_of(*lengths_ns: int, kernel: str = "gemm_a", calls: int = 1) -> Timeline:
    """One rank; each step runs a kernel some times, back to back, and idles 20 ns at its end."""
    build = GraphBuilder()
    for number, length_ns in enumerate(lengths_ns):
        step = f"ProfilerStep#{number}"
        build.add(NodeKind.STEP_BEGIN, step=step, after=[len(build) - 1] if len(build) else [])
        before = len(build) - 1
        for _ in range(calls):
            before = build.add(
                NodeKind.KERNEL,
                lane="stream 7",
                name=kernel,
                takes_ns=length_ns,
                after=[before],
                step=step,
            )
        segment = build.add(NodeKind.HOST_SEGMENT, takes_ns=20, after=[before], step=step)
        build.add(NodeKind.STEP_END, step=step, after=[segment])
    return simulate(build.graph())


def test_a_timeline_against_itself_differs_in_nothing() -> None:
    found = compare(run_of(100, 110), run_of(100, 110))

    assert found.difference_ns == 0
    assert not found.reasons
    assert all(row.difference_ns == 0 for view in found.views for row in view.rows)


def test_steps_cost_in_proportion() -> None:
    runs = [run_of(*range(100, 100 + num_steps)) for num_steps in (8, 64, 128, 256)]
    compare(runs[0], runs[0])  # what is made once

    assert grows_in_proportion([partial(compare, one, one) for one in runs[1:]])


def test_longer_calls_are_told_from_more_calls() -> None:
    longer = compare(run_of(100), run_of(130)).view("kernel").row("gemm_a")
    more = compare(run_of(100), run_of(100, calls=2)).view("kernel").row("gemm_a")

    assert (longer.call_effect_ns, longer.count_effect_ns) == (30, 0)
    assert (more.call_effect_ns, more.count_effect_ns) == (0, 100)


def test_a_kernel_of_another_name_is_gone_and_new_and_the_same_class() -> None:
    found = compare(run_of(100, kernel="gemm_a"), run_of(150, kernel="gemm_b"))

    assert found.view("kernel").row("gemm_a").is_gone
    assert found.view("kernel").row("gemm_b").is_new
    assert found.view("class").row("gemm").difference_ns == 50
    assert "is new" in found.reasons[0].sentence
    assert any("0 % of the compute time before" in note for note in found.notes)


def test_time_that_is_no_longer_hidden_is_neither_more_nor_longer_calls() -> None:
    def overlap(second_ns: int) -> Timeline:
        build = GraphBuilder()
        build.add(NodeKind.STEP_BEGIN, step="a")
        build.add(NodeKind.KERNEL, lane="stream 7", name="first", takes_ns=100, step="a")
        build.add(NodeKind.KERNEL, lane="stream 8", name="second", takes_ns=60, step="a")
        build.add(NodeKind.STEP_END, step="a")
        return timeline_of(build.graph(), [0, 0, second_ns, 200])

    row = compare(overlap(20), overlap(70)).view("kernel").row("second")

    assert (row.before.step_ns, row.after.step_ns) == (0, 30)
    assert (row.count_effect_ns, row.call_effect_ns, row.overlap_effect_ns) == (0, 0, 30)


def test_blocks_are_matched_by_part_layer_phase_and_microbatch() -> None:
    def layers(second_ns: int) -> Timeline:
        build = GraphBuilder()
        last = build.add(NodeKind.STEP_BEGIN, step="a")
        for layer, takes_ns in enumerate((50, second_ns)):
            block = Block(Part.LAYER, Phase.BACKWARD, layer=layer, microbatch=1)
            last = build.add(
                NodeKind.KERNEL,
                lane="stream 7",
                takes_ns=takes_ns,
                after=[last],
                step="a",
                block=block,
            )
        build.add(NodeKind.STEP_END, step="a", after=[last])
        return simulate(build.graph())

    found = compare(layers(50), layers(80))

    assert found.view("block").rows[0].label == "layer 1 backward, microbatch 1"
    assert found.view("block").rows[0].difference_ns == 30
    assert found.view("phase").row("backward").difference_ns == 30


def test_what_does_not_match_is_said() -> None:
    build = GraphBuilder()
    for rank in (0, 1):
        build.add(NodeKind.STEP_BEGIN, rank=rank, step="a")
        build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", takes_ns=9, step="a")
        build.add(NodeKind.STEP_END, rank=rank, step="a")
    two_ranks = timeline_of(build.graph(), [0] * 3 + [0] * 3)

    found = compare(run_of(100), two_ranks)

    assert any("rank 0 before and ranks 0 to 1 after" in note for note in found.notes)
    assert any("before is simulated, after is measured" in note for note in found.notes)
    assert [rank.before is None for rank in found.ranks] == [False, True]


def test_an_unknown_step_is_refused_with_the_known_ones() -> None:
    with pytest.raises(GraphError, match=r"no step 'b': the recording has ProfilerStep#0"):
        compare(run_of(100), run_of(100), step="b")


def test_steps_without_a_length_are_refused_or_left_out() -> None:
    build = GraphBuilder()
    for step in ("ProfilerStep#0", "ProfilerStep#1"):
        build.add(NodeKind.STEP_BEGIN, step=step)
        build.add(NodeKind.STEP_END, step=step)
    empty = timeline_of(build.graph(), [0, 50, 10, 40])  # the second ends before the first does

    found = compare(empty, empty)

    assert found.before.used_names == ("ProfilerStep#0",)
    with pytest.raises(GraphError, match="none with a length above 0"):
        compare(empty, empty, step="ProfilerStep#1")


def test_one_step_may_be_compared_alone() -> None:
    found = compare(run_of(100, 100), run_of(100, 170), step="ProfilerStep#1")

    assert found.difference_ns == 70
    assert found.noise.verdict is Verdict.TOO_FEW_STEPS


def test_a_step_that_warms_up_does_not_decide() -> None:
    found = compare(run_of(100, 100, 100, 100), run_of(900, 100, 100, 100))

    assert found.difference_ns == 0
    assert sum(found.after.is_used) == 2
    assert found.noise.verdict is Verdict.WITHIN_NOISE


def test_every_step_counts_where_that_is_asked() -> None:
    found = compare(run_of(100, 100, 100, 100), run_of(900, 100, 100, 100), every_step=True)

    assert found.difference_ns == 200
    assert all(found.after.is_used)


@pytest.mark.parametrize(("num_steps", "num_used"), [(1, 1), (3, 3), (4, 2), (7, 5), (8, 4)])
def test_shortest_and_longest_quarter_are_left_out(num_steps: int, num_used: int) -> None:
    lengths_ns = np.arange(num_steps, dtype=np.int64)[::-1] * 10

    used = lengths_ns[middle_half(lengths_ns)]

    assert len(used) == num_used
    assert np.median(used) == np.median(lengths_ns)


def test_a_clear_difference_is_beyond_noise_and_a_small_one_is_not() -> None:
    before = run_of(*range(100, 106))

    slower = compare(before, run_of(*range(120, 126)))
    alike = compare(before, run_of(*range(101, 107)))

    assert slower.noise.verdict is Verdict.BEYOND_NOISE
    assert 0 < slower.noise.low_ns <= 20 <= slower.noise.high_ns
    assert alike.noise.verdict is Verdict.WITHIN_NOISE


# 1. invariants on any timeline


def anatomy_of(timeline: Timeline) -> Anatomy:
    table = windows(timeline)
    assume((table.duration_ns > 0).all())
    return anatomy(timeline, begin_ns=table.begin_ns, end_ns=table.end_ns)


@given(timeline=timelines())
def test_every_moment_belongs_to_compute_then_transfers_then_waiting_and_to_the_first(
    timeline: Timeline,
) -> None:
    parts = anatomy_of(timeline)

    assert owned(timeline) == {
        (int(node), Doing(doing)): int(own_ns)
        for node, doing, own_ns in zip(parts.node, parts.doing, parts.own_ns, strict=True)
        if own_ns
    }


def owned(timeline: Timeline) -> dict[tuple[int, Doing], int]:
    """How many moments each row has, by looking at every moment of every window."""
    graph, table = timeline.graph, windows(timeline)
    spans = [
        (int(timeline.start_ns[node]), int(node), int(node), Doing.COMPUTE)
        for node in np.flatnonzero(is_compute(graph))
    ]
    pairs = participations(graph)
    talks = list(zip(pairs.arrive.tolist(), pairs.finish.tolist(), strict=True))
    count: dict[tuple[int, Doing], int] = {}
    for begin, end in zip(table.begin_ns.tolist(), table.end_ns.tolist(), strict=True):
        for moment in range(begin, end):
            for rank in graph.ranks:
                running = [
                    (start, node)
                    for start, _, node, _ in spans
                    if graph.rank[node] == rank and start <= moment < timeline.end_ns[node]
                ]
                own = [one for one in enumerate(talks) if graph.rank[one[1][1]] == rank]
                moving = [
                    (int(timeline.start_ns[finish]), index, finish)
                    for index, (_, finish) in own
                    if timeline.start_ns[finish] <= moment < timeline.end_ns[finish]
                ]
                waiting = [
                    (int(timeline.start_ns[arrive]), index, finish)
                    for index, (arrive, finish) in own
                    if timeline.start_ns[arrive] <= moment < timeline.start_ns[finish]
                ]
                if running:
                    key = min(running)[1], Doing.COMPUTE
                elif moving:
                    key = min(moving)[2], Doing.TRANSFER
                elif waiting:
                    key = min(waiting)[2], Doing.WAIT
                else:
                    continue
                count[key] = count.get(key, 0) + 1
    return count


lasting = timelines().filter(lambda one: bool((windows(one).duration_ns > 0).all()))


@given(timeline=lasting)
def test_waiting_and_transfers_are_told_apart_as_in_a_breakdown(timeline: Timeline) -> None:
    """Waiting: a rank is in a collective, computes nothing, and no transfer of its own runs."""
    table = windows(timeline)
    view = compare(timeline, timeline).view("component")
    expected = {"waiting_for_ranks": 0, "exposed_transfer": 0}
    for activity in activity_by_rank(timeline).values():
        busy, compute, moving = (
            int(one.within_ns(table.begin_ns, table.end_ns).sum())
            for one in (
                activity.busy,
                activity.compute,
                activity.compute.union(activity.transfer),
            )
        )
        expected["waiting_for_ranks"] += busy - moving
        expected["exposed_transfer"] += moving - compute

    count = len(table) * len(timeline.graph.ranks)
    for name, time_ns in expected.items():
        assert abs(view.row(name).before.step_ns - time_ns / count) < 1, name


@given(before=lasting, after=lasting)
def test_differences_of_every_whole_view_sum_to_the_steps(
    before: Timeline, after: Timeline
) -> None:
    found = compare(before, after)

    for view in found.views:
        if view.is_whole:
            assert sum(row.before.step_ns for row in view.rows) == found.before.mean_ns, view.name
            assert sum(row.after.step_ns for row in view.rows) == found.after.mean_ns, view.name
        for row in view.rows:
            effects_ns = row.count_effect_ns + row.call_effect_ns + row.overlap_effect_ns
            assert effects_ns == row.difference_ns
    for rank in found.ranks:
        for side, time in ((found.before, rank.before), (found.after, rank.after)):
            if time is not None:
                parts = (time.compute_ns, time.transfer_ns, time.wait_ns, time.idle_ns)
                assert sum(parts) == side.mean_ns
                assert min(parts) >= 0


shares = st.builds(
    lambda busy, hidden, count: SideShare(
        step_ns=max(busy - hidden, 0) if count else 0, busy_ns=busy if count else 0, count=count
    ),
    st.integers(1, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 50).map(float),
)


@given(before=shares, after=shares)
def test_effects_sum_and_change_their_sign_with_the_sides(
    before: SideShare, after: SideShare
) -> None:
    there, back = contribution("x", before, after), contribution("x", after, before)

    assert there.count_effect_ns == -back.count_effect_ns
    assert there.call_effect_ns == -back.call_effect_ns
    assert there.overlap_effect_ns == -back.overlap_effect_ns
    assert there.difference_ns == (
        there.count_effect_ns + there.call_effect_ns + there.overlap_effect_ns
    )


@given(totals=st.lists(st.integers(0, 10**6), min_size=1, max_size=9), count=st.integers(1, 9))
def test_rounded_parts_sum_to_the_rounded_whole(totals: list[int], count: int) -> None:
    by_name = {str(index): total for index, total in enumerate(totals)}

    parts = apportioned(by_name, count, sum(totals) // count)

    assert sum(parts.values()) == sum(totals) // count
    assert all(abs(parts[name] - total / count) < 1 for name, total in by_name.items())


# 2. noise


def confidence_by_counting(before: int, after: int, left_out: int) -> float:
    """1 - 2 P(U <= left_out), over all orders of the steps."""
    positions = range(before + after)
    statistics = [
        sum(other > own for own in chosen for other in set(positions) - set(chosen))
        for chosen in combinations(positions, before)
    ]
    at_most = sum(statistic <= left_out for statistic in statistics)
    return 1 - 2 * at_most / comb(before + after, before)


@given(
    before=st.lists(st.integers(0, 99), min_size=1, max_size=5),
    after=st.lists(st.integers(0, 99), min_size=1, max_size=5),
    confidence=st.sampled_from((0.5, 0.8, 0.9, 0.95)),
)
def test_interval_leaves_out_as_many_differences_as_the_confidence_allows(
    before: list[int], after: list[int], confidence: float
) -> None:
    found = noise_of(before, after, confidence=confidence)

    differences = sorted(later - earlier for earlier in before for later in after)
    allowed = [
        left_out
        for left_out in range((len(differences) + 1) // 2)
        if confidence_by_counting(len(before), len(after), left_out) >= confidence - 1e-9
    ]
    left_out = max(allowed, default=0)
    assert (found.low_ns, found.high_ns) == (differences[left_out], differences[-1 - left_out])
    expected = max(confidence_by_counting(len(before), len(after), left_out), 0)
    assert found.confidence == pytest.approx(expected)
    assert (found.verdict is Verdict.TOO_FEW_STEPS) == (not allowed)


def test_steps_of_one_run_are_called_different_as_rarely_as_promised() -> None:
    generator = np.random.default_rng(0)
    draws = generator.lognormal(16, 0.2, size=(2_000, 12)).astype(np.int64)

    wrong = [
        noise_of(draw[:6].tolist(), draw[6:].tolist(), confidence=0.9).verdict
        is Verdict.BEYOND_NOISE
        for draw in draws
    ]

    assert 0.05 < np.mean(wrong) < 0.1


def test_many_steps_agree_with_the_exact_count() -> None:
    generator = np.random.default_rng(1)
    before, after = generator.normal(1e6, 1e4, size=(2, 50)).astype(np.int64).tolist()

    exact = noise_of(before, after, confidence=0.95)
    more = noise_of([*before, before[0]], after, confidence=0.95)

    assert not exact.is_approximate
    assert more.is_approximate
    assert more.low_ns == pytest.approx(exact.low_ns, abs=600)
    assert more.high_ns == pytest.approx(exact.high_ns, abs=600)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(run_of(100), run_of(100), confidence=confidence)


# 3. generated jobs whose change is known


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(JobConfig(tp=2, dp=2, num_layers=2, num_steps=6))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Job], Recording]:
    def build(each: Job) -> Recording:
        folder = tmp_path_factory.mktemp("run")
        write(each, folder)
        return build_recording(load_traces([folder]))

    return build


def changed(job: Job, recorded: Callable[[Job], Recording], change: Change) -> Comparison:
    """The job before and after a change, and that every whole view sums to the difference."""
    found = compare(recorded(job).measured, recorded(job.after(change)).measured)
    assert {view.name for view in found.views if view.is_whole} <= WHOLE
    for view in found.views:
        assert not view.is_whole or view.difference_ns == found.difference_ns, view.name
    return found


def test_a_slower_kernel_family_is_the_first_reason(
    job: Job, recorded: Callable[[Job], Recording]
) -> None:
    found = changed(job, recorded, KernelFamily("gemm", 1.3))

    assert found.reasons[0].label == "gemm"
    row = found.view("class").row("gemm")
    assert row.call_effect_ns == pytest.approx(row.difference_ns, rel=0.02)
    assert row.after.busy_ns / row.before.busy_ns == pytest.approx(1.3, rel=0.01)
    assert found.noise.verdict is Verdict.BEYOND_NOISE
    assert found.noise.low_ns <= found.difference_ns <= found.noise.high_ns


def test_a_rank_that_the_others_wait_for_is_the_first_reason(
    job: Job, recorded: Callable[[Job], Recording]
) -> None:
    found = changed(job, recorded, SlowRank(3, 1.2))

    assert found.reasons[0].label == "rank 3"
    assert "gemm" in found.reasons[0].sentence
    assert found.reasons[1].label == "waiting in allreduce"


def test_a_slower_link_is_transfer_and_no_waiting(
    job: Job, recorded: Callable[[Job], Recording]
) -> None:
    found = changed(job, recorded, SlowLink("tp", 2.0))

    assert found.reasons[0].label == "transfer of allreduce"
    waiting = found.view("class").row("waiting in allreduce")
    assert abs(waiting.difference_ns) < 0.05 * found.difference_ns


def test_more_layers_are_more_calls(job: Job, recorded: Callable[[Job], Recording]) -> None:
    deeper = make_job(JobConfig(tp=2, dp=2, num_layers=3, num_steps=6))

    found = compare(recorded(job).measured, recorded(deeper).measured)

    row = found.view("class").row("gemm")
    assert row.after.count / row.before.count == pytest.approx(1.5, rel=0.1)
    assert abs(row.count_effect_ns) > 0.9 * row.difference_ns > 0


def test_json_and_frame_hold_every_row(job: Job, recorded: Callable[[Job], Recording]) -> None:
    recording = recorded(job)

    found = compare(recording.measured, simulate(recording.graph))

    as_json = json.loads(json.dumps(found.as_json()))
    frame = found.to_polars()
    num_rows = sum(len(view.rows) for view in found.views)
    assert sum(len(view["rows"]) for view in as_json["views"].values()) == num_rows
    assert frame.height == num_rows
    classes = frame.filter(frame["view"] == "class")
    assert int(classes["difference_ns"].sum()) == found.difference_ns


def test_a_public_trace_and_its_replay_differ_by_less_than_a_hundredth_of_a_percent(
    data_dir: Path,
) -> None:
    recording = build_recording(load_traces([data_dir / "traces" / "megatron-tp8"]))

    found = compare(recording.measured, simulate(recording.graph))

    assert abs(found.percent) < 0.01
    for view in found.views:
        assert not view.is_whole or view.difference_ns == found.difference_ns, view.name
    (collectives,) = [row for row in found.view("class").rows if row.label.startswith("transfer")]
    assert collectives.after.busy_ns == pytest.approx(collectives.before.busy_ns, rel=1e-3)
