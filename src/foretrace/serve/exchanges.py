"""`exchange_ns`, `sums_ns`, `tokens_to_experts_ns`: what GPUs of an engine send each other.

Collectives are NCCL's, of the machine's links, but for sums of few tokens, which a kernel of the
engine's own makes. Tokens of copies that share experts go by collectives (all to all ranks and sums
back), or by libraries made for that, as `all2all_backend` says.

Source:
    vllm-project/vllm 0.19, vllm/distributed/device_communicators/all2all.py: DeepEP's kernels of
    high throughput get its own default of 20 processors; a rank hands over its share of tokens.
    csrc/custom_all_reduce.cuh and custom_all_reduce.py beside it: which sums the kernel makes, in
    one stage (each rank reads what all others have) or two (its part, then theirs), and with how
    many threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, CollectiveKind, Float64s, Int64s, WorkloadError
from foretrace.cost import CollectiveRequests, collective_costs, model_ns, shapes_of
from foretrace.machine import Machine
from foretrace.serve.attention_grids import BYTES, values_of
from foretrace.serve.engine import EXCHANGES, Engine
from foretrace.serve.formats import SIXTEEN
from foretrace.workload import Transformer

_DISPATCH, _COMBINE = "dispatch", "combine"
_NARROW = "fp8"
_LENT = {"deepep_high_throughput": 20}  # processors; of others all


@dataclass(frozen=True)
class _SumKernel:
    """The engine's own all-reduce on a chip, in ns."""

    start_ns: float  # one stage, of next to nothing
    load_ns: float  # from a load to what it brings, from another GPU
    second_ns: float  # of a second stage, and of waiting for all others' first


# Fitted (docs/serving.md says how well) to what vLLM 0.19 (A100: 0.14) took in CUDA graphs on 2 to
# 8 GPUs, up to 8 MiB: ai-dynamo/aiconfigurator, systems/data/*/comm/vllm, custom_allreduce_perf.
_SUM_KERNELS = {
    "Ampere": _SumKernel(5_300, 1_400, 8_700),
    "Hopper": _SumKernel(4_550, 1_100, 4_200),
    "Blackwell": _SumKernel(7_200, 1_460, 17_600),
}
_SUMMED_BYTES = 8 << 20  # from here on NCCL sums,
# of 6 and 8 GPUs from here on: their switches' multicast, as fast as the kernel in two stages
# (all_reduce_utils.py, SYMM_MEM_ALL_REDUCE_MAX_SIZES).
_MULTICAST_BYTES = {"Hopper": 64 << 20, "Blackwell": 128 << 20}
_MULTICAST_RANKS = 6
_SUMMING_RANKS = frozenset((2, 4, 6, 8))
_LOADED_BYTES = 36 * 512 * 16  # on their way at once: of 36 blocks' 512 threads, 16 bytes each
# Up to so many ranks and bytes in one stage.
_ONE_STAGE = ((2, _SUMMED_BYTES), (4, 512 << 10), (8, 256 << 10))
# Outside of graphs what is summed is copied first, by a kernel more: what the same table has of
# 4 MiB on H100, H200 in graphs and outside of them, but for the bytes.
_COPY_NS = 5_000.0
_REACHED = 0.85  # of links, by long messages (docs/cost/collectives.md, `link_rate`)


def too_few(machine: Machine, ranks: int) -> WorkloadError:
    """What to say of a machine with fewer GPUs than serve one model."""
    return WorkloadError(
        f"{ranks} GPUs serve one model, and {machine.name} has {machine.num_ranks}: name a larger "
        "machine with --machine"
    )


def exchange_ns(
    kind: CollectiveKind, num_bytes: Int64s, ranks: int, machine: Machine | None
) -> Float64s:
    """A collective of the first GPUs of a machine, by its bytes.

    Raises:
        WorkloadError: if no machine is given, or it has too few GPUs.
    """
    if machine is None:
        raise WorkloadError(
            f"{ranks} GPUs serve one model, and nothing says what connects them: name a machine "
            "with --machine"
        )
    if machine.num_ranks < ranks:
        raise too_few(machine, ranks)
    zeros = np.zeros(len(num_bytes), np.int32)
    costs = collective_costs(
        CollectiveRequests(
            collective=zeros,
            num_bytes=num_bytes.astype(np.int64),
            dtype=zeros,
            group=zeros,
            collectives=(kind.in_tables,),
            dtypes=("bf16",),
            groups=(tuple(range(ranks)),),
        ),
        machine,
    )
    found: Float64s = np.where(num_bytes > 0, costs.duration_ns, 0).astype(np.float64)
    return found


