"""`DiT`: pictures' patches and a text's tokens attend to one another, all to all.

Some layers have weights of their own for either (joint layers), the rest work on both in a row
with one set of weights, their feed-forward part beside attention (single layers). What the step's
number and the text as a whole say scales and shifts every layer.

Source:
    Esser et al., "Scaling Rectified Flow Transformers for High-Resolution Image Synthesis", arXiv
    2403.03206 (Stable Diffusion 3); layers as in Hugging Face diffusers' SD3Transformer2DModel and
    FluxTransformer2DModel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.workload.models.diffusion import (
    NORM,
    SPATIAL,
    Diffusion,
    NetworkPart,
    embedding_pieces,
    linear_piece,
)

STEP_NUMBERS = 256  # that a step's number becomes before it is widened
FEED_FORWARD = 4  # its width over a token's
JOINT_FACTORS, SINGLE_FACTORS, LAST_FACTORS = 6, 3, 2  # vectors that scale and shift a layer
_SINGLE_WIDENING = FEED_FORWARD + 1  # attention and the feed-forward part go back in one product


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
