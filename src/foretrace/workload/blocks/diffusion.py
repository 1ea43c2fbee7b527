"""`blocks_of_diffusion`: a denoising network's training step, part by part.

The walk is that of `foretrace.workload.models.diffusion`, with operators instead of
totals; every joint and every single layer is a layer of its own.

Source:
    Hugging Face diffusers, `SD3Transformer2DModel` and `FluxTransformer2DModel`.

The walk is that of `foretrace.workload.models.diffusion`, with operators instead of totals: every
residual block, transformer and change of size is a layer of its own, replicated or sharded over
data-parallel ranks as any layer is.

Source:
    Hugging Face diffusers, `UNet2DConditionModel` and `UNet3DConditionModel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.graph import Part
from foretrace.workload.blocks.block import ModelBlocks, Passes
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
from foretrace.workload.models.diffusion import (
    FEED_FORWARD,
    JOINT_FACTORS,
    LAST_FACTORS,
    SINGLE_FACTORS,
    STEP_NUMBERS,
    DenoisingUNet,
    DiT,
)
from foretrace.workload.plan.legality import check_plan
from foretrace.workload.plan.plan import Plan

_PICTURE, _TEXT = "picture", "words"

_TIME_WIDTH = 4  # width of the time embedding over the first level's channels
_WIDENING = 4  # of a transformer's feed-forward part
_TIME_CONVOLUTIONS = 4  # of a residual block over time
_FIRST_TIME_HEADS = 8  # of the transformer over time right after the first convolution
_SQUARE, _POINT, _OVER_TIME = (3, 3), (1, 1), (3, 1, 1)


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


def blocks_of_diffusion(model: DenoisingUNet | DiT, plan: Plan) -> ModelBlocks:
    """What one rank does for one microbatch; a sequence of the plan is one image or clip.

    Raises:
        WorkloadError: if the plan divides the network itself.
    """
    check_plan(plan, model)
    walk = (
        _Walk(plan, model=model)
        if isinstance(model, DenoisingUNet)
        else PatchedWalk(plan, model=model)
    )
    return ModelBlocks(
        embedding=walk.passes(Part.EMBEDDING, "in", walk.begin()),
        layers=tuple(walk.layers()),
        head=walk.passes(Part.HEAD, "out", walk.end()),
        transfer_bytes=0,
        transfer_dtype=plan.precision.activations,
        notes=("the text encoder and the autoencoder are frozen and run beforehand",),
    )


@dataclass(frozen=True, kw_only=True)
class _Walk(NetworkWalk):
    model: DenoisingUNet

    @property
    def images(self) -> int:
        """Frames of all samples."""
        return self.plan.micro_batch * self.model.frames

    def begin(self) -> tuple[NetworkStage, ...]:
        """The step's number is widened, the latent gets its channels."""
        model, first, batch = self.model, self.model.channels[0], self.plan.micro_batch
        wide = _TIME_WIDTH * first
        stages = [*self.widened("time embedding", batch, first, wide)]
        if model.added_width:
            stages += self.widened("added embedding", batch, model.added_width, wide)
        stages.append(
            self._convolution("first convolution", model.in_channels, first, is_first=True)
        )
        if model.has_time_layers:
            stages += self._time_transformer(first, _FIRST_TIME_HEADS * model.head_size, level=0)
        return tuple(stages)

    def layers(self) -> Iterator[Passes]:
        """From the first level down to the middle, and up again."""
        model = self.model
        skips = [model.channels[0]]
        before = model.channels[0]
        deepest = len(model.channels) - 1
        for level, channels in enumerate(model.channels):
            for _ in range(model.blocks_per_level):
                yield from self._block(before, channels, level=level)
                skips.append(channels)
                before = channels
            if level < deepest:
                yield self.layer(self._smaller(channels, level=level))
                skips.append(channels)
        yield self.layer(self._residual(before, before, level=deepest))
        yield self.layer(self._transformer(before, level=deepest, depth=model.middle_depth))
        yield self.layer(self._residual(before, before, level=deepest))
        for level in reversed(range(len(model.channels))):
            channels = model.channels[level]
            for _ in range(model.blocks_per_level + 1):
                skip = skips.pop()
                yield from self._block(before, channels, level=level, skip=skip)
                before = channels
            if level:
                yield self.layer(self._larger(channels, level=level))

    def end(self) -> tuple[NetworkStage, ...]:
        """Noise is read off and held against what was added."""
        model, first = self.model, self.model.channels[0]
        shape = (self.images, model.out_channels, *model.sides(0))
        return (
            self._group_norm("last norm", first, level=0),
            self.silu("last norm", (self.images, first, *model.sides(0))),
            self._convolution("last convolution", first, model.out_channels),
            *self.loss(shape),
        )

    def _block(self, before: int, after: int, *, level: int, skip: int = 0) -> Iterator[Passes]:
        yield self.layer(self._residual(before, after, level=level, skip=skip))
        if depth := self.model.attention_depths[level]:
            yield self.layer(self._transformer(after, level=level, depth=depth))

    def _smaller(self, channels: int, *, level: int) -> Iterator[NetworkStage]:
        image = (self.images, *self.model.sides(level))
        yield Convolution("half the side", channels, channels, image, _SQUARE, self.dtype, stride=2)

    def _larger(self, channels: int, *, level: int) -> Iterator[NetworkStage]:
        shape = (self.images, channels, *self.model.sides(level - 1))
        yield Pointwise("twice the side", "aten::clone", shape, self.kept, backward_reads=1)
        yield self._convolution("twice the side", channels, channels, level=level - 1)

    def _residual(
        self, before: int, after: int, *, level: int, skip: int = 0
    ) -> Iterator[NetworkStage]:
        inputs, sides = before + skip, self.model.sides(level)
        wide, shape = _TIME_WIDTH * self.model.channels[0], (self.images, after, *sides)
        if skip:
            yield Moved("beside the way down", self.images * math.prod(sides), inputs, self.kept)
        yield self._group_norm("first norm", inputs, level=level)
        yield self.silu("first norm", (self.images, inputs, *sides))
        yield self._convolution("first convolution", inputs, after, level=level)
        yield self.silu("time", (self.images, wide))
        yield Linear("time", self.images, wide, after, self.dtype)
        yield self.sum_of("time", shape)
        yield self._group_norm("second norm", after, level=level)
        yield self.silu("second norm", shape)
        yield self._convolution("second convolution", after, after, level=level)
        if inputs != after:
            yield self._convolution("shortcut", inputs, after, level=level, kernel=_POINT)
        yield self.sum_of("shortcut", shape)
        if self.model.has_time_layers:
            yield from self._over_time(after, level=level)

    def _over_time(self, channels: int, *, level: int) -> Iterator[NetworkStage]:
        sides, label = self.model.sides(level), "over time"
        clip = (self.plan.micro_batch, self.model.frames, *sides)
        shape = (self.plan.micro_batch, channels, self.model.frames, *sides)
        rows = self.images * math.prod(sides)
        yield Moved("clips", rows, channels, self.kept)
        for _ in range(_TIME_CONVOLUTIONS):
            yield GroupNorm(label, shape, self.kept)
            yield self.silu(label, shape)
            yield Convolution(label, channels, channels, clip, _OVER_TIME, self.dtype)
        yield self.sum_of(label, shape)
        yield Moved("frames", rows, channels, self.kept)

    def _transformer(self, channels: int, *, level: int, depth: int) -> Iterator[NetworkStage]:
        """Attention within a frame and to the text, then over time."""
        area = math.prod(self.model.sides(level))
        rows = self.images * area
        text = self.images * self.model.text_tokens
        yield self._group_norm("norm", channels, level=level)
        yield Moved("rows", rows, channels, self.kept)
        yield Linear("in", rows, channels, channels, self.dtype)
        lengths = (self.images, area, self.model.text_tokens)
        for _ in range(depth):
            yield from self._attention("attention", channels, (self.images, area, area))
            yield from self._attention("text attention", channels, lengths, text_rows=text)
            yield from self._feed_forward(channels, rows)
        yield Linear("out", rows, channels, channels, self.dtype)
        yield Moved("images", rows, channels, self.kept)
        yield self.sum_of("transformer", (rows, channels))
        if self.model.has_time_layers:
            yield from self._time_transformer(channels, channels, level=level)

    def _time_transformer(self, channels: int, inner: int, *, level: int) -> Iterator[NetworkStage]:
        """Every position looks at itself in other frames, twice."""
        area, frames = math.prod(self.model.sides(level)), self.model.frames
        rows = self.images * area
        yield self._group_norm("norm over time", channels, level=level)
        yield Moved("rows over time", rows, channels, self.kept)
        yield Linear("in over time", rows, channels, inner, self.dtype)
        sequences = (self.plan.micro_batch * area, frames, frames)
        for _ in range(2):
            yield from self._attention("attention over time", inner, sequences)
        yield from self._feed_forward(inner, rows)
        yield Linear("out over time", rows, inner, channels, self.dtype)
        yield Moved("images over time", rows, channels, self.kept)
        yield self.sum_of("transformer over time", (rows, channels))

    def _attention(
        self, label: str, width: int, sizes: tuple[int, int, int], *, text_rows: int = 0
    ) -> Iterator[NetworkStage]:
        """Norm, projections, attention proper; sizes are sequences, queries and keys of each.

        Keys and values of a text come from a frozen encoder: nothing goes back to it.
        """
        batch, queries, keys = sizes
        rows, dtype = batch * queries, self.dtype
        key_width = self.model.text_width if text_rows else width
        heads = self.model.num_heads or max(1, width // self.model.head_size)
        yield LayerNorm(f"{label} norm", rows, width, self.kept)
        yield Linear(f"{label} queries", rows, width, width, dtype, has_bias=False)
        for name in ("keys", "values"):
            yield Linear(
                f"{label} {name}",
                text_rows or rows,
                key_width,
                width,
                dtype,
                has_bias=False,
                has_input_gradient=not text_rows,
            )
        is_flash = self.plan.implementation.attention == "flash"
        yield Scores(label, batch, heads, width // heads, (queries, keys), dtype, is_flash)
        yield Linear(f"{label} out", rows, width, width, dtype)
        yield self.sum_of(label, (rows, width))

    def _feed_forward(self, width: int, rows: int) -> Iterator[NetworkStage]:
        """Gated: the first layer gives gates and values."""
        inner = _WIDENING * width
        yield LayerNorm("feed-forward norm", rows, width, self.kept)
        yield Linear("up", rows, width, 2 * inner, self.dtype)
        yield Pointwise("gate", "aten::gelu", (rows, inner), self.kept)
        yield Pointwise("gate", "aten::mul", (rows, inner), self.kept, reads=2, backward_reads=3)
        yield Linear("down", rows, inner, width, self.dtype)
        yield self.sum_of("feed-forward", (rows, width))

    def _convolution(
        self,
        label: str,
        inputs: int,
        outputs: int,
        *,
        level: int = 0,
        kernel: tuple[int, int] = _SQUARE,
        is_first: bool = False,
    ) -> Convolution:
        image = (self.images, *self.model.sides(level))
        return Convolution(
            label, inputs, outputs, image, kernel, self.dtype, has_input_gradient=not is_first
        )

    def _group_norm(self, label: str, channels: int, *, level: int) -> GroupNorm:
        return GroupNorm(label, (self.images, channels, *self.model.sides(level)), self.kept)
