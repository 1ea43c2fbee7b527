"""Pairs of generated jobs, one edit apart: what is recorded, what is asked, what is true.

How long work takes at another size follows a law that is written here twice: once with the
constants of the job (`TRUE_LAW`), once with those of a cost model that knows the kind of machine
but not its constants (`BELIEVED_LAW`: rates 20% too high, overheads a quarter too small). So a
prediction has to rest on what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.cost import CollectiveRequests, Costs, KernelRequests, Source
from foretrace.operators import work_of
from foretrace.whatif import Batch, Edit, Layers, Parallelism
from tests.truth import TRANSFORMER_LAYER, JobConfig, Link, Work

HIDDEN, FEED_FORWARD, HEADS, HEAD_WIDTH = 4096, 16384, 32, 128
TOKENS = 1024  # one sequence


@dataclass(frozen=True)
class Law:
    """Time of kernels and transfers of any size."""

    overhead_ns: int
    flops_per_ns: float
    bytes_per_ns: float
    latency_ns: int  # of each of the `n - 1` steps of a ring
    link_bytes_per_ns: float

    def product_ns(self, rows: int, columns: int, inner: int) -> int:
        """Of one matrix product."""
        return round(self.overhead_ns + 2 * rows * columns * inner / self.flops_per_ns)

    def attention_ns(self, heads: int, tokens: int) -> int:
        """Of causal attention forward."""
        flops = 2 * heads * tokens * tokens * HEAD_WIDTH
        return round(self.overhead_ns + 2 * flops / self.flops_per_ns)

    def moved_ns(self, num_bytes: int) -> int:
        """Of an operation that reads and writes so much."""
        return round(self.overhead_ns + num_bytes / self.bytes_per_ns)

    def ring(self, num_ranks: int) -> Link:
        """The link of a ring of so many; jobs take twice `(n - 1) / n` of a message's bytes."""
        return Link(
            latency_ns=2 * (num_ranks - 1) * self.latency_ns, bytes_per_ns=self.link_bytes_per_ns
        )


TRUE_LAW = Law(
    overhead_ns=6_000,
    flops_per_ns=230_000.0,
    bytes_per_ns=1_500.0,
    latency_ns=6_000,
    link_bytes_per_ns=100.0,
)
BELIEVED_LAW = Law(
    overhead_ns=4_500,
    flops_per_ns=276_000.0,
    bytes_per_ns=1_800.0,
    latency_ns=5_000,
    link_bytes_per_ns=120.0,
)


