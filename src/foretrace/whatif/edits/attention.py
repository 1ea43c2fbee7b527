"""`Attention` as one fused kernel, or as products and a softmax: what the other kind would take.

A cost model answers for the kind that is not there, from the shapes of the one that is: the
machine's, else that of the chip that the files name. What it cannot know: dropout and masks that
the other kind would do in kernels of their own, the memory that scores take, and the host time of
launches that products would add.

Without one, fused attention is what it saves: its products take what they took, backward one of
five more than once, and scores no longer go through memory between them (Dao et al.,
arXiv:2205.14135, sections 3.1 and B.4). The softmax's arithmetic stays and its traffic does not:
its share is the middle of none of its time and all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from foretrace.analyze import Selection, fitting
from foretrace.base import Bools, Int64s, ScenarioError
from foretrace.cost import NO_TEXT, CostModel, Costs, FittedKernels, KernelRequests, Source
from foretrace.graph import ExecutionGraph, NodeKind, operator_classes
from foretrace.operators import OperatorClass
from foretrace.whatif.edits.attention_calls import (
    FusedCall,
    Kernels,
    PlainCall,
    fused_calls,
    plain_calls,
)
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit
from foretrace.whatif.edits.fusing import (
    first_of_runs,
    merged,
    merged_on_host,
    operator_runs,
)

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

_Model: TypeAlias = CostModel | FittedKernels

_KNOWN_FORMAT = "bf16"  # a chip whose peak in it is not known is not modelled
# Backward, five products take the place of four: scores are not kept, but multiplied again.
_AGAIN = 5 / 4


@dataclass(frozen=True)
class Attention(WorkEdit):
    """Attention is one fused kernel (FlashAttention), or products and a softmax.

    What the other kind takes is a cost model's answer; where neither machine nor chip is known,
    fused attention takes what its products took. A model knows shapes; not dropout and masks in
    kernels of their own, the memory of scores, or host time of other launches than there were.
    StatedValues last wins.
    """

    flash: bool
    of: Selection = field(default=Selection())
    # Where shapes do not tell; `None`: if a mask of ones is cut beside any of the scores.
    is_causal: bool | None = None

    ATTENTION = Key("attention", Holds.NAME, "flash or plain attention.", "flash or plain", "KIND")
    KEYS = (ATTENTION,)
    TURNS = (EditTurn.ATTENTION,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Attention]:
        """Of the kind that is named."""
        kind = stated.fields(cls.KEYS).get(cls.ATTENTION.name)
        if kind is not None:
            if kind not in {"flash", "plain"}:
                raise stated.refused(cls.ATTENTION)
            yield cls(flash=kind == "flash")

    @property
    def order(self) -> str:
        """As given."""
        return ""

    def sentence(self, before: Scenario) -> str:
        """`attention as one fused kernel, costed from its shapes`; what it cannot know."""
        if self.flash and before.machine is None:
            return "attention as one fused kernel"
        if self.flash:
            return "attention as one fused kernel, costed from its shapes"
        return (
            "attention as products and a softmax, costed from their shapes (without dropout, the "
            "memory of scores and the host time of more launches)"
        )

    def check(self, job: CostedJob) -> None:
        """Nothing here: it finds its own kernels, and says what it found."""

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Every attention call of the other kind, as this one.

        Raises:
            ScenarioError: if there is none, its shapes are not known, or nothing costs them.
        """
        model = _model(job)
        if model is None and not self.flash:
            raise ScenarioError(
                "attention in products is costed from shapes, and nothing is known that costs it: "
                "state the machine that the job runs on."
            )
        graph = job.graph
        chosen = fitting(graph, self.of)
        chosen &= graph.is_device if graph.has_device else graph.is_of(NodeKind.OPERATOR)
        if self.flash:
            calls = plain_calls(graph, chosen, is_causal=self.is_causal)
            if not calls:
                raise ScenarioError(_none_sentence(graph, chosen, "plain", "fused"))
            return _fused(job, calls, model)
        found = fused_calls(graph, chosen)
        if not found or model is None:
            raise ScenarioError(_none_sentence(graph, chosen, "fused", "plain"))
        return _plain(job, found, model)


def _model(job: CostedJob) -> _Model | None:
    """What costs kernels: the job's model, else that of the chip that its files name."""
    if job.model is not None or job.chip is None:
        return job.model
    return FittedKernels(job.chip) if job.chip.peak_flops_per_ns(_KNOWN_FORMAT) else None


@dataclass(frozen=True)
class _Answer:
    """What kernels of one kind take together."""

    duration_ns: float
    low_ns: float
    high_ns: float
    source: int


def _plain(job: CostedJob, calls: Sequence[FusedCall], model: _Model) -> CostedJob:
    answers = _answers({call.kernels for call in calls}, model)
    job = _costed(job, [(call.nodes, answers[call.kernels]) for call in calls])
    firsts = np.array([call.nodes[0] for call in calls], np.int64)
    signatures = [NO_TEXT] * len(calls)
    return _renamed(job, firsts, (calls[0].kernels.name, calls[0].kernels.name), signatures)


