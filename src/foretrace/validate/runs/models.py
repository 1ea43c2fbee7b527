"""`model_of`: the model that a published run trained, from its columns and what is known of it."""

from __future__ import annotations

from dataclasses import replace

from foretrace.base import WorkloadError
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import Positions, Transformer, load_model, model_names

# Whose kind of layers (norms, biases, gates, positions) a model has, by how its name begins; its
# sizes come from the columns. The longest beginning counts.
_ALIKE = (
    ("mpt", "mpt-7b"),
    ("gpt2", "gpt2-large"),
    ("gpt-neox", "gpt-neox-20b"),
    ("gpt-oss", "gpt-oss-120b"),
    ("gpt", "megatron-18.4b"),
    ("megatron", "megatron-18.4b"),
    ("mt-nlg", "mt-nlg-530b"),
    ("bloom", "bloom-176b"),
    ("opt", "opt-175b"),
    ("palm", "palm-540b"),
    ("llama", "llama3-8b"),
    ("mistral", "mistral-7b"),
    ("mixtral", "mixtral-8x7b"),
    ("qwen3-235b", "qwen3-235b-a22b"),
    ("qwen3-30b", "qwen3-30b-a3b"),
    ("qwen3", "qwen3-8b"),
    ("deepseek-v3", "deepseek-v3"),
    ("kimi", "kimi-k2"),
    ("nemotron", "llama3-8b"),
)


def model_of(run: PublishedRun) -> Transformer:
    """The model with the run's sizes.

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
    known = name if name in model_names() else None
    if known is None:
        fitting = [alike for begin, alike in _ALIKE if name.startswith(begin)]
        known = fitting[0] if fitting else None
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
