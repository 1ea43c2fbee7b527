"""An indexer of one layer: small heads score all earlier tokens, and the best are picked.

All ranks of TENSOR do the whole of it. What it reads has no gradient from it: it is trained towards
attention's own distribution, over the tokens that it picked.

Source:
    DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556, section 2.1; deepseek-ai/DeepSeek-V3.2-Exp,
    inference/model.py, `Indexer`.
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.workload.blocks.calls import top, zeros
from foretrace.workload.blocks.linear import Weight, plain
from foretrace.workload.blocks.pointwise import norm_step, rotary_step
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import PICKED_ATTENTION, OperatorCall, array, call
from foretrace.workload.blocks.steps import Step, operator
from foretrace.workload.exchanges.activations import whole_keys
from foretrace.workload.models.flops import Convention, mean_keys
from foretrace.workload.models.transformer import Indexer, Latent

_WIDE = "fp32"


def index_steps(setting: Setting, indexer: Indexer, latent: Latent) -> list[Step]:
    """From the short query and the token to the tokens that attention sees."""
    tokens, heads, size = setting.tokens, indexer.num_heads, indexer.head_size
    dtype = setting.multiplied
    weights = (
        (Weight("index queries", latent.query_rank, heads * size),),
        (
            Weight("index key", setting.model.hidden, size),
            Weight("index weights of heads", setting.model.hidden, heads),
        ),
    )
    made = [plain(setting, each, tokens, dtype) for each in weights]
    normed = norm_step(setting, "index key norm", (tokens, size))
    turned = rotary_step(setting, "index rotation", tokens, (heads + 1, latent.rotary_size))
    return [*map(_detached, made), normed, turned, *_picked(setting, indexer)]


def _detached(step: Step) -> Step:
    """A step that hands no gradient on to what it reads."""
    items = tuple(one for one in step.backward if one.is_weight_gradient)
    return replace(step, backward=items)


def _picked(setting: Setting, indexer: Indexer) -> list[Step]:
    """Scores of all pairs and the choice among them; gradients of those that were picked."""
    plan, size = setting.plan, indexer.head_size
    batch, queries, keys = plan.micro_batch, setting.length, plan.sequence
    mean = max(1, round(mean_keys(keys, None, Convention.CAUSAL)))
    picked = max(1, round(mean_keys(keys, indexer.reach, Convention.CAUSAL)))
    rows = batch * queries
    steps: list[Step] = []
    if plan.context > 1:
        gathered, scattered = whole_keys(plan, size)
        steps.append(Step((gathered,), (scattered,)))
    forward = (
        operator("index scores", _scores(setting, indexer, (batch, queries, mean))),
        operator("sums of index scores", zeros((rows, mean), _WIDE)),
        operator("choice of tokens", top(rows, mean, min(indexer.num_chosen, mean), _WIDE)),
    )
    again = _scores(setting, indexer, (batch, queries, picked))
    labels = ("index query gradient", "index key gradient")
    return [*steps, Step(forward, tuple(operator(label, again) for label in labels))]


def _scores(setting: Setting, indexer: Indexer, sizes: tuple[int, int, int]) -> OperatorCall:
    """One product of `size` numbers a pair, as the two of attention that have half each."""
    batch, queries, keys = sizes
    half, dtype = max(1, indexer.head_size // 2), setting.made
    query = array((batch, queries, indexer.num_heads, half), dtype)
    key = array((batch, keys, 1, half), dtype)
    said = (None, None, str(queries), str(keys), "0.", "False", "False")
    return call(f"{PICKED_ATTENTION}_forward", query, key, key, *said)
