"""Random plans, whose sizes go together."""

from __future__ import annotations

from hypothesis import strategies as st

from foretrace.workload import Axis, Plan, Sharding


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tensor, context, data = (draw(st.integers(1, 4)) for _ in range(3))
    pipeline = draw(st.integers(1, 4))
    in_stage = tensor * context * data
    expert_tensor = draw(st.sampled_from(divisors(in_stage)))
    is_mirrored = pipeline % 2 == 0 and draw(st.booleans())
    expert = draw(st.sampled_from(divisors(in_stage // expert_tensor)))
    return Plan(
        tensor=tensor,
        context=context,
        data=data,
        pipeline=pipeline,
        expert=expert,
        outer_data=draw(st.sampled_from([None, *divisors(data)])),
        expert_stride=draw(st.sampled_from(divisors(in_stage // expert_tensor // expert))),
        expert_tensor=expert_tensor,
        order=tuple(draw(st.permutations(list(Axis)))),
        schedule="dualpipe" if is_mirrored else "1f1b",
        sharding=Sharding.ZERO3,
        shard_ranks=draw(st.sampled_from(divisors(data * context))),
    )
