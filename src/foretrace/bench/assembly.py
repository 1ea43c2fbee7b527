"""A trace's tree becomes a `BenchProgram`: which operators are replayed whole, their tensors.

An operator is replayed whole unless something made inside it is read by another operator that is
replayed. Then it is opened, if it is composite, and the operators inside it are replayed instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from foretrace.base import TraceError
from foretrace.bench.collectives import ProgramCollective, collective_of, groups_of, is_collective
from foretrace.bench.contents import contents_of
from foretrace.bench.identities import (
    Identities,
    OperatorUse,
    Value,
    ValueId,
    identities,
    value_indices,
)
from foretrace.bench.program import (
    USUAL_STREAM,
    BenchCall,
    BenchProgram,
    Coverage,
    Given,
    Mode,
    Number,
    TensorCut,
    records_in,
)
from foretrace.bench.schema import Opaque, parsed_schema
from foretrace.bench.timing import NOTHING_MEASURED, OperatorTimes
from foretrace.bench.tree import Tree, chosen, is_operator
from foretrace.trace import STEP_MARK

# Operators that are made of others before autograd sees them. What autograd keeps for the backward
# pass is made inside of these, by the operators below them. No other operator is ever opened,
# since a kernel is more than the operators recorded inside it.
# Source: names whose `CompositeImplicitAutograd` kernel PyTorch 2.13 registers
# (`torch._C._dispatch_has_kernel_for_dispatch_key`), those that return tensors.
_COMPOSITE_NAMES = """
_batch_norm_impl_index _convolution _convolution_mode _fused_rms_norm _lu_with_info
_pad_circular _scaled_dot_product_attention_math _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm
absolute absolute_ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
adaptive_max_pool1d adjoint alpha_dropout alpha_dropout_ argwhere atleast_1d atleast_2d
atleast_3d avg_pool1d batch_norm bilinear broadcast_tensors broadcast_to cartesian_prod cdist
chain_matmul chalf chunk clip clip_ coalesce column_stack combinations concat concatenate conj
conj_physical contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
corrcoef cosine_embedding_loss cosine_similarity cov cross cross_entropy_loss ctc_loss
cumulative_trapezoid diag diagflat diff divide divide_ dropout dropout_ dsplit dstack einsum
embedding_backward embedding_bag expand_as feature_alpha_dropout feature_alpha_dropout_
feature_dropout feature_dropout_ fill_diagonal_ fix fix_ flatten flatten_dense_tensors fliplr
flipud float_power float_power_ frobenius_norm fused_moving_avg_obs_fake_quant gradient greater
greater_ greater_equal greater_equal_ grid_sampler group_norm gru gru_cell hinge_embedding_loss
hsplit hstack imag inner instance_norm isclose istft kl_div kron l1_loss layer_norm less less_
less_equal less_equal_ linear log_sigmoid log_softmax lstm lstm_cell mH mT margin_ranking_loss
matmul matrix_H matrix_exp matrix_power max_pool1d max_pool2d max_pool3d meshgrid moveaxis
movedim msort multilabel_margin_loss multiply multiply_ nanmean nanquantile narrow
native_channel_shuffle negative negative_ nll_loss nll_loss2d nll_loss_nd norm_except_dim
not_equal not_equal_ one_hot outer pad pad_sequence pairwise_distance pdist poisson_nll_loss
positive prelu quantile ravel real relu6 relu6_ repeat_interleave reshape reshape_as
resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell row_stack rrelu
rrelu_ scaled_dot_product_attention selu selu_ slow_conv3d smm softmax split square square_
sspaddmm std std_mean stft subtract subtract_ swapaxes swapaxes_ swapdims swapdims_
take_along_dim tensor_split tensordot thnn_conv2d tile to trapezoid trapz triplet_margin_loss
true_divide true_divide_ type_as unflatten unflatten_dense_tensors unsafe_chunk
upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_nearest3d upsample_trilinear3d vander var var_mean view_as vsplit vstack where
"""
COMPOSITE = frozenset(_COMPOSITE_NAMES.split())

_BUILT_IN = ("aten", "prims", "quantized")
_ROOTS = ("[pytorch|profiler|", STEP_MARK)
# A backend's mark ends on another thread: what follows seems to lie inside of it.
_BACKENDS = ("gloo:", "nccl:")
_ENGINE = "autograd::engine::evaluate_function: "
# How PyTorch wraps a number that is given for a tensor, and what stands for it here.
_WRAPPED = {"float64": "1.0", "int64": "1", "bool": "True"}
# These open files, by a name that the trace would choose.
_FILE_OPERATORS = ("from_file", "load", "save")
_HARMLESS = ("Generator",)  # left out, an operator takes the device's own


def replayed(tree: Tree, found: Identities, topmost: Sequence[int]) -> tuple[int, ...]:
    """The operators to replay, as they began.

    Args:
        tree: the trace.
        found: its tensors.
        topmost: operators that lie inside no other.
    """
    whole, pending = set(topmost), list(topmost)
    while pending:
        reader = pending.pop()
        if reader not in whole:
            continue
        for index in value_indices(found.uses[reader].reads):
            makers = found.values[index].makers
            while makers and whole.isdisjoint(makers):
                outer = _holder(tree, makers[-1], whole)
                if outer is None or outer == reader or not _is_composite(tree, outer):
                    break
                whole.remove(outer)
                inside = _operators_inside(tree, outer)
                whole.update(inside)
                pending.extend(inside)
    return tuple(sorted(whole))


def _holder(tree: Tree, node: int, whole: set[int]) -> int | None:
    return next((one for one in tree.ancestors(node) if one in whole), None)


def _is_composite(tree: Tree, node: int) -> bool:
    namespace, _, name = tree.nodes[node].name.partition("::")
    return namespace == "aten" and name in COMPOSITE


def _operators_inside(tree: Tree, node: int) -> list[int]:
    """Topmost operators inside this one."""
    found, stack = [], list(tree.children(node))
    while stack:
        one = stack.pop()
        if is_operator(tree.nodes[one]):
            found.append(one)
        else:
            stack.extend(tree.children(one))
    return found


def program_of(
    tree: Tree,
    *,
    source: str,
    mode: Mode = Mode.FULL,
    step: str | None = None,
    subgraph: str | None = None,
    measured: OperatorTimes = NOTHING_MEASURED,
) -> BenchProgram:
    """The program that replays a trace.

    Args:
        tree: the trace.
        source: its file's name.
        mode: what of it to replay.
        step: name or number of the step; the first one where steps are marked, if left out.
        subgraph: only what ran inside nodes of this name.
        measured: times and streams of its operators, where known.

    Raises:
        TraceError: if nothing is left to replay.
    """
    found = identities(tree, chosen(tree, step=step, subgraph=None))
    inside = chosen(tree, step=step, subgraph=subgraph)
    nodes = _of_mode(tree, replayed(tree, found, inside), mode)
    uses = {node: found.uses[node] for node in nodes}
    assembly = _Assembly(tree, found, uses, measured)
    calls = tuple(assembly.call(node) for node in nodes)
    kept = [
        one for one in inside if mode is Mode.FULL or not set(nodes).isdisjoint(_family(tree, one))
    ]
    return BenchProgram(
        source=source,
        device=_device(found, uses),
        given=tuple(assembly.given.values()),
        calls=calls,
        values=tuple(value.record for value in found.values),
        groups=groups_of(tree),
        coverage=_coverage(tree, kept, calls, measured=measured),
    )


def replayed_nodes(
    tree: Tree, *, mode: Mode, step: str | None, subgraph: str | None
) -> tuple[int, ...]:
    """The operators that `program_of` replays with the same arguments, as they began."""
    found = identities(tree, chosen(tree, step=step, subgraph=None))
    return _of_mode(tree, replayed(tree, found, chosen(tree, step=step, subgraph=subgraph)), mode)


def _of_mode(tree: Tree, nodes: Sequence[int], mode: Mode) -> tuple[int, ...]:
    wanted = tuple(
        node
        for node in nodes
        if mode is Mode.FULL or is_collective(tree.nodes[node].name) is (mode is Mode.COMMUNICATION)
    )
    if not wanted:
        raise TraceError(f"the execution trace holds nothing to replay in mode {mode.value!r}")
    return wanted


class _Assembly:
    """The state while calls are put together: which tensors are there."""

    def __init__(
        self,
        tree: Tree,
        found: Identities,
        uses: Mapping[int, OperatorUse],
        measured: OperatorTimes,
    ) -> None:
        self.tree, self.found, self.uses, self.measured = tree, found, uses, measured
        self.contents = contents_of(tree, found.values, uses)
        self.given: dict[int, Given] = {}
        self.numbers = _wrapped_numbers(tree, found, uses)
        self._there: set[int] = set()
        self._by_memory: dict[int, int] = {}  # a value that is there, by memory
        streams = Counter(measured.stream[node] for node in uses if node in measured.stream)
        self.usual_stream = next((one for one, _ in streams.most_common(1)), USUAL_STREAM)
        self._stream_by_memory: dict[int, int] = {}  # of the operator that used it last
        self._pending: dict[int, list[int]] = {}  # collectives under way, by memory

    def call(self, node: int) -> BenchCall:
        """The call of one operator; what it needs is given or cut first."""
        recorded, use = self.tree.nodes[node], self.uses[node]
        reads = tuple(self._with_numbers(one) for one in use.reads)
        cuts = [
            cut
            for index in dict.fromkeys(value_indices(reads))
            if (cut := self._provided(index)) is not None
        ]
        new = [
            one
            for one in value_indices(use.returns)
            if one not in self._there and node in self.found.values[one].makers
        ]
        for index in new:
            self._is_there(self.found.values[index])
        collective = self._collective(node, use)
        waits = self._waits(node, use, is_collective=collective is not None)
        return BenchCall(
            node=node,
            name=recorded.name,
            schema=parsed_schema(recorded.schema),
            reads=reads,
            returns=use.returns,
            makes=frozenset(new),
            label=_label(self.tree, node),
            collective=collective,
            cuts=tuple(cuts),
            waits=waits,
            stream=self._stream_of(node),
            after=self._after(node, use),
            duration_ns=self.measured.duration_ns.get(node, 0),
            reason="" if collective is not None else _reason(recorded.name, recorded.schema, use),
        )

    def _with_numbers(self, value: object) -> object:
        """Arguments with plain numbers where PyTorch had wrapped one."""
        if isinstance(value, ValueId) and value.index in self.numbers:
            return Number(_WRAPPED[self.found.values[value.index].record.dtype])
        return value

    def _collective(self, node: int, use: OperatorUse) -> ProgramCollective | None:
        if not is_collective(self.tree.nodes[node].name):
            return None
        return collective_of(self.tree, node, use.reads)

    def _stream_of(self, node: int) -> int:
        stream = self.measured.stream.get(node, USUAL_STREAM)
        is_usual = stream == self.usual_stream or is_collective(self.tree.nodes[node].name)
        return USUAL_STREAM if is_usual else stream

    def _after(self, node: int, use: OperatorUse) -> tuple[int, ...]:
        """Other streams that used its tensors last."""
        stream = self._stream_of(node)
        values = [self.found.values[one] for one in value_indices((use.reads, use.returns))]
        memories = {value.memory.index for value in values}
        others = {self._stream_by_memory.get(one, USUAL_STREAM) for one in memories} - {stream}
        for memory in memories:
            self._stream_by_memory[memory] = stream
        return tuple(sorted(others))

    def _waits(self, node: int, use: OperatorUse, *, is_collective: bool) -> tuple[int, ...]:
        """Collectives that must have ended: those on memory that is used now."""
        values = [self.found.values[one] for one in value_indices((use.reads, use.returns))]
        memories = dict.fromkeys(value.memory.index for value in values)
        if is_collective:  # collectives of one group stay in order by themselves
            for memory in memories:
                self._pending.setdefault(memory, []).append(node)
            return ()
        waits = [one for memory in memories for one in self._pending.pop(memory, [])]
        for pending in self._pending.values():
            pending[:] = [one for one in pending if one not in waits]
        return tuple(dict.fromkeys(waits))

    def _is_there(self, value: Value) -> None:
        self._there.add(value.index)
        self._by_memory.setdefault(value.memory.index, value.index)

    def _provided(self, index: int) -> TensorCut | None:
        """Make sure that a tensor is there; a cut, if that is how."""
        if index in self._there:
            return None
        value = self.found.values[index]
        base = self._by_memory.get(value.memory.index)
        is_view = base is not None and (base not in self.given or bool(value.makers))
        self._is_there(value)
        if is_view and base is not None:
            return TensorCut(index, base, value.record)
        self.given[index] = Given(index, value.record, self.contents.get(index), value.memory.index)
        return None


def _wrapped_numbers(tree: Tree, found: Identities, uses: Mapping[int, OperatorUse]) -> set[int]:
    """Tensors that are plain numbers: of no dimension, made by nobody, read and never written."""
    numbers, others = set(), set()
    for node, use in uses.items():
        schema = parsed_schema(tree.nodes[node].schema)
        kinds = [one.type for one in schema.parameters] if schema is not None else []
        for kind, value in zip_longest(kinds, use.reads):
            if kind == "Tensor" and isinstance(value, ValueId):
                numbers.add(value.index)
            else:
                others.update(value_indices(value))
    return {
        one
        for one in numbers - others
        if not found.values[one].makers
        and (record := found.values[one].record).shape == ()
        and record.device == "cpu"
        and record.dtype in _WRAPPED
    }


def _family(tree: Tree, node: int) -> set[int]:
    return {node, *tree.below(node)}


def _label(tree: Tree, node: int) -> str:
    """What the operator ran inside of: the innermost node that is no operator itself."""
    for one in tree.ancestors(node):
        name = tree.nodes[one].name
        if not is_operator(tree.nodes[one]) and not name.startswith(_BACKENDS):
            return "" if name.startswith(_ROOTS) else name.removeprefix(_ENGINE)
    return ""


def _reason(name: str, schema: str, use: OperatorUse) -> str:
    """Why an operator cannot be replayed by PyTorch alone; "" if it can."""
    told = parsed_schema(schema)
    if told is None:
        return "generated kernel"
    libraries = (name.partition("::")[0], told.namespace)
    foreign = next((one for one in libraries if one not in _BUILT_IN), None)
    if foreign is not None:
        return f"from the library {foreign!r}"
    if told.name in _FILE_OPERATORS:
        return "opens files"
    unknown = [
        one.type
        for one in records_in(use.reads)
        if isinstance(one, Opaque) and one.type not in _HARMLESS
    ]
    return f"takes a {unknown[0]}, which the trace does not hold" if unknown else ""


def _device(found: Identities, uses: Mapping[int, OperatorUse]) -> str:
    """Where most tensors lie."""
    counts = Counter(
        found.values[index].record.device.partition(":")[0]
        for use in uses.values()
        for index in value_indices(use.reads)
    )
    gpu = [device for device in counts if device not in ("cpu", "")]
    return gpu[0] if gpu else "cpu"


def _coverage(
    tree: Tree, topmost: Sequence[int], calls: Sequence[BenchCall], *, measured: OperatorTimes
) -> Coverage:
    missing = {call.node: call for call in calls if not call.is_supported}
    lost = {one: next((c for c in _family(tree, one) if c in missing), None) for one in topmost}
    duration_ns = measured.duration_ns
    rows: dict[tuple[str, str], list[int]] = {}
    for one, call in lost.items():
        if call is not None:
            key = (missing[call].name, missing[call].reason)
            rows.setdefault(key, []).append(duration_ns.get(one, 0))
    return Coverage(
        num_operators=len(topmost),
        num_replayed=sum(call is None for call in lost.values()),
        num_timed=sum(one in duration_ns for one in topmost),
        time_ns=sum(duration_ns.get(one, 0) for one in topmost),
        replayed_ns=sum(duration_ns.get(one, 0) for one, call in lost.items() if call is None),
        unsupported=tuple(
            (name, reason, len(each), sum(each)) for (name, reason), each in sorted(rows.items())
        ),
    )
