"""`exchange_ns`, `tokens_to_experts_ns`: what GPUs of one engine send each other in a layer.

Collectives are NCCL's, of the machine's links; tokens of copies that share experts go by them (all
to all ranks and sums back), or by libraries made for that, as `all2all_backend` says.

Source:
    vllm-project/vllm 0.19, vllm/distributed/device_communicators/all2all.py: DeepEP's kernels of
    high throughput get its own default of 20 processors; a rank hands over its share of tokens.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import CollectiveKind, Float64s, Int64s, WorkloadError
from foretrace.cost import CollectiveRequests, collective_costs, model_ns, shapes_of
from foretrace.machine import Machine
from foretrace.serve.attention_grids import BYTES, values_of
from foretrace.serve.engine import EXCHANGES, Engine
from foretrace.serve.formats import SIXTEEN
from foretrace.workload import Transformer

_DISPATCH, _COMBINE = "dispatch", "combine"
_NARROW = "fp8"
_LENT = {"deepep_high_throughput": 20}  # processors; of others all


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
        raise WorkloadError(
            f"{ranks} GPUs serve one model, and {machine.name} has {machine.num_ranks}: name a "
            "larger machine with --machine"
        )
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