def _fused(job: CostedJob, calls: Sequence[PlainCall], model: _Model | None) -> CostedJob:
    graph = job.graph
    chosen = np.zeros(graph.num_nodes, np.bool_)
    for call in calls:
        chosen[call.nodes] = True
    runs = None if graph.has_device else operator_runs(graph, chosen)
    first = first_of_runs(graph, chosen) if runs is None else runs.first
    torn = [call for call in calls if len(np.unique(first[call.nodes])) > 1]
    if torn:
        raise ScenarioError(
            f"{len(torn)} of {len(calls)} attention calls are not one run of kernels on a stream: "
            "something else waits for a kernel in their middle. They cannot become one kernel; "
            "select layers or phases where they can."
        )
    if model is None or runs is not None:
        job = _costed(job, [(call.nodes, _of_products(job, call)) for call in calls])
    else:
        answers = _answers({call.kernels for call in calls}, model)
        job = _costed(job, [(call.nodes, answers[call.kernels]) for call in calls])
    firsts = np.array([call.nodes[0] for call in calls], np.int64)
    for kernels in sorted({call.kernels for call in calls}, key=repr):
        own = np.array([call.kernels == kernels for call in calls], np.bool_)
        (operator, signature), *_ = kernels.calls
        job = _renamed(job, firsts[own], (kernels.name, operator), [signature])
    return merged(job, first, 1.0) if runs is None else merged_on_host(job, runs, 1.0)


def _of_products(job: CostedJob, call: PlainCall) -> _Answer:
    """What a call's products took, and of its softmax; of a causal mask half may be left out."""
    took_ns = float(job.graph.measured_ns[call.products].sum())
    products_ns = took_ns * (_AGAIN if call.is_backward else 1.0)
    all_ns = products_ns + float(job.graph.measured_ns[call.softmax])
    middle_ns = math.sqrt(products_ns * all_ns)
    return _Answer(middle_ns, products_ns / 2, all_ns, Source.SCALED)


def _answers(kinds: set[Kernels], model: _Model) -> Mapping[Kernels, _Answer]:
    """One answer per distinct list of kernels.

    Raises:
        ScenarioError: if the model does not know one of them.
    """
    ordered = sorted(kinds, key=repr)
    calls = [call for kernels in ordered for call in kernels.calls]
    operators = tuple(dict.fromkeys(operator for operator, _ in calls))
    signatures = tuple(dict.fromkeys(signature for _, signature in calls))
    costs = model.kernel_costs(
        KernelRequests(
            operator=np.array([operators.index(one) for one, _ in calls], np.int32),
            signature=np.array([signatures.index(one) for _, one in calls], np.int32),
            kernel=np.full(len(calls), NO_TEXT, np.int32),
            operators=operators,
            signatures=signatures,
            kernels=(),
        )
    )
    unknown = np.flatnonzero(costs.source == Source.UNKNOWN)
    if len(unknown):
        operator, signature = calls[int(unknown[0])]
        raise ScenarioError(
            f"what costs kernels does not know {operator} of {signature}: attention of that kind "
            "cannot be costed. State its time with a factor on family 'attention' instead."
        )
    found, at = {}, 0
    for kernels in ordered:
        found[kernels] = _sum(costs, slice(at, at + len(kernels.calls)))
        at += len(kernels.calls)
    return found


def _sum(costs: Costs, rows: slice) -> _Answer:
    return _Answer(
        duration_ns=float(costs.duration_ns[rows].sum()),
        low_ns=float(costs.low_ns[rows].sum()),
        high_ns=float(costs.high_ns[rows].sum()),
        source=int(costs.source[rows].max()),
    )


def _costed(job: CostedJob, calls: Sequence[tuple[Int64s, _Answer]]) -> CostedJob:
    """The first kernel of each call takes the answer; slower beside communication, as before.

    Shapes are the recorded ones. Where calls are taken at other sizes, or on another chip, the
    answer grows as they did.
    """
    duration_ns, source = job.duration_ns.copy(), job.source.copy()
    low_ns, high_ns = job.low_ns.copy(), job.high_ns.copy()
    for nodes, answer in calls:
        recorded_ns = float(job.graph.measured_ns[nodes].sum())
        grown = float(job.duration_ns[nodes].sum()) / recorded_ns if recorded_ns else 1.0
        slower = float(job.graph.inflation[nodes[0]]) * grown
        for column, value in (
            (duration_ns, answer.duration_ns),
            (low_ns, answer.low_ns),
            (high_ns, answer.high_ns),
        ):
            column[nodes] = 0
            column[nodes[0]] = value * slower
        source[nodes] = answer.source
    return replace(job, duration_ns=duration_ns, low_ns=low_ns, high_ns=high_ns, source=source)


def _renamed(
    job: CostedJob, nodes: Int64s, names: tuple[str, str], signatures: Sequence[str | int]
) -> CostedJob:
    """Nodes under the name and the operator of what now stands there."""
    graph = job.graph
    texts = [*names, *(one for one in signatures if isinstance(one, str))]
    known = tuple(dict.fromkeys([*graph.names, *texts]))
    place = {text: at for at, text in enumerate(known)}
    columns = {name: getattr(graph, name).copy() for name in ("name", "operator")}
    columns["name"][nodes], columns["operator"][nodes] = (place[one] for one in names)
    signature = graph.operator_signature.copy()
    said = signatures[0]
    signature[nodes] = place[said] if isinstance(said, str) else NO_TEXT
    renamed = replace(graph, **columns, operator_signature=signature, names=known)
    return replace(job, arranged=replace(job.arranged, graph=renamed))


def _none_sentence(graph: ExecutionGraph, chosen: Bools, wanted: str, other: str) -> str:
    _, names = operator_classes(graph, np.flatnonzero(chosen))
    has_fused = OperatorClass.ATTENTION in names
    already = ": it is fused already" if other == "fused" and has_fused else ""
    return (
        f"no {wanted} attention was found among the selected kernels{already}. It is recognised "
        + (
            "by a softmax over scores between batched products, whose shapes were recorded "
            "(record_shapes=True)."
            if wanted == "plain"
            else "by the kernels' and operators' names."
        )
    )
