"""What PyTorch's `sac_ilp` and foretrace choose to compute again, run as the same training step.

A decoder of PyTorch's own modules trains one step on fake tensors. Both choose what it computes
again from the same bytes that have to be freed and from the same times of operators: the peer by
its estimators and its integer program, foretrace by `chosen_recompute` on the model's sizes. What
each chose is put into the module (`torch.utils.checkpoint`, with the peer's own policies where it
divides a module) and the step is run: times of operators add up, and the most bytes are those of
PyTorch's `MemTracker`.

The peer's roofline wants a GPU to ask for its peaks, so that its times are foretrace's here.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed._tools.runtime_estimator import RuntimeEstimator
from torch.distributed._tools.sac_estimator import OPS_TO_ALWAYS_SKIP, SACEstimator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from foretrace.capture.module.recorder import device_call, known_operator
from foretrace.cost import CostModel
from foretrace.search import chosen_recompute
from foretrace.search.bound import Prices
from foretrace.workload import (
    Norm,
    Plan,
    PlanMemory,
    Recompute,
    RecomputeModule,
    Transformer,
    plan_of_layer,
)

_GIB = 2**30
_TRIES = 4  # budgets asked of each, until what it says fits does


@dataclass(frozen=True)
class RanStep:
    """A training step as it ran on fake tensors."""

    step_ns: int  # all operators, one after the other
    peak_bytes: int


@dataclass(frozen=True)
class Chosen:
    """What one of the two came to under a budget."""

    ran: RanStep | None  # None if it found nothing that fits
    took_s: float  # of processor time of the choice alone, solvers' processes included
    what: str


class Decoder(nn.Module):
    """A transformer of plain modules, with GELU or SwiGLU, and with LayerNorm or RMSNorm.

    RMSNorm runs in pieces, as in models that write it out (transformers' `LlamaRMSNorm`).
    """

    def __init__(self, sizes: Transformer) -> None:
        """Of a model's sizes, without positions, which neither choice depends on."""
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(_Layer(sizes) for _ in range(sizes.num_layers))
        self.norm = _norm(sizes)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of the tokens themselves."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.head(self.norm(hidden))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class _Layer(nn.Module):
    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        self.attention_norm = _norm(sizes)
        self.attention = _Attention(sizes)
        self.feed_forward_norm = _norm(sizes)
        self.feed_forward = _FeedForward(sizes)
        self.forgets_norms = False

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self._after(self.attention_norm, self.attention, hidden)
        return hidden + self._after(self.feed_forward_norm, self.feed_forward, hidden)

    def _after(self, norm: nn.Module, branch: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if not self.forgets_norms:
            return branch(norm(hidden))  # type: ignore[no-any-return]
        forgotten = _Forgotten(norm, hidden) if isinstance(norm, _PiecewiseNorm) else None
        normed = norm(hidden) if forgotten is None else forgotten.normed()
        storage = normed.untyped_storage()._cdata  # noqa: SLF001 - the only name a storage has

        def kept(one: torch.Tensor) -> object:
            is_normed = one.untyped_storage()._cdata == storage  # noqa: SLF001
            return (one.shape, None) if is_normed else (None, one)

        def again(pair: Any) -> torch.Tensor:
            shape, one = pair
            if one is not None:
                return one  # type: ignore[no-any-return]
            if forgotten is not None:
                return forgotten.again()[1].detach().reshape(shape)
            with torch.no_grad():
                return norm(hidden.detach()).reshape(shape)  # type: ignore[no-any-return]

        with saved_tensors_hooks(kept, again):
            return branch(normed)  # type: ignore[no-any-return]


class _PiecewiseNorm(nn.Module):
    """Root mean square as transformers' code writes it: in fp32, then back."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        wide = hidden.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * (wide * scale).to(hidden.dtype)


class _Forgotten:
    """A norm of which nothing is kept but its input: made again once, for all that read it."""

    def __init__(self, norm: nn.Module, hidden: torch.Tensor) -> None:
        self.norm, self.hidden = norm, hidden
        self._again: tuple[torch.Tensor, torch.Tensor] | None = None

    def normed(self) -> torch.Tensor:
        """The result, whose gradient is taken of what is made again."""
        made = _MadeAgain.apply(self.hidden, self.norm.weight, self)  # type: ignore[no-untyped-call]
        return cast("torch.Tensor", made)

    def again(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The input as a leaf, and the result with all that its gradient needs."""
        if self._again is None:
            with torch.enable_grad():
                own = self.hidden.detach().requires_grad_()
                self._again = own, self.norm(own)
        return self._again


class _MadeAgain(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, hidden: torch.Tensor, _weight: torch.Tensor, forgotten: _Forgotten
    ) -> torch.Tensor:
        context.forgotten = forgotten
        return forgotten.norm(hidden)  # type: ignore[no-any-return]

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        forgotten = context.forgotten
        own, normed = forgotten.again()
        found = torch.autograd.grad(normed, (own, forgotten.norm.weight), gradients[0])
        context.forgotten = None
        return (*found, None)


def _norm(sizes: Transformer) -> nn.Module:
    is_rms = sizes.norm is Norm.RMS
    return _PiecewiseNorm(sizes.hidden) if is_rms else nn.LayerNorm(sizes.hidden)


class _Attention(nn.Module):
    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        own = sizes.attention
        self.size, self.heads, self.groups = own.head_size, own.num_heads, own.num_kv_heads
        self.qkv = nn.Linear(
            sizes.hidden, (own.num_heads + 2 * own.num_kv_heads) * own.head_size, bias=False
        )
        self.core = _Core()
        self.out = nn.Linear(own.num_heads * own.head_size, sizes.hidden, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        sizes = [count * self.size for count in (self.heads, self.groups, self.groups)]
        split = self.qkv(hidden).split(sizes, dim=-1)
        heads = [one.unflatten(-1, (-1, self.size)).transpose(1, 2) for one in split]
        mixed = self.core(*heads)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _Core(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        )


class _FeedForward(nn.Module):
    def __init__(self, sizes: Transformer) -> None:
        super().__init__()
        self.is_gated = sizes.feed_forward.is_gated
        width = sizes.feed_forward.width
        self.up = nn.Linear(sizes.hidden, (2 if self.is_gated else 1) * width, bias=False)
        self.down = nn.Linear(width, sizes.hidden, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        up = self.up(hidden)
        if not self.is_gated:
            return self.down(nn.functional.gelu(up))  # type: ignore[no-any-return]
        gate, up = up.chunk(2, dim=-1)
        return self.down(nn.functional.silu(gate) * up)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class RecomputePeers:
    """One model, one batch on one GPU: both choices under budgets."""

    sizes: Transformer
    plan: Plan
    prices: Prices
    costs: CostModel

    def ran(self, changed: Callable[[Decoder], None] = lambda _: None) -> RanStep:
        """The step of a module that was changed beforehand."""
        with FakeTensorMode(), _quiet():
            model, tokens = self._fresh()
            changed(model)
            tracker, clock = MemTracker(), _Clock(self.prices)
            tracker.track_external(model)
            with tracker, clock:
                model(tokens).backward()
            (peak,) = tracker.get_tracker_snapshot("peak").values()
        return RanStep(clock.total_ns, int(peak["Total"]))

    def everything(self) -> RanStep:
        """The step that computes every layer again."""
        return self.ran(partial(_with_plan, plan=replace(self.plan, recompute=Recompute.FULL)))

    def ours(self, nothing: RanStep, budget: int) -> Chosen:
        """By foretrace: the same bytes less than what its own count says of no recompute."""
        own = int(PlanMemory(self.sizes).stage_bytes(self.plan).max())
        capacity, spent_s = own - (nothing.peak_bytes - budget), 0.0
        for _ in range(_TRIES):
            begin_s = _spent_s()
            found = chosen_recompute(self.sizes, self.plan, capacity=capacity, costs=self.costs)
            spent_s += _spent_s() - begin_s
            if found is None:
                break
            ran = self.ran(partial(_with_plan, plan=found.plan))
            if ran.peak_bytes <= budget:
                words = found.plan.recompute_of_layer or (found.plan.recompute.value,)
                return Chosen(ran, spent_s, _counted(words))
            capacity -= ran.peak_bytes - budget
        return Chosen(None, spent_s, "nothing that fits")

    def theirs(self, nothing: RanStep, budget: int) -> Chosen:
        """By `sac_ilp`: the same bytes less than its own baseline."""
        from torch.distributed._tools.ilp_utils import (  # on demand: pulp and pwlf beside it
            get_peak_memory_runtime_baseline,
        )
        from torch.distributed._tools.sac_ilp import sac_milp

        graph, stats = self._estimated
        spent_s = 0.0
        base, _ = get_peak_memory_runtime_baseline(graph)
        most = base - (nothing.peak_bytes - budget)
        for _ in range(_TRIES):
            begin_s = _spent_s()
            chosen, _, peak = sac_milp(graph, memory_budget=most / _GIB)
            spent_s += _spent_s() - begin_s
            if peak < 0:
                break
            ran = self.ran(partial(_with_policies, chosen=chosen, stats=stats))
            if ran.peak_bytes <= budget:
                words = [f"{name.rsplit('.', 1)[-1]} {share:.2f}" for name, share in chosen.items()]
                return Chosen(ran, spent_s, _counted(words))
            most -= ran.peak_bytes - budget
        return Chosen(None, spent_s, "nothing that fits")

    @cached_property
    def _estimated(self) -> tuple[Any, Mapping[str, Any]]:
        """The peer's tree of modules, and what each module's operators keep and take."""
        from torch.distributed._tools.ilp_utils import (  # on demand: pulp and pwlf beside it
            aggregate_stats,
            parse_module_info,
        )

        with FakeTensorMode(), _quiet(), self._priced_estimates():
            model, tokens = self._fresh()
            memory, times, again = MemTracker(), RuntimeEstimator(), SACEstimator()
            memory.track_external(model)
            kind = "operator-level-cost-model"
            with memory, times(estimate_mode_type=kind):
                model(tokens).backward()
            with again(estimate_mode_type=kind):
                model(tokens)
            found = aggregate_stats(model, memory, times, again, torch.device("cpu"))
        return parse_module_info(found), again.sac_mod_stats

    def _fresh(self) -> tuple[Decoder, torch.Tensor]:
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)  # parameters of fake tensors cannot be cast
        try:
            model = Decoder(self.sizes)
        finally:
            torch.set_default_dtype(usual)
        shape = (self.plan.micro_batch, self.plan.sequence)
        return model, torch.zeros(shape, dtype=torch.int64)

    @contextlib.contextmanager
    def _priced_estimates(self) -> Iterator[None]:
        before = RuntimeEstimator._roofline_estimate  # noqa: SLF001 - has no other way in

        def estimated(func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
            result = func(*args, **(kwargs or {}))
            return result, _priced_ns(self.prices, func, (args, kwargs or {}), result) / 1e6

        RuntimeEstimator._roofline_estimate = staticmethod(estimated)  # type: ignore[method-assign] # noqa: SLF001
        try:
            yield
        finally:
            RuntimeEstimator._roofline_estimate = before  # type: ignore[method-assign] # noqa: SLF001


class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what operators take."""

    def __init__(self, prices: Prices) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prices, self.total_ns = prices, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        self.total_ns += _priced_ns(self.prices, func, (args, kwargs or {}), result)
        return result


def _priced_ns(prices: Prices, func: Any, given: tuple[Any, Any], result: Any) -> int:
    if not known_operator(func)[1]:
        return 0
    tensors = [_tensors(one) for one in (given, result)]
    if not tensors[1]:
        return 0
    return prices.operator_ns(*device_call(func, given, inputs=tensors[0], outputs=tensors[1]))


def _tensors(tree: object) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(tree)  # noqa: SLF001 - as PyTorch's own modes do
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def _with_plan(model: Decoder, *, plan: Plan) -> None:
    """What a plan computes again, by checkpoints of the modules that it names."""
    for at, layer in enumerate(model.layers):
        own = plan_of_layer(plan, at)
        if own.recompute is Recompute.FULL:
            _checkpointed(layer)
        if own.recompute is not Recompute.SELECTIVE:
            continue
        modules = own.recompute_modules or (RecomputeModule.CORE_ATTENTION,)
        layer.forgets_norms = RecomputeModule.LAYER_NORM in modules  # type: ignore[assignment]
        if RecomputeModule.CORE_ATTENTION in modules:
            _checkpointed(layer.attention.core)  # type: ignore[union-attr, arg-type]
        if RecomputeModule.FEED_FORWARD in modules:
            _checkpointed(layer.feed_forward)  # type: ignore[arg-type]


def _with_policies(
    model: Decoder, *, chosen: Mapping[str, float], stats: Mapping[str, Any]
) -> None:
    """What `sac_ilp` computes again: of each module the operators that fit its share."""
    from torch.distributed._tools.sac_ilp import get_optimal_checkpointing_policy_per_module

    policies: dict[tuple[int, float], list[int]] = {}
    for name, share in chosen.items():
        saved = None
        if share < 1:
            own = stats[name]
            key = (len(own.func_names), share)
            if key not in policies:
                policies[key] = get_optimal_checkpointing_policy_per_module(own, 1 - share)
            saved = policies[key]
        _checkpointed(model.get_submodule(name.partition(".")[2]), saved)


def _checkpointed(module: nn.Module, saved: Sequence[int] | None = None) -> None:
    """A module that keeps its inputs, and what some of its operators give."""
    inner = module.forward
    context: Callable[[], Any] | None = None
    if saved is not None:

        def context() -> Any:
            turns = {False: iter(saved), True: iter(saved)}

            def policy(own: Any, func: Any, *_: Any, **__: Any) -> CheckpointPolicy:
                is_kept = func not in OPS_TO_ALWAYS_SKIP and next(turns[own.is_recompute], 0)
                return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

            # Operators in place share the fate of what they change by the peer's own program.
            return create_selective_checkpoint_contexts(  # type: ignore[no-untyped-call]
                policy, allow_cache_entry_mutation=True
            )

    given: dict[str, Any] = {} if context is None else {"context_fn": context}
    module.forward = partial(checkpoint, inner, use_reentrant=False, **given)


def _counted(words: Sequence[str]) -> str:
    counts = {word: list(words).count(word) for word in words}
    return ", ".join(f"{count} x {word}" for word, count in counts.items()) or "nothing"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the peer's modes print as they end."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _spent_s() -> float:
    return sum(os.times()[:4])
