"""The machine that a published run ran on, and the model that it trained."""

from __future__ import annotations

from dataclasses import replace

from foretrace.base import MachineError, WorkloadError
from foretrace.machine import (
    Host,
    Machine,
    QuantityKind,
    Tier,
    TierKind,
    chip_named,
    load_chip,
    load_host,
    quantity,
)
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import Positions, Transformer, load_model, model_names

_LATENCY_NS = {
    # One step of NCCL's own model inside a host (src/graph/tuning.cc, hwLat); between hosts 64
    # bytes over InfiniBand across leaf switches: Zhao et al., "Insights into DeepSeek-V3", 2025.
    TierKind.SCALE_UP: 600.0,
    TierKind.POD: 3_700.0,
}


def machine_of(run: PublishedRun) -> Machine:
    """A machine of as many chips as the run used, at full bandwidth between its hosts.

    Raises:
        MachineError: for a GPU without a description.
    """
    host = _host(run)
    per_host = chips_of_host(run)
    domain = _domain(run, per_host)
    tiers = [_tier("domain", TierKind.SCALE_UP, domain, host.scale_up_bytes_per_ns)]
    if run.num_gpus > domain:
        tiers.append(_tier("network", TierKind.POD, run.num_gpus, _network(run, host)))
    return Machine(
        name=f"{run.num_gpus} x {run.gpu}",
        title=f"{run.num_gpus} x {run.gpu}",
        host=replace(host, num_chips=per_host),
        tiers=tuple(tiers),
        figures=(),
        parent="",
        path=host.path,
    )


def chips_of_host(run: PublishedRun) -> int:
    """Chips of one host that the run used.

    Raises:
        MachineError: for a GPU without a description.
    """
    return min(run.gpus_per_node or _host(run).num_chips, run.num_gpus)


def _host(run: PublishedRun) -> Host:
    hosts = run.description.hosts
    if run.gpu in hosts:
        return _described(*hosts[run.gpu])
    # As a chip's own name, or as profilers and PyTorch call it: "NVIDIA H100 80GB HBM3".
    chip = chip_named(run.gpu)
    for names in hosts.values():
        host = _described(*names)
        if chip is not None and host.chip.name == chip.name:
            return host
    raise MachineError(
        f"run {run.id!r} ran on {run.gpu!r}, of which no host is described: "
        f"known are {', '.join(sorted(hosts)) or 'none'}; add it to [hosts] of the description."
    )


def _described(host_name: str, chip_name: str) -> Host:
    host = load_host(host_name)
    return replace(host, chip=load_chip(chip_name)) if chip_name else host


def _network(run: PublishedRun, host: Host) -> float | None:
    """Bytes per ns of one GPU between hosts: as the run's table says, else of the usual host."""
    if run.network is None:
        return host.network_bytes_per_ns
    return quantity(run.network, QuantityKind.BANDWIDTH).value


def _domain(run: PublishedRun, per_host: int) -> int:
    """GPUs of one scale-up domain: the most that divide the run's, as jobs take even shares."""
    most = min(max(run.nvlink_domain or per_host, per_host), run.num_gpus)
    even = (size for size in range(most, per_host, -per_host) if run.num_gpus % size == 0)
    return next(even, per_host)


def _tier(name: str, kind: TierKind, num_ranks: int, bytes_per_ns: float | None) -> Tier:
    if bytes_per_ns is None:
        raise MachineError(f"the host's description gives no bandwidth of its {name}: add it.")
    return Tier(
        name=name,
        kind=kind,
        technology="",
        num_ranks=num_ranks,
        bytes_per_ns=bytes_per_ns,
        oversubscription=1.0,
        latency_ns=_LATENCY_NS[kind],
        num_rails=None,
    )


def model_of(run: PublishedRun) -> Transformer:
    """The model that a run trained, from what is known of its name, with the run's sizes.

    Raises:
        WorkloadError: if neither the columns nor the name say what the model is.
    """
    base = _alike(run)
    attention, feed_forward = base.attention, base.feed_forward
    heads = run.heads or attention.num_heads
    hidden = run.hidden or base.hidden
    if attention.latent is None:
        size = run.head_dim or (hidden // heads if run.hidden else attention.head_size)
        attention = replace(
            attention,
            num_heads=heads,
            num_kv_heads=run.kv_heads or (heads if run.heads else attention.num_kv_heads),
            head_size=size,
        )
    experts = base.experts
    if experts is not None:
        experts = replace(
            experts,
            count=run.experts or experts.count,
            num_active=run.top_k or experts.num_active,
            width=run.moe_ffn or experts.width,
        )
    if feed_forward.width and run.ffn:
        feed_forward = replace(feed_forward, width=run.ffn)
    return replace(
        base,
        name=run.model,
        num_layers=run.layers or base.num_layers,
        hidden=hidden,
        vocabulary=run.vocab or base.vocabulary,
        # Software makes a table of learned positions as long as the sequence.
        context=run.seq_len if base.positions is Positions.LEARNED else base.context,
        attention=attention,
        feed_forward=feed_forward,
        experts=experts,
    )


def _alike(run: PublishedRun) -> Transformer:
    name = run.model.lower()
    known = name if name in model_names() else run.description.model_like(name)
    model = load_model(known) if known is not None else None
    if not isinstance(model, Transformer):
        raise WorkloadError(
            f"run {run.id!r} trains {run.model!r}, which is no known transformer: "
            "`foretrace model list` names those that are."
        )
    if known != name and run.has_experts != (model.experts is not None):
        raise WorkloadError(
            f"run {run.id!r} trains {run.model!r} with {run.experts or 0} experts, and nothing "
            "says which layers hold them: add it as a model file of its own."
        )
    return model
