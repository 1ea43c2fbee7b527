"""`blocks_of_text`, `blocks_of_pixels`: encoders of a text, the decoder of latents, as operators.

Source:
    Hugging Face transformers, `CLIPTextModel`, `T5EncoderModel`; diffusers, `AutoencoderKL`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.graph import Part
from foretrace.workload.blocks.block import Passes
from foretrace.workload.blocks.diffusion_stages import (
    Convolution,
    GroupNorm,
    LayerNorm,
    Linear,
    Moved,
    NetworkStage,
    NetworkWalk,
    Pointwise,
    Scores,
)
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.picture_ends import T5_BUCKETS, PixelDecoder, TextEncoder
from foretrace.workload.plan.plan import Plan

_SQUARE, _POINT = (3, 3), (1, 1)
_COLOURS = 3
_FLASH_HEAD = 256  # FlashAttention takes heads up to here; wider ones write their scores


def blocks_of_text(model: Diffusion, plan: Plan) -> Iterator[tuple[str, Passes]]:
    """Encoders of a text by their names; the plan's microbatch is texts."""
    for encoder in model.ends.encoders:
        walk = _TextWalk(plan, encoder=encoder)
        yield encoder.name, walk.passes(Part.EMBEDDING, encoder, tuple(walk.stages()))


def blocks_of_pixels(model: Diffusion, plan: Plan) -> Iterator[tuple[str, Passes]]:
    """What makes pixels of latents; the plan's microbatch is pictures or clips."""
    if model.ends.decoder is not None:
        walk = _PixelWalk(plan, decoder=model.ends.decoder, model=model)
        yield "pixels of latents", walk.passes(Part.HEAD, "pixels", tuple(walk.stages()))


@dataclass(frozen=True, kw_only=True)
class _TextWalk(NetworkWalk):
    encoder: TextEncoder

    def stages(self) -> Iterator[NetworkStage]:
        """From words to vectors."""
        one = self.encoder
        rows = self.plan.micro_batch * one.num_tokens
        places = T5_BUCKETS * one.num_heads if one.is_gated else one.num_tokens * one.hidden
        known = one.vocabulary * one.hidden + places
        yield Moved("words", rows, one.hidden, self.kept, num_parameters=known, gap=0)
        if not one.is_gated:
            yield self.sum_of("places", (rows, one.hidden))
        for _ in range(one.num_layers):
            yield self._norm(rows)
            yield from self._attention(rows)
            yield self._norm(rows)
            yield from self._feed_forward(rows)
        yield self._norm(rows)
        if one.projection:
            texts = self.plan.micro_batch
            yield Linear(
                "text in all", texts, one.hidden, one.projection, self.dtype, has_bias=False
            )

    def _norm(self, rows: int) -> LayerNorm:
        vectors = 1 if self.encoder.is_gated else 2
        return LayerNorm("norm", rows, self.encoder.hidden, self.kept, num_vectors=vectors)

    def _attention(self, rows: int) -> Iterator[NetworkStage]:
        one = self.encoder
        inner, has_bias = one.num_heads * one.head_size, not one.is_gated
        for name in ("queries", "keys", "values"):
            yield Linear(name, rows, one.hidden, inner, self.dtype, has_bias=has_bias)
        lengths = (one.num_tokens, one.num_tokens)
        # Numbers of distances are added to scores, which no flash kernel of that code does.
        is_flash = self.plan.implementation.attention == "flash" and not one.is_gated
        batch = self.plan.micro_batch
        yield Scores(
            "attention", batch, one.num_heads, one.head_size, lengths, self.dtype, is_flash
        )
        if one.is_gated:
            yield self.sum_of("distances", (batch, one.num_heads, *lengths))
        yield Linear("out", rows, inner, one.hidden, self.dtype, has_bias=has_bias)
        yield self.sum_of("attention", (rows, one.hidden))

    def _feed_forward(self, rows: int) -> Iterator[NetworkStage]:
        one = self.encoder
        has_bias, wide = not one.is_gated, one.feed_forward
        for _ in range(1 + one.is_gated):
            yield Linear("up", rows, one.hidden, wide, self.dtype, has_bias=has_bias)
        yield Pointwise("up", "aten::gelu", (rows, wide), self.kept)
        if one.is_gated:
            yield Pointwise("gate", "aten::mul", (rows, wide), self.kept, reads=2)
        yield Linear("down", rows, wide, one.hidden, self.dtype, has_bias=has_bias)
        yield self.sum_of("feed-forward", (rows, one.hidden))


@dataclass(frozen=True, kw_only=True)
class _PixelWalk(NetworkWalk):
    decoder: PixelDecoder
    model: Diffusion

    @property
    def images(self) -> int:
        """Frames of all samples."""
        return self.plan.micro_batch * self.model.frames

    def stages(self) -> Iterator[NetworkStage]:
        """From latents to pixels."""
        one = self.decoder
        sides = (one.packed * self.model.height, one.packed * self.model.width)
        if one.is_projected:
            yield self._convolution(one.latent, one.latent, sides, kernel=_POINT)
        before = one.channels[0]
        yield self._convolution(one.latent, before, sides)
        yield from self._residual(before, before, sides)
        yield from self._attention(before, sides)
        yield from self._residual(before, before, sides)
        for level, channels in enumerate(one.channels):
            for _ in range(one.num_blocks):
                yield from self._residual(before, channels, sides)
                before = channels
            if level + 1 < len(one.channels):
                sides = (2 * sides[0], 2 * sides[1])
                shape = (self.images, channels, *sides)
                yield Pointwise("twice the side", "aten::clone", shape, self.kept)
                yield self._convolution(channels, channels, sides)
        yield from self._normed(before, sides)
        yield self._convolution(before, _COLOURS, sides)

    def _residual(self, before: int, after: int, sides: tuple[int, int]) -> Iterator[NetworkStage]:
        yield from self._normed(before, sides)
        yield self._convolution(before, after, sides)
        yield from self._normed(after, sides)
        yield self._convolution(after, after, sides)
        if before != after:
            yield self._convolution(before, after, sides, kernel=_POINT)
        yield self.sum_of("shortcut", (self.images, after, *sides))

    def _normed(self, channels: int, sides: tuple[int, int]) -> Iterator[NetworkStage]:
        shape = (self.images, channels, *sides)
        yield GroupNorm("norm", shape, self.kept)
        yield self.silu("norm", shape)

    def _attention(self, channels: int, sides: tuple[int, int]) -> Iterator[NetworkStage]:
        """One head over all positions."""
        area = math.prod(sides)
        rows = self.images * area
        yield GroupNorm("attention norm", (self.images, channels, *sides), self.kept)
        yield Moved("rows", rows, channels, self.kept)
        for name in ("queries", "keys", "values"):
            yield Linear(name, rows, channels, channels, self.dtype)
        is_flash = self.plan.implementation.attention == "flash" and channels <= _FLASH_HEAD
        yield Scores("attention", self.images, 1, channels, (area, area), self.dtype, is_flash)
        yield Linear("out", rows, channels, channels, self.dtype)
        yield Moved("images", rows, channels, self.kept)
        yield self.sum_of("attention", (rows, channels))

    def _convolution(
        self,
        inputs: int,
        outputs: int,
        sides: tuple[int, int],
        *,
        kernel: tuple[int, int] = _SQUARE,
    ) -> Convolution:
        image = (self.images, *sides)
        return Convolution("convolution", inputs, outputs, image, kernel, self.dtype)