def sums_ns(
    num_bytes: Int64s, ranks: int, machine: Machine | None, *, is_own: bool, in_graph: Bools
) -> Float64s:
    """All-reduces of tensor parallelism: the engine's own kernel where it may and is faster.

    Args:
        num_bytes: int64[rows], of what is summed.
        ranks: of one copy of the model.
        machine: that it runs on.
        is_own: whether the engine may use its kernel.
        in_graph: bool[rows], of a captured graph; else what is summed is copied first.

    Raises:
        WorkloadError: if no machine is given, or it has too few GPUs.
    """
    found = exchange_ns(CollectiveKind.ALL_REDUCE, num_bytes, ranks, machine)
    assert machine is not None  # noqa: S101  `exchange_ns` has looked
    chip = machine.chip
    kernel = _SUM_KERNELS.get(chip.architecture)
    is_joined = chip.link_bytes_per_ns is not None or ranks == 2  # noqa: PLR2004
    if not (is_own and kernel and is_joined and ranks in _SUMMING_RANKS):
        return found
    if ranks > machine.host.num_chips:
        return found
    own = _own_sums_ns(kernel, num_bytes.astype(np.float64), ranks, machine)
    own += np.where(in_graph, 0.0, _COPY_NS + 2 * num_bytes / chip.memory_bytes_per_ns)
    most = _SUMMED_BYTES
    if ranks >= _MULTICAST_RANKS:
        most = _MULTICAST_BYTES.get(chip.architecture, most)
    may = (num_bytes > 0) & (num_bytes < most)
    return np.where(may, np.minimum(own, found), found)


def _own_sums_ns(kernel: _SumKernel, num_bytes: Float64s, ranks: int, machine: Machine) -> Float64s:
    """Each rank loads what others have: as fast as links carry, or as loads come back."""
    chip = machine.chip
    links = chip.link_bytes_per_ns or machine.host.scale_up_bytes_per_ns or np.inf
    rate = min((ranks - 1) * _LOADED_BYTES / kernel.load_ns, _REACHED * links)
    is_one = np.any([(ranks <= most) & (num_bytes < size) for most, size in _ONE_STAGE], axis=0)
    loaded = np.where(is_one, ranks - 1, 2 * (ranks - 1) / ranks) * num_bytes
    found: Float64s = kernel.start_ns + np.where(is_one, 0.0, kernel.second_ns) + loaded / rate
    return found


def lent_share(engine: Engine, machine: Machine | None) -> float:
    """Share of a GPU's processors that tokens' exchanges keep from other work."""
    lent = _LENT.get(engine.all2all_backend, 0)
    count = None if machine is None else machine.chip.num_processors
    return lent / count if count else 0.0


def tokens_to_experts_ns(
    model: Transformer,
    engine: Engine,
    machine: Machine | None,
    tokens: Int64s,
    *,
    is_narrow: bool,
) -> Float64s:
    """Tokens of all copies to the ranks of their experts and back, once, in ns.

    Args:
        model: whose experts lie over the copies.
        engine: its settings.
        machine: that it runs on.
        tokens: int64[rows], of all copies together.
        is_narrow: whether experts multiply numbers in 8 bits, in which tokens are sent then.

    Raises:
        WorkloadError: if no machine is given, or it has too few GPUs.
        MachineError: if it cannot be costed.
    """
    copies = engine.data_parallel_size
    if engine.all2all_backend not in EXCHANGES or not engine.enable_expert_parallel:
        size = tokens * model.hidden * BYTES
        kinds = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
        both: Float64s = np.sum(
            [exchange_ns(kind, size, copies, machine) for kind in kinds], axis=0
        )
        return both
    if machine is None or machine.num_ranks < engine.expert_gpus:
        return exchange_ns(CollectiveKind.ALL_GATHER, tokens, engine.expert_gpus, machine)
    assert model.experts is not None  # noqa: S101  what asks has looked
    ranks, chips = engine.expert_gpus, machine.host.num_chips
    hosts = -(-ranks // chips)
    network = 0.0 if hosts == 1 else machine.group_bytes_per_ns(tuple(range(ranks)))
    way = EXCHANGES[engine.all2all_backend]
    one = np.ones_like(tokens)
    alike = (model.hidden, model.experts.num_active, model.experts.count, ranks, hosts)
    lent = _LENT.get(engine.all2all_backend, 0)
    places = (*alike, lent, round(network), int(way == EXCHANGES["deepep_low_latency"]))
    sizes = np.stack([-(-tokens // ranks), *(each * one for each in places)], axis=1)
    found = np.zeros(len(tokens))
    for kind, dtype in ((_DISPATCH, _NARROW if is_narrow else SIXTEEN), (_COMBINE, SIXTEEN)):
        # DeepEP's tables hold dispatched tokens in 8 bits alone: rates are of bytes.
        fitted = _NARROW if kind == _DISPATCH else dtype
        values = values_of(machine.chip, "expert exchange", f"{kind}{way}", fitted)
        found = found + model_ns(
            "expert exchange",
            shapes_of("expert exchange", sizes, dtype),
            machine.chip,
            values=values,
        )
    return np.where(tokens > 0, found, 0.0)
