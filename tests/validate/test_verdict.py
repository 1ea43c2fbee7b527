"""What is said of a replay before its numbers."""

from __future__ import annotations

from dataclasses import replace

from foretrace.graph import GRAPH_KERNELS, LOST_WORK, Finding, Recording
from foretrace.simulate import simulate
from foretrace.validate import ReplayReport, Trust, replay_report
from foretrace.validate.verdict import END_PERCENT
from tests.graph.recorded import call, file_text, kernel, launch, recording_of_files, step
from tests.graphs import recording_of
from tests.validate.strategies import training_graph

_STEPS = [{0: [40, 50], 1: [80, 60]}, {0: [41, 52], 1: [70, 60]}]


def held_against(recording: Recording, factor: float) -> ReplayReport:
    """The recording beside a replay in which everything takes so many times as long."""
    graph = recording.graph
    longer = simulate(graph, (graph.measured_ns * factor).astype("int64"))
    return replay_report(recording, simulated=longer, null_models=())


def exact() -> Recording:
    graph = training_graph(_STEPS)
    return recording_of(graph, simulate(graph))


def test_a_replay_within_the_limits_is_believed() -> None:
    found = replay_report(exact(), null_models=()).verdict

    assert found.trust is Trust.BELIEVED
    assert found.sentences[0].startswith("this replay can be believed: every step ends within")


def test_a_replay_beyond_the_limits_is_doubted_with_what_is_missing() -> None:
    lacking = replace(exact(), findings=(Finding(GRAPH_KERNELS, "3 of 4 lack kernels."),))

    report = held_against(lacking, 1.5)

    assert report.verdict.trust is Trust.DOUBTED
    first, why = report.verdict.sentences
    worst = report.summary.worst_step_error_percent
    assert first.startswith(f"do not believe this replay: a step ends {worst:.1f} % off")
    assert why == f"{GRAPH_KERNELS}: 3 of 4 lack kernels."


def test_what_is_not_known_to_lack_anything_is_said_to_seem_complete() -> None:
    verdict = held_against(exact(), 1.5).verdict

    assert "the recording seems complete" in verdict.sentences[-1]


def test_a_replay_of_host_work_alone_could_not_have_been_wrong() -> None:
    events = [step(1, 0, 1_000)]
    events += [{**call("aten::mm", 100 * at, 60), "cat": "cpu_op", "args": {}} for at in range(5)]

    verdict = replay_report(recording_of_files([file_text(events)]), null_models=()).verdict

    assert verdict.trust is Trust.UNTESTED
    assert "exact by construction" in verdict.sentences[0]


def test_a_replay_of_operations_without_launches_repeats_the_measurement() -> None:
    known = (launch(10, 5, correlation=7), kernel("known", 700, 50, correlation=7, stream=8))
    lost = [kernel(f"k{at}", 100 * at, 50, correlation=90 + at) for at in range(1, 6)]

    recording = recording_of_files([file_text([step(1, 0, 1_000), *known, *lost])])

    verdict = replay_report(recording, null_models=()).verdict
    assert verdict.trust is Trust.UNTESTED
    assert verdict.sentences[0].startswith("this replay proves little: 83.3 % of the device")


def test_streams_that_stand_still_unexplained_lack_device_work_which_is_kept() -> None:
    # All launched at once; the last starts 400 us after the one before has ended, others 2 us.
    begins = [100 + 52 * at for at in range(6)] + [810]
    events = [step(1, 0, 300)]
    for at, begin in enumerate(begins):
        events.append(launch(10 + 10 * at, 5, correlation=at + 1))
        events.append(kernel(f"k{at}", begin, 50, correlation=at + 1))

    recording = recording_of_files([file_text(events)])
    report = replay_report(recording, null_models=())

    assert report.summary.worst_step_error_percent <= END_PERCENT
    assert report.verdict.trust is Trust.UNTESTED
    assert "unrecorded device work, 46.5 % of the recorded time" in report.verdict.sentences[0]
    (told,) = [one.text for one in recording.findings if one.topic == LOST_WORK]
    assert "before 1 operation that had been launched" in told
    assert "sampled or filtered" in told
