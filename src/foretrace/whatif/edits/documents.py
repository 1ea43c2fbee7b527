"""`UnevenDocuments`: microbatches hold documents of a dataset, each as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import ScenarioError
from foretrace.graph import NO_MICROBATCH
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit
from foretrace.workload import replica_of_rank

if TYPE_CHECKING:
    from foretrace.balance import DocumentWork
    from foretrace.whatif.scenario import Scenario

_SHARE = 0.5  # of attention; only how it grows counts here


@dataclass(frozen=True)
class UnevenDocuments(WorkEdit):
    """Microbatches hold documents as they come, drawn anew for every step and copy of the model.

    Attention takes as long as its documents make it, everything else of a microbatch as its
    tokens do. What was recorded counts as one document for each sequence.
    """

    documents: str  # a dataset's index, or a law: as `balance` takes it
    seed: int = 0

    DOCUMENTS = Key(
        "documents",
        Holds.NAME,
        "Documents of a dataset, as in `balance`, in every microbatch.",
        "a dataset's index, a list of lengths, or lognormal:MU,SIGMA[,LONGEST]",
        "FILE|LAW",
    )
    KEYS = (DOCUMENTS,)
    TURNS = (EditTurn.FACTORS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[UnevenDocuments]:
        """Of the dataset that is named."""
        name = stated.fields(cls.KEYS).get(cls.DOCUMENTS.name)
        if name is not None:
            yield cls(str(name))

    def sentence(self, before: Scenario) -> str:
        """`documents of lognormal:8,1 as they come, where each sequence of 512 tokens was one`."""
        return (
            f"documents of {self.documents} as they come, where each sequence of "
            f"{before.plan.sequence:,} tokens was one"
        )

    def check(self, job: CostedJob) -> None:
        """Microbatches must be known."""
        if job.plan is None or not (job.graph.microbatch != NO_MICROBATCH).any():
            raise ScenarioError(
                "no work here is known to belong to a microbatch, so documents change none: load "
                "a recording of training steps with forward and backward passes"
            )

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Factors of every node, by its step, copy of the model and microbatch."""
        # Here and below: documents are rare, and what packs them is much to load.
        from foretrace.balance import documents_of
        from foretrace.estimate import Follows, drawn_mix

        graph, plan = job.graph, job.plan
        assert plan is not None  # noqa: S101  checked
        follows = Follows.of(graph)
        num_steps = max(1, len(graph.step_names))
        count = follows.num_microbatches
        tokens, attention = drawn_mix(
            replace(plan, global_batch=count * plan.micro_batch * plan.data),
            self._work(job),
            documents=documents_of(self.documents),
            num_copies=num_steps * plan.data,
            seed=self.seed,
        )
        factor = follows.factors(tokens, attention)
        replicas = replica_of_rank(plan)
        replica = np.where(graph.rank >= 0, replicas[graph.rank % len(replicas)], 0)
        row = np.maximum(graph.step, 0) * plan.data + replica
        return replace(job, factor=job.factor * factor[row, follows.label])

    def _work(self, job: CostedJob) -> DocumentWork:
        """From kernels of the stated model, or by the square of lengths."""
        from foretrace.balance import DocumentWork, document_work  # as above

        assert job.plan is not None  # noqa: S101  checked
        if job.transformer is None or job.model is None:
            return DocumentWork.of_share(job.plan.sequence, _SHARE)
        return document_work(job.transformer, job.plan, job.model)
