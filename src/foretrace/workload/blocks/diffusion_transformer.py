"""`PatchedWalk`: a diffusion transformer's training step, part by part.

The walk is that of `foretrace.workload.models.diffusion_transformer`, with operators instead of
totals; every joint and every single layer is a layer of its own.

Source:
    Hugging Face diffusers, `SD3Transformer2DModel` and `FluxTransformer2DModel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.workload.blocks.block import Passes
from foretrace.workload.blocks.diffusion_stages import (
    LayerNorm,
    Linear,
    Moved,
    NetworkStage,
    NetworkWalk,
    Pointwise,
    Scores,
)
from foretrace.workload.models.diffusion_transformer import (
    FEED_FORWARD,
    JOINT_FACTORS,
    LAST_FACTORS,
    SINGLE_FACTORS,
    STEP_NUMBERS,
    DiT,
)

_PICTURE, _TEXT = "picture", "words"


@dataclass(frozen=True, kw_only=True)
class PatchedWalk(NetworkWalk):
    """Writes joint layers, then single ones."""

    model: DiT

    def begin(self) -> tuple[NetworkStage, ...]:
        """Patches and words become tokens, the step's number and the text in all a vector."""
        model, batch, hidden = self.model, self.plan.micro_batch, self.model.hidden
        patches, words = batch * model.picture_tokens, batch * model.text_tokens
        inputs = model.in_channels * model.patch**2
        stages: list[NetworkStage] = [
            Moved("patches", patches, inputs, self.kept),
            Linear("patches", patches, inputs, hidden, self.dtype, has_input_gradient=False),
            Linear("text", words, model.text_width, hidden, self.dtype, has_input_gradient=False),
        ]
        if not model.has_rotary:
            stages.append(self.sum_of("positions", (patches, hidden)))
        for width in (*[STEP_NUMBERS] * (1 + model.has_guidance), model.pooled_width):
            stages += self.widened("time and text embedding", batch, width, hidden)
            stages.append(self.sum_of("time and text embedding", (batch, hidden)))
        return tuple(stages)

    def layers(self) -> Iterator[Passes]:
        """From the first to the last."""
        for layer in range(self.model.joint_layers):
            yield self.layer(self._joint(is_whole=self.model.hands_text_on(layer)))
        for _ in range(self.model.single_layers):
            yield self.layer(self._single())

    def end(self) -> tuple[NetworkStage, ...]:
        """Noise is read off the patches and held against what was added."""
        model, batch = self.model, self.plan.micro_batch
        rows, outputs = batch * model.picture_tokens, model.out_channels * model.patch**2
        return (
            *self._factors("last", LAST_FACTORS),
            *self._shifted("last", rows),
            Linear("noise", rows, model.hidden, outputs, self.dtype),
            Moved("noise", rows, outputs, self.kept),
            *self.loss((rows, outputs)),
        )

    def _joint(self, *, is_whole: bool) -> Iterator[NetworkStage]:
        """Weights of either kind of token, one attention over both."""
        model, batch, hidden = self.model, self.plan.micro_batch, self.model.hidden
        streams = ((_PICTURE, model.picture_tokens, True), (_TEXT, model.text_tokens, is_whole))
        for label, tokens, has_all in streams:
            yield from self._factors(label, JOINT_FACTORS if has_all else LAST_FACTORS)
            yield from self._shifted(label, batch * tokens)
            yield from self._heads(label, batch * tokens)
        for _ in range(3):
            yield Moved("both kinds", batch * model.sequence_lengths[0], hidden, self.kept)
        yield from self._scores()
        for label, tokens, has_all in streams:
            if not has_all:
                continue
            rows = batch * tokens
            yield Linear(f"{label} out", rows, hidden, hidden, self.dtype)
            yield from self._added(label, rows)
            yield from self._shifted(label, rows)
            yield from self._widened_rows(label, rows)
            yield Linear(f"{label} down", rows, FEED_FORWARD * hidden, hidden, self.dtype)
            yield from self._added(label, rows)

    def _single(self) -> Iterator[NetworkStage]:
        """Attention and the feed-forward part side by side, back in one product."""
        hidden, rows = self.model.hidden, self.plan.micro_batch * self.model.sequence_lengths[0]
        wide = (FEED_FORWARD + 1) * hidden
        yield from self._factors("both", SINGLE_FACTORS)
        yield from self._shifted("both", rows)
        yield from self._widened_rows("both", rows)
        yield from self._heads("both", rows)
        yield from self._scores()
        yield Moved("side by side", rows, wide, self.kept)
        yield Linear("both out", rows, wide, hidden, self.dtype)
        yield from self._added("both", rows)

    def _factors(self, label: str, count: int) -> Iterator[NetworkStage]:
        """The vectors that scale and shift a layer, of the step's number and the text in all."""
        batch, hidden = self.plan.micro_batch, self.model.hidden
        yield self.silu(f"{label} factors", (batch, hidden))
        yield Linear(f"{label} factors", batch, hidden, count * hidden, self.dtype)

    def _shifted(self, label: str, rows: int) -> Iterator[NetworkStage]:
        shape = (rows, self.model.hidden)
        yield LayerNorm(f"{label} norm", *shape, self.kept, num_vectors=0)
        for name in ("aten::mul", "aten::add"):
            yield Pointwise(f"{label} scaled and shifted", name, shape, self.kept)

    def _heads(self, label: str, rows: int) -> Iterator[NetworkStage]:
        """Queries, keys and values."""
        model = self.model
        for name in ("queries", "keys", "values"):
            yield Linear(f"{label} {name}", rows, model.hidden, model.hidden, self.dtype)
        if model.has_query_key_norm:
            for name in ("queries", "keys"):
                heads = rows * model.num_heads
                norm = f"{label} {name} norm"
                yield LayerNorm(norm, heads, model.head_size, self.kept, num_vectors=1)

    def _scores(self) -> Iterator[NetworkStage]:
        model, batch, tokens = self.model, self.plan.micro_batch, self.model.sequence_lengths[0]
        if model.has_rotary:
            for name in ("queries", "keys"):
                shape = (batch * tokens, model.hidden)
                yield Pointwise(f"{name} turned", "aten::mul", shape, self.kept, reads=2)
        is_flash = self.plan.implementation.attention == "flash"
        sizes = (batch, model.num_heads, model.head_size, (tokens, tokens))
        yield Scores("attention", *sizes, self.dtype, is_flash)

    def _widened_rows(self, label: str, rows: int) -> Iterator[NetworkStage]:
        hidden, wide = self.model.hidden, FEED_FORWARD * self.model.hidden
        yield Linear(f"{label} up", rows, hidden, wide, self.dtype)
        yield Pointwise(f"{label} up", "aten::gelu", (rows, wide), self.kept)

    def _added(self, label: str, rows: int) -> Iterator[NetworkStage]:
        shape = (rows, self.model.hidden)
        yield Pointwise(f"{label} gate", "aten::mul", shape, self.kept)
        yield self.sum_of(label, shape)
