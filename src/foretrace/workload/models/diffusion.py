"""Diffusion networks that denoise latents of images or clips, and transformers that do (`DiT`).

The walk through the UNet below gives parameters and FLOPs of one denoising step at once.

Source:
    Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", arXiv
    2112.10752 (Stable Diffusion 1); Podell et al., "SDXL", arXiv 2307.01952; Wang et al.,
    "ModelScope Text-to-Video Technical Report", arXiv 2308.06571; layers as in Hugging Face
    diffusers' UNet2DConditionModel and UNet3DConditionModel.

Some layers have weights of their own for either (joint layers), the rest work on both in a row
with one set of weights, their feed-forward part beside attention (single layers). What the step's
number and the text as a whole say scales and shifts every layer.

Source:
    Esser et al., "Scaling Rectified Flow Transformers for High-Resolution Image Synthesis", arXiv
    2403.03206 (Stable Diffusion 3); layers as in Hugging Face diffusers' SD3Transformer2DModel and
    FluxTransformer2DModel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foretrace.workload.models.entries import Entry
from foretrace.workload.models.picture_ends import PictureEnds
from foretrace.workload.models.published import Published

_KERNEL = 9  # weights of a 3 x 3 convolution, per pair of channels
_TIME_KERNEL = 3  # of a convolution over three frames
_TIME_CONVOLUTIONS = 4  # of a block over time
_TIME_WIDTH = 4  # width of the time embedding over the first level's channels
_WIDENING = 4  # of a transformer's feed-forward part
_FIRST_TIME_HEADS = 8  # of the transformer over time right after the first convolution

CONVOLUTION = "convolutions"
TIME_CONVOLUTION = "convolutions over time"
LINEAR = "linear layers"
SPATIAL = "attention within frames"
TEXT = "attention to the text"
TEMPORAL = "attention over time"
NORM = "norms"

STEP_NUMBERS = 256  # that a step's number becomes before it is widened
FEED_FORWARD = 4  # its width over a token's
JOINT_FACTORS, SINGLE_FACTORS, LAST_FACTORS = 6, 3, 2  # vectors that scale and shift a layer
_SINGLE_WIDENING = FEED_FORWARD + 1  # attention and the feed-forward part go back in one product


@dataclass(frozen=True)
class NetworkPart:
    """A part of a network: its parameters, and the FLOPs of its forward pass for one sample."""

    part: str
    parameters: int
    flops: int


@dataclass(frozen=True)
class Diffusion:
    """A network that takes noise off latents, told by a text what they shall show."""

    name: str
    title: str
    in_channels: int
    out_channels: int
    head_size: int  # 0: see `num_heads`
    num_heads: int  # 0: as many as `head_size` gives
    text_width: int
    text_tokens: int
    height: int  # of the latent
    width: int
    frames: int  # of a clip; 1: an image
    ends: PictureEnds  # before the loop and behind it
    published: Published
    entries: tuple[Entry, ...]
    parent: str
    path: Path | None

    kind = "diffusion"

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Positions that attention sees, in the order of the pass."""
        raise NotImplementedError

    def pieces(self) -> Iterator[NetworkPart]:
        """Every piece of the network, from the latent to its noise.

        FLOPs are of one forward pass of one image or clip: one denoising step.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class DenoisingUNet(Diffusion):
    """A UNet over latents, with attention to itself and to a text at some levels."""

    channels: tuple[int, ...]  # of each level, the finest first; each next has half the side
    blocks_per_level: int
    attention_depths: tuple[int, ...]  # of each level: blocks of attention in a row
    added_width: int  # numbers of what is added to the time embedding; 0: nothing is
    has_time_layers: bool

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Positions that attention sees at each level and last in the middle."""
        areas = [math.prod(self.sides(level)) for level in range(len(self.channels))]
        found = [area for area, depth in zip(areas, self.attention_depths, strict=True) if depth]
        return (*found, areas[-1])

    @property
    def middle_depth(self) -> int:
        """Blocks of attention of the middle, which always has some."""
        return max(self.attention_depths[-1], 1)

    def sides(self, level: int) -> tuple[int, int]:
        """Height and width of a level; level 0 is the latent itself."""
        return -(-self.height // 2**level), -(-self.width // 2**level)

    def pieces(self) -> Iterator[NetworkPart]:
        """Every piece, from the latent to its noise, of one image or clip."""
        return _pieces(self)


def _pieces(model: DenoisingUNet) -> Iterator[NetworkPart]:
    first, last = model.channels[0], model.channels[-1]
    yield from embedding_pieces(first, _TIME_WIDTH * first)
    if model.added_width:
        yield from embedding_pieces(model.added_width, _TIME_WIDTH * first)
    yield _convolution(model, model.in_channels, first, level=0)
    if model.has_time_layers:
        inner = _FIRST_TIME_HEADS * model.head_size
        yield from _time_transformer(model, first, inner, level=0)
    skips = [first]
    yield from _down(model, skips)
    deepest = len(model.channels) - 1
    yield from _residual(model, last, last, level=deepest)
    yield from _transformer(model, last, level=deepest, depth=model.middle_depth)
    yield from _residual(model, last, last, level=deepest)
    yield from _up(model, skips)
    yield NetworkPart(NORM, 2 * first, 0)
    yield _convolution(model, first, model.out_channels, level=0)


def _down(model: DenoisingUNet, skips: list[int]) -> Iterator[NetworkPart]:
    """Levels on the way down; the channels that the way up reads again join `skips`."""
    before = skips[0]
    for level, channels in enumerate(model.channels):
        for _ in range(model.blocks_per_level):
            yield from _residual(model, before, channels, level=level)
            if depth := model.attention_depths[level]:
                yield from _transformer(model, channels, level=level, depth=depth)
            skips.append(channels)
            before = channels
        if level + 1 < len(model.channels):
            yield _convolution(model, channels, channels, level=level + 1)
            skips.append(channels)


def _up(model: DenoisingUNet, skips: list[int]) -> Iterator[NetworkPart]:
    before = model.channels[-1]
    for level in reversed(range(len(model.channels))):
        channels = model.channels[level]
        for _ in range(model.blocks_per_level + 1):
            yield from _residual(model, before + skips.pop(), channels, level=level)
            if depth := model.attention_depths[level]:
                yield from _transformer(model, channels, level=level, depth=depth)
            before = channels
        if level:
            yield _convolution(model, channels, channels, level=level - 1)


def embedding_pieces(inputs: int, outputs: int) -> Iterator[NetworkPart]:
    """Two layers that widen a step's number, or what a text says in all; once a sample."""
    yield linear_piece(inputs, outputs, num_rows=1)
    yield linear_piece(outputs, outputs, num_rows=1)


def _residual(
    model: DenoisingUNet, before: int, after: int, *, level: int
) -> Iterator[NetworkPart]:
    yield NetworkPart(NORM, 2 * before + 2 * after, 0)
    yield _convolution(model, before, after, level=level)
    # In a clip every frame has the time embedding of its own copy.
    yield linear_piece(_TIME_WIDTH * model.channels[0], after, num_rows=model.frames)
    yield _convolution(model, after, after, level=level)
    if before != after:
        yield _convolution(model, before, after, level=level, kernel=1)
    if model.has_time_layers:
        weights = _TIME_CONVOLUTIONS * _TIME_KERNEL * after * after
        yield NetworkPart(
            TIME_CONVOLUTION,
            weights + _TIME_CONVOLUTIONS * after,
            2 * weights * model.frames * _area(model, level),
        )
        yield NetworkPart(NORM, _TIME_CONVOLUTIONS * 2 * after, 0)


def _transformer(
    model: DenoisingUNet, channels: int, *, level: int, depth: int
) -> Iterator[NetworkPart]:
    """Attention within a frame and to the text, between two projections; then over time."""
    area, frames = _area(model, level), model.frames
    rows, num_keys = area * frames, frames * model.text_tokens
    yield NetworkPart(NORM, 2 * channels, 0)
    yield from (linear_piece(channels, channels, num_rows=rows) for _ in range(2))  # in, out
    for _ in range(depth):
        yield NetworkPart(NORM, 3 * 2 * channels, 0)
        yield from _projections(channels, channels, num_rows=rows, num_keys=rows)
        yield NetworkPart(SPATIAL, 0, 4 * frames * area * area * channels)
        yield from _projections(channels, model.text_width, num_rows=rows, num_keys=num_keys)
        yield NetworkPart(TEXT, 0, 4 * rows * model.text_tokens * channels)
        yield from _feed_forward(channels, rows)
    if model.has_time_layers:
        yield from _time_transformer(model, channels, channels, level=level)


def _time_transformer(
    model: DenoisingUNet, channels: int, inner: int, *, level: int
) -> Iterator[NetworkPart]:
    """Attention of every position to itself in other frames, twice."""
    area, frames = _area(model, level), model.frames
    rows = area * frames
    yield NetworkPart(NORM, 2 * channels + 3 * 2 * inner, 0)
    yield linear_piece(channels, inner, num_rows=rows)
    yield linear_piece(inner, channels, num_rows=rows)
    for _ in range(2):
        yield from _projections(inner, inner, num_rows=rows, num_keys=rows)
        yield NetworkPart(TEMPORAL, 0, 4 * area * frames * frames * inner)
    yield from _feed_forward(inner, rows)


def _projections(
    width: int, key_width: int, *, num_rows: int, num_keys: int
) -> Iterator[NetworkPart]:
    """To queries, keys, values, and back."""
    yield linear_piece(width, width, num_rows=num_rows, has_bias=False)
    yield from (linear_piece(key_width, width, num_rows=num_keys, has_bias=False) for _ in range(2))
    yield linear_piece(width, width, num_rows=num_rows)


def _feed_forward(width: int, num_rows: int) -> Iterator[NetworkPart]:
    """Gated: the first layer gives gates and values."""
    yield linear_piece(width, 2 * _WIDENING * width, num_rows=num_rows)
    yield linear_piece(_WIDENING * width, width, num_rows=num_rows)


def linear_piece(inputs: int, outputs: int, *, num_rows: int, has_bias: bool = True) -> NetworkPart:
    """A layer of products, over so many rows."""
    weights = inputs * outputs
    return NetworkPart(LINEAR, weights + (outputs if has_bias else 0), 2 * num_rows * weights)


def _convolution(
    model: DenoisingUNet, inputs: int, outputs: int, *, level: int, kernel: int = _KERNEL
) -> NetworkPart:
    """A convolution whose output has the side of `level`."""
    weights = kernel * inputs * outputs
    return NetworkPart(
        CONVOLUTION, weights + outputs, 2 * weights * model.frames * _area(model, level)
    )


def _area(model: DenoisingUNet, level: int) -> int:
    return math.prod(model.sides(level))


@dataclass(frozen=True)
class DiT(Diffusion):
    """Joint layers, then single ones, over the patches of a latent."""

    patch: int  # side of what one token stands for
    joint_layers: int
    single_layers: int
    pooled_width: int  # numbers of the text as a whole
    has_guidance: bool  # how closely to keep to the text is told the network
    has_query_key_norm: bool
    has_rotary: bool  # positions turn queries and keys

    @property
    def hidden(self) -> int:
        """Numbers of a token between layers."""
        return self.num_heads * self.head_size

    @property
    def picture_tokens(self) -> int:
        """Patches of a latent."""
        return (self.height // self.patch) * (self.width // self.patch)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Positions that attention sees, the same in every layer."""
        return (self.picture_tokens + self.text_tokens,)

    def hands_text_on(self, layer: int) -> bool:
        """Whether a joint layer's text is worked on behind its attention: someone reads it."""
        return self.single_layers > 0 or layer + 1 < self.joint_layers

    def pieces(self) -> Iterator[NetworkPart]:
        """Every piece, from the latent to its noise, of one image."""
        hidden, patches = self.hidden, self.picture_tokens
        yield linear_piece(self.in_channels * self.patch**2, hidden, num_rows=patches)
        yield linear_piece(self.text_width, hidden, num_rows=self.text_tokens)
        for inputs in (*[STEP_NUMBERS] * (1 + self.has_guidance), self.pooled_width):
            yield from embedding_pieces(inputs, hidden)
        for layer in range(self.joint_layers):
            yield from self._stream(patches)
            yield from self._stream(self.text_tokens, is_whole=self.hands_text_on(layer))
            yield self._scores()
        for _ in range(self.single_layers):
            yield from self._single()
        yield linear_piece(hidden, LAST_FACTORS * hidden, num_rows=1)
        yield linear_piece(hidden, self.out_channels * self.patch**2, num_rows=patches)

    def _stream(self, rows: int, *, is_whole: bool = True) -> Iterator[NetworkPart]:
        """A joint layer's weights for patches, or for the text."""
        hidden = self.hidden
        factors = JOINT_FACTORS if is_whole else LAST_FACTORS
        yield linear_piece(hidden, factors * hidden, num_rows=1)
        yield from (linear_piece(hidden, hidden, num_rows=rows) for _ in range(3 + is_whole))
        yield self._query_key_norm()
        if is_whole:
            yield linear_piece(hidden, FEED_FORWARD * hidden, num_rows=rows)
            yield linear_piece(FEED_FORWARD * hidden, hidden, num_rows=rows)

    def _single(self) -> Iterator[NetworkPart]:
        hidden, rows = self.hidden, self.sequence_lengths[0]
        yield linear_piece(hidden, SINGLE_FACTORS * hidden, num_rows=1)
        yield from (linear_piece(hidden, hidden, num_rows=rows) for _ in range(3))
        yield self._query_key_norm()
        yield linear_piece(hidden, FEED_FORWARD * hidden, num_rows=rows)
        yield linear_piece(_SINGLE_WIDENING * hidden, hidden, num_rows=rows)
        yield self._scores()

    def _scores(self) -> NetworkPart:
        return NetworkPart(SPATIAL, 0, 4 * self.sequence_lengths[0] ** 2 * self.hidden)

    def _query_key_norm(self) -> NetworkPart:
        return NetworkPart(NORM, 2 * self.head_size * self.has_query_key_norm, 0)
