"""`experts_ns`: layers of experts by the tokens of all ranks, with the exchanges around them.

Where experts lie over ranks whole (`enable_expert_parallel`), all ranks wait for the fullest: its
experts are some at random, of a popularity that is not even, and so are those of them that tokens
of a step reach. `enable_eplb` places experts, and holds some several times, so that only the draw
is left. With `enable_dbo` a step goes in halves, each of whose exchanges hide behind the other's
work, and weights are read for both; processors that are lent to exchanges work on nothing else
meanwhile. Where each expert is cut in parts, ranks do alike.

Source:
    vllm-project/vllm 0.19, vllm/model_executor/layers/fused_moe/layer.py: experts in order over
    ranks; fused_moe.py, `TritonExperts`, `write_zeros_to_output`: rows of others' experts;
    vllm/v1/worker/dp_utils.py: copies are padded alike where a graph runs. Order statistics of
    normal draws: Blom, Statistical Estimates and Transformed Beta-Variables, 1958. That placing
    and holding some several times makes prompts 1.49 times as fast over 32 GPUs (lmsys.org,
    large-scale EP, 2025-05-05) is 1.57 here of what experts take.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.machine import Machine
from foretrace.serve.attention_grids import BYTES, moved_ns
from foretrace.serve.engine import NCCL, Engine
from foretrace.serve.exchanges import lent_share, tokens_to_experts_ns
from foretrace.serve.profiles import LayerProfiles
from foretrace.serve.step_times import padded_tokens, surface
from foretrace.workload import EXPERTS, Experts, Transformer

# Experts are not equally popular: a trained gate activates up to 13 % fewer than an even one would
# (LLMServingSim, bench/core/runner.py, on the gates it recorded). A lognormal popularity of this
# width has that largest shortfall, for 8 of 128 experts.
_POPULARITY = 0.7
_EVERY = 1024  # tokens up to which experts that take part are counted for each number
_BLOM = 0.375
_EIGHT_BITS = "fp8"


def ranks_in_step(model: Transformer, engine: Engine) -> int:
    """Copies of the model that go in step: all, where experts lie over them; else each alone."""
    return engine.data_parallel_size if model.experts is not None else 1


def expert_shards(engine: Engine) -> int:
    """Parts that each expert is cut in: as many as GPUs, where they do not lie over them whole."""
    return 1 if engine.enable_expert_parallel else engine.expert_gpus


def _popularity(experts: Experts) -> Float64s:
    """Chance that a token passes through an expert, float64[experts]."""
    normal = NormalDist()
    places = [normal.inv_cdf((at + 0.5) / experts.count) for at in range(experts.count)]
    weights = np.exp(_POPULARITY * np.array(places))
    found: Float64s = np.minimum(weights / weights.sum() * experts.num_active, 1.0)
    return found


def activated_experts(model: Transformer, tokens: Int64s) -> Float64s:
    """Experts that some of these tokens pass through, on the average."""
    if model.experts is None:
        return np.zeros(len(tokens))
    return _active(model.experts, tokens)


def _active(experts: Experts, tokens: Int64s) -> Float64s:
    chance = _popularity(experts)
    # Beyond so many tokens hardly an expert is left out: a line between some of them is exact.
    many = np.arange(_EVERY, max(int(tokens.max(initial=0)), _EVERY) + _EVERY, _EVERY)
    counts = np.concatenate([np.arange(_EVERY), many])
    untouched = (1 - chance[None, :]) ** counts[:, None]
    found: Float64s = np.interp(tokens, counts, (1 - untouched).sum(axis=1))
    return np.where(tokens > 0, np.maximum(found, experts.num_active), 0.0)


def fullest_rank(
    experts: Experts, tokens: Int64s, ranks: int, *, is_balanced: bool
) -> tuple[Float64s, Float64s]:
    """Of one layer: tokens of the fullest rank over the mean, and its experts that take part.

    Experts are dealt to ranks at random, and so are tokens to experts: sums of both are about
    normal, and the largest of some lies so many deviations above the mean.

    Args:
        experts: of the model.
        tokens: int64[rows], of all ranks together.
        ranks: that experts lie over.
        is_balanced: experts are placed so that ranks have alike.
    """
    active = _active(experts, tokens) / ranks
    if ranks == 1:
        return np.ones(len(tokens)), active
    above = NormalDist().inv_cdf((ranks - _BLOM) / (ranks + 1 - 2 * _BLOM))
    chance = _popularity(experts)
    uneven = 0.0 if is_balanced else (chance.std() / chance.mean()) ** 2 * ranks / experts.count
    rows = np.maximum(tokens * experts.num_active / ranks, 1.0)
    fullest = np.minimum(1 + above * np.sqrt(1 / rows + uneven), ranks)
    drawn = active * (1 - active * ranks / experts.count)
    most = np.minimum(experts.count / ranks, tokens * experts.num_active)
    return fullest, np.minimum(active + above * np.sqrt(np.maximum(drawn, 0.0)), most)


def halved_ns(whole_ns: Float64s, least: int | None) -> Float64s:
    """What steps take that go in two halves, by tokens, float64[tokens + 1].

    Args:
        whole_ns: float64[tokens + 1], of steps in one.
        least: tokens from which they do; None: none does.
    """
    if least is None:
        return whole_ns
    tokens = np.arange(len(whole_ns))
    both = whole_ns[tokens // 2] + whole_ns[tokens - tokens // 2]
    return np.where(tokens >= least, both, whole_ns)


def experts_ns(
    profiles: LayerProfiles,
    model: Transformer,
    engine: Engine,
    machine: Machine | None,
    *,
    beside_ns: Float64s,
) -> Float64s:
    """Experts of all layers by tokens of all ranks, with the exchanges around them.

    Args:
        profiles: of the model's layers.
        model: that serves.
        engine: its settings.
        machine: that exchanges run on.
        beside_ns: float64[tokens of a rank + 1], other work of a step, which hides exchanges as
            experts do where steps go in halves; attention, which does too, is left out.
    """
    copies = ranks_in_step(model, engine)
    most = engine.max_num_batched_tokens * copies
    experts = model.experts
    if experts is None or profiles.experts is None:
        return np.zeros(most + 1)
    layers = sum(layer.has_experts for layer in model.layers)
    tokens = np.arange(most + 1)
    if copies == 1:
        tokens = padded_tokens(engine, most)
    if engine.enable_expert_parallel:
        ranks = engine.expert_gpus
        fullest, active = fullest_rank(experts, tokens, ranks, is_balanced=engine.enable_eplb)
        one = surface(profiles.experts, tokens * fullest / ranks, active)
    else:
        one = surface(profiles.experts, tokens.astype(np.float64), activated_experts(model, tokens))
    found: Float64s = np.where(tokens > 0, one, 0.0) * layers
    found += layers * _of_others_ns(model, engine, machine, tokens)
    least = engine.halves_from
    if copies == 1 or least is None:
        return found
    sent = layers * tokens_to_experts_ns(
        model, engine, machine, tokens, is_narrow=_sends_eight_bits(model)
    )
    halved, sent = (halved_ns(each, least * copies) for each in (found, sent))
    work = halved + beside_ns[-(-tokens // copies)]
    both = np.maximum(sent, work + lent_share(engine, machine) * sent)
    return halved + np.where(tokens >= least * copies, both - work, sent)


def sent_ns(model: Transformer, engine: Engine, machine: Machine | None) -> Float64s | None:
    """Tokens of copies to their experts and back, of all layers, by tokens of the fullest copy.

    None: there is one copy, or steps go in halves. Copies whose step is a graph have as many tokens
    each; else the fullest sends the most, and all wait for it.
    """
    copies = ranks_in_step(model, engine)
    if copies == 1 or engine.halves_from is not None:
        return None
    layers = sum(layer.has_experts for layer in model.layers)
    tokens = copies * padded_tokens(engine, engine.max_num_batched_tokens)
    return layers * tokens_to_experts_ns(
        model, engine, machine, tokens, is_narrow=_sends_eight_bits(model)
    )


def _sends_eight_bits(model: Transformer) -> bool:
    how = model.quantisation
    return how is not None and how.share(EXPERTS) > 0 and how.operands == _EIGHT_BITS


def _of_others_ns(
    model: Transformer, engine: Engine, machine: Machine | None, tokens: Int64s
) -> Float64s:
    """What a rank does in a layer for rows whose experts lie on others.

    Triton's kernels of whole experts over ranks, where NCCL or nobody carries tokens: both products
    write zeros for such rows, which pass the activation between and the sum behind them.
    """
    experts, ranks = model.experts, engine.expert_gpus
    is_whole = engine.enable_expert_parallel and engine.all2all_backend in NCCL
    is_wide = model.quantisation is None or model.quantisation.share(EXPERTS) == 0
    if experts is None or ranks == 1 or machine is None or not (is_whole and is_wide):
        return np.zeros(len(tokens))
    gates = 2 if model.feed_forward.is_gated else 1
    numbers = (2 * gates + 1) * experts.width + 2 * model.hidden
    rows = tokens * experts.num_active * BYTES * numbers
    all_ns, own_ns = (moved_ns(machine.chip, each) for each in (rows, rows / ranks))
    return all_ns - own_ns
