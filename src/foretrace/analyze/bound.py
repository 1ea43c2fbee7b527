"""`Bound`: what a job's step is bound by, in one word, and its parts in one sentence.

Compute and transfers are what they are. Idle time, and waiting for late ranks, belong to what made
them: a host that launches late, data, ranks that compute longer than others, communication
elsewhere. What holds the most of the step bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.analyze.breakdown import Breakdown
from foretrace.analyze.idle import IdleCause, IdleCauses

COMPUTE, TRANSFER, HOST, DATA = "compute", "communication", "host", "data loading"
UNEVEN, UNKNOWN = "uneven compute", "what was not recorded"
_BOUND_OF_CAUSE = {
    IdleCause.DATA: DATA,
    **dict.fromkeys(
        (
            IdleCause.HOST,
            IdleCause.STALL,
            IdleCause.SYNCHRONISATION,
            IdleCause.LAUNCH_LATENCY,
            IdleCause.QUEUE,
        ),
        HOST,
    ),
    **dict.fromkeys((IdleCause.COMPUTE, IdleCause.COPY), UNEVEN),
    IdleCause.COMMUNICATION: TRANSFER,
    IdleCause.STREAM: COMPUTE,
}
_WORDS = {
    COMPUTE: "Compute-bound",
    TRANSFER: "Communication-bound",
    HOST: "Host-bound",
    DATA: "Bound by data loading",
    UNEVEN: "Bound by uneven compute",
    UNKNOWN: "Bound by what was not recorded",
}
_LEAST_SHARE = 0.005  # of the step; less reads as 0 %


@dataclass(frozen=True)
class Bound:
    """What holds most of the step, and the step's parts as shares of 1 that sum to it."""

    by: str  # COMPUTE, TRANSFER, HOST, DATA, UNEVEN or UNKNOWN
    share: float  # of the step, that belongs to it
    compute: float
    waiting: float  # for late ranks
    transfer: float  # nothing computed beside it
    idle: float
    is_on_device: bool  # of GPUs; else of ranks, whose hosts compute

    @property
    def busy(self) -> float:
        """Share in which a rank computes or moves data."""
        return self.compute + self.transfer

    @property
    def sentence(self) -> str:
        """What bounds the step, and its parts: "Host-bound: GPUs compute 21 %, ..."."""
        parts = (
            ("compute", self.compute),
            ("wait for late ranks", self.waiting),
            ("transfer", self.transfer),
            ("idle", self.idle),
        )
        told = ", ".join(f"{verb} {share:.0%}" for verb, share in parts if share >= _LEAST_SHARE)
        who = "GPUs" if self.is_on_device else "ranks"
        return f"{_WORDS[self.by]}: {who} {told}".replace("%", " %")


def bound(parts: Breakdown, lost: IdleCauses, *, is_on_device: bool) -> Bound | None:
    """What bounds the steps of a breakdown; `None` without steps.

    Args:
        lost: every idle and waiting moment of a timeline with the same job, with its cause.
        is_on_device: whether a device computes, or the host itself.
    """
    whole = parts.overall
    if not whole.total_ns:
        return None
    compute_ns = whole.exposed_compute_ns + whole.overlapped_ns
    time_ns = {COMPUTE: compute_ns, TRANSFER: whole.exposed_transfer_ns}
    still_ns = whole.waiting_for_ranks_ns + whole.idle_ns
    scale = still_ns / max(lost.total_ns(), 1)  # of one step's causes for all steps
    for cause, cause_ns in lost.by_cause().items():
        by = _BOUND_OF_CAUSE.get(cause, UNKNOWN)
        time_ns[by] = time_ns.get(by, 0) + round(cause_ns * scale)
    by = max(time_ns, key=lambda one: time_ns[one])
    return Bound(
        by=by,
        share=time_ns[by] / whole.total_ns,
        compute=compute_ns / whole.total_ns,
        waiting=whole.waiting_for_ranks_ns / whole.total_ns,
        transfer=whole.exposed_transfer_ns / whole.total_ns,
        idle=whole.idle_ns / whole.total_ns,
        is_on_device=is_on_device,
    )