def layer_under(tp: int, *, law: Law = TRUE_LAW, tokens: int = TOKENS) -> tuple[Work, ...]:
    """One transformer layer's share of a tensor-parallel rank."""
    norm, qkv, attention, out, add, up, gelu, down = TRANSFORMER_LAYER
    wide, ffn = 3 * HIDDEN // tp, FEED_FORWARD // tp
    heads = HEADS // tp
    return (
        _moved(norm, law, [[1, tokens, HIDDEN], [HIDDEN], [HIDDEN]], 2 * tokens * HIDDEN),
        _product(qkv, law, tokens=tokens, columns=wide, inner=HIDDEN),
        _attention(attention, law, heads, tokens),
        _product(out, law, tokens=tokens, columns=HIDDEN, inner=HIDDEN // tp),
        _moved(add, law, [[1, tokens, HIDDEN], [1, tokens, HIDDEN]], 3 * tokens * HIDDEN),
        _product(up, law, tokens=tokens, columns=ffn, inner=HIDDEN),
        _moved(gelu, law, [[1, tokens, ffn]], 2 * tokens * ffn),
        _product(down, law, tokens=tokens, columns=HIDDEN, inner=ffn),
    )


def _product(work: Work, law: Law, *, tokens: int, columns: int, inner: int) -> Work:
    (dgrad, _), (wgrad, _) = work.backward_kernels
    return replace(
        work,
        forward_ns=law.product_ns(tokens, columns, inner),
        dims=str([[columns], [tokens, inner], [inner, columns], [], []]),
        backward_kernels=(
            (dgrad, law.product_ns(tokens, inner, columns)),
            (wgrad, law.product_ns(inner, columns, tokens)),
        ),
        backward_calls=(
            ("aten::mm", str([[tokens, columns], [columns, inner]])),
            ("aten::mm", str([[columns, tokens], [tokens, inner]])),
        ),
    )


def _attention(work: Work, law: Law, heads: int, tokens: int) -> Work:
    (dot, _), (main, _) = work.backward_kernels
    shape = [1, tokens, heads, HEAD_WIDTH]  # of the operators below `scaled_dot_product_attention`
    forward_ns = law.attention_ns(heads, tokens)
    call = "aten::_flash_attention_backward"
    moved_ns = law.moved_ns(2 * 2 * heads * tokens * HEAD_WIDTH)
    return replace(
        work,
        forward_ns=forward_ns,
        dims=str([shape, shape, shape]),
        backward_kernels=((dot, moved_ns), (main, round(2.5 * forward_ns))),
        backward_calls=((call, str([shape] * 4)), (call, str([shape] * 4))),
    )


def _moved(work: Work, law: Law, dims: list[list[int]], numbers: int) -> Work:
    calls = {
        "norm": (("aten::native_layer_norm_backward", str([dims[0], dims[0], dims[0][-1:]])),) * 2,
        "elementwise": (("aten::gelu_backward", str([dims[0], dims[0]])),),
    }
    kernels = tuple((name, law.moved_ns(3 * numbers)) for name, _ in work.backward_kernels)
    return replace(
        work,
        forward_ns=law.moved_ns(2 * numbers),
        dims=str(dims),
        types=str(["c10::BFloat16"] * len(dims)).replace("'", '"'),
        backward_kernels=kernels,
        backward_calls=calls[work.family] if kernels else (),
    )


def job(
    *,
    tp: int = 2,
    dp: int = 2,
    pp: int = 2,
    layers: int = 8,
    microbatches: int = 4,
    tokens: int = TOKENS,
    schedule: str = "1f1b",
    seed: int = 0,
) -> JobConfig:
    """A job under the true law; `layers` of the whole model."""
    return JobConfig(
        seed=seed,
        num_steps=3,
        tp=tp,
        dp=dp,
        pp=pp,
        num_layers=layers // pp,
        num_microbatches=microbatches,
        schedule="gpipe" if schedule == "gpipe" else "1f1b",
        layer=layer_under(tp, tokens=tokens),
        activation_bytes=2 * tokens * HIDDEN,
        layer_parameter_bytes=2 * 12 * HIDDEN * HIDDEN // tp,
        # As many as there are parameters to update: of a stage's layers, divided by tp.
        num_optimizer_kernels=layers // pp * 8 // tp,
        tp_link=TRUE_LAW.ring(tp) if tp > 1 else JobConfig.tp_link,
        dp_link=TRUE_LAW.ring(dp) if dp > 1 else JobConfig.dp_link,
        world_link=TRUE_LAW.ring(tp * dp * pp) if tp * dp * pp > 1 else JobConfig.world_link,
    )


@dataclass(frozen=True)
class EditedJob:
    """A job that is recorded, edits, and the job that they make."""

    name: str
    recorded: JobConfig
    edits: tuple[Edit, ...]
    true: JobConfig
    max_error: float


def _pair(name: str, max_error: float, edits: tuple[Edit, ...], **change: object) -> EditedJob:
    base = change.pop("base", {})
    assert isinstance(base, dict)
    recorded = job(**base)
    return EditedJob(name, recorded, edits, job(**{**base, **change, "seed": 1}), max_error)


EDITED_JOBS = (
    _pair("layers 8 -> 16", 0.01, (Layers(16),), layers=16),
    _pair("layers 8 -> 4", 0.01, (Layers(4),), layers=4),
    _pair("microbatches 4 -> 8", 0.01, (Batch(num_microbatches=8),), microbatches=8),
    _pair("microbatches 4 -> 2", 0.01, (Batch(num_microbatches=2),), microbatches=2),
    _pair("dp 2 -> 4", 0.01, (Parallelism(dp=4),), dp=4),
    _pair("dp 2 -> 8", 0.01, (Parallelism(dp=8),), dp=8),
    _pair("dp 4 -> 2", 0.01, (Parallelism(dp=2),), dp=2, base={"dp": 4, "tp": 1}),
    _pair("pp 2 -> 4", 0.03, (Parallelism(pp=4),), pp=4),
    _pair("pp 4 -> 2", 0.03, (Parallelism(pp=2),), pp=2, base={"pp": 4}),
    _pair("pp 2 -> 8, on 32 ranks", 0.03, (Parallelism(pp=8),), pp=8),
    _pair(
        "gpipe, pp 2 -> 4", 0.03, (Parallelism(pp=4),), pp=4, base={"schedule": "gpipe"}
    ),
    _pair("tp 2 -> 4", 0.03, (Parallelism(tp=4),), tp=4),
    _pair("tp 4 -> 2", 0.03, (Parallelism(tp=2),), tp=2, base={"tp": 4, "dp": 2, "pp": 1}),
    _pair("tp 2 -> 8", 0.03, (Parallelism(tp=8),), tp=8),
    _pair(
        "sequence 1,024 -> 2,048", 0.03, (Batch(sequence=2048),), tokens=2048
    ),
    _pair(
        "dp 2 -> 4, pp 2 -> 4, layers 8 -> 16: 8 to 32 ranks",
        0.03,
        (Parallelism(dp=4, pp=4), Layers(16)),
        dp=4, pp=4, layers=16,
    ),
    _pair(
        "dp 2 -> 8, tp 2 -> 4: 8 to 64 ranks",
        0.03,
        (Parallelism(dp=8, tp=4),),
        dp=8, tp=4,
    ),
)  # fmt: skip


class BelievedCosts:
    """A cost model of the right form with constants that are 20% off."""

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """By FLOPs and bytes of each operator's shapes."""
        law = BELIEVED_LAW
        texts = [
            ("", "")
            if min(operator, signature) < 0
            else (requests.operators[operator], requests.signatures[signature])
            for operator, signature in zip(
                requests.operator.tolist(), requests.signature.tolist(), strict=True
            )
        ]
        known: dict[tuple[str, str], int] = {}
        for name, shapes in set(texts):
            work = work_of(name, shapes) if name else None
            if work is None:
                known[name, shapes] = 0
            elif work.is_product:
                known[name, shapes] = round(law.overhead_ns + work.flops / law.flops_per_ns)
            else:
                known[name, shapes] = law.moved_ns(max(work.num_bytes, 0))
        return _costs(np.array([known[each] for each in texts], np.int64))

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Rings; a pair's message goes over one link once."""
        law = BELIEVED_LAW
        found = []
        for row in range(len(requests)):
            name = requests.collectives[requests.collective[row]]
            size = len(requests.groups[requests.group[row]])
            num_bytes = int(requests.num_bytes[row])
            if "send" in name or "recv" in name:
                found.append(law.latency_ns + num_bytes / law.link_bytes_per_ns)
                continue
            passes = 2 * (size - 1) / size
            found.append(law.ring(size).latency_ns + passes * num_bytes / law.link_bytes_per_ns)
        return _costs(np.array(found, np.float64).round().astype(np.int64))


def _costs(duration_ns: np.ndarray) -> Costs:
    source = np.where(duration_ns > 0, Source.FITTED, Source.UNKNOWN).astype(np.uint8)
    family = np.zeros(len(duration_ns), np.int32)
    return Costs(duration_ns, duration_ns, duration_ns, source, family, ("believed",))
