"""Random schedules of all orders that are known by name."""

from __future__ import annotations

from hypothesis import strategies as st

from foretrace.workload import Overlap, Plan, Schedule, schedule_of


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any order that is known by name, with numbers it can run with."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe"]))
    stages = draw(st.integers(1, 6)) * (2 if name == "dualpipe" else 1)
    microbatches = draw(st.integers(1, 14))
    chunks, contiguous = 1, None
    if name == "dualpipe":
        microbatches = 2 * stages + 2 * draw(st.integers(0, 4))
    if name == "interleaved":
        stages, chunks = max(stages, 2), draw(st.integers(1, 4))
        contiguous = draw(st.sampled_from([stages, max(stages, microbatches)]))
        microbatches *= contiguous
    return schedule_of(
        Plan(
            pipeline=stages,
            global_batch=microbatches,
            schedule=name,
            num_chunks=chunks,
            contiguous=contiguous,
            expert=2,
            overlap=Overlap(expert=draw(st.booleans())),
        )
    )
