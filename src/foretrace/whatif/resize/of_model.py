"""Sizes of a stated model: all, the model with others, and where a recording contradicts it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from foretrace.base import ScenarioError
from foretrace.whatif.resize.named import Sizes

if TYPE_CHECKING:  # what jobs whose model nobody stated need not load
    from foretrace.workload import Transformer


def model_with(model: Transformer, sizes: Sizes) -> Transformer:
    """The model with the sizes that are known; all others are its own.

    Raises:
        ScenarioError: for experts of a model that has none.
    """
    changed = sizes.known
    if "experts" in changed and model.experts is None:
        raise ScenarioError(
            f"{model.name} has no experts, and {changed['experts']} are asked for: state a model "
            "with experts"
        )
    attention = replace(
        model.attention,
        num_heads=changed.get("heads", model.attention.num_heads),
        num_kv_heads=changed.get("key_value_heads", model.attention.num_kv_heads),
        head_size=changed.get("head_width", model.attention.head_size),
    )
    experts = model.experts
    if experts is not None:
        experts = replace(experts, count=changed.get("experts", experts.count))
    feed_forward = replace(
        model.feed_forward, width=changed.get("feed_forward", model.feed_forward.width)
    )
    return replace(
        model,
        num_layers=changed.get("layers", model.num_layers),
        hidden=changed.get("hidden", model.hidden),
        vocabulary=changed.get("vocabulary", model.vocabulary),
        attention=attention,
        feed_forward=feed_forward,
        experts=experts,
    )


def sizes_of(model: Transformer) -> Sizes:
    """All sizes of a model."""
    return Sizes(
        layers=model.num_layers,
        hidden=model.hidden,
        feed_forward=model.feed_forward.width,
        heads=model.attention.num_heads,
        key_value_heads=model.attention.num_kv_heads,
        head_width=model.attention.head_size,
        vocabulary=model.vocabulary,
        experts=None if model.experts is None else model.experts.count,
    )


def differences(model: Transformer, sizes: Sizes) -> tuple[str, ...]:
    """Where the recording contradicts the stated model: `layers 2, and llama3-8b has 32`."""
    own = sizes_of(model).known
    return tuple(
        f"{name} {count:,}, and {model.name} has {own[name]:,}"
        for name, count in sizes.known.items()
        if name != "experts" and count != own[name]
    )
