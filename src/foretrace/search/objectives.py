"""`Target`: what makes one plan better than another, never falling as its step grows longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from foretrace.base import NS_PER_HOUR, WorkloadError
from foretrace.workload import Plan


class Objective(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most tokens in a second
    COST = "cost"  # the cheapest token
    GPUS = "gpus"  # the fewest GPUs; of these the shortest step
    HEADROOM = "headroom"  # the most memory left; of these the shortest step


@dataclass(frozen=True, kw_only=True)
class Target:
    """An objective, and what it needs to know."""

    objective: Objective = Objective.STEP
    price_per_hour: float | None = None  # of one chip

    def __post_init__(self) -> None:
        """Refuse a cost without a price."""
        if self.objective is Objective.COST and self.price_per_hour is None:
            raise WorkloadError(
                "the cheapest token needs to know what a GPU costs: state a price for an hour "
                "(--price 2.50)"
            )

    def value(self, plan: Plan, step_ns: int) -> float:
        """The smaller, the better."""
        if self.objective is Objective.THROUGHPUT:
            return step_ns / (plan.global_batch * plan.sequence)
        if self.objective is Objective.COST:
            assert self.price_per_hour is not None  # noqa: S101  checked when made
            hours = step_ns / NS_PER_HOUR * plan.num_ranks
            return self.price_per_hour * hours / (plan.global_batch * plan.sequence)
        return float(step_ns)

    def foremost(self, plans: Sequence[Plan], peak_bytes: Sequence[int | None]) -> tuple[int, ...]:
        """Places of the plans among which the step decides."""
        if self.objective is Objective.GPUS:
            fewest = min(plan.num_ranks for plan in plans)
            return tuple(at for at, plan in enumerate(plans) if plan.num_ranks == fewest)
        if self.objective is Objective.HEADROOM:
            known = [peak for peak in peak_bytes if peak is not None]
            if len(known) < len(peak_bytes):
                raise WorkloadError(
                    "memory is not known of a recording alone: state its model and machine "
                    "(--model, --machine), or another objective"
                )
            return tuple(at for at, peak in enumerate(peak_bytes) if peak == min(known))
        return tuple(range(len(plans)))
