"""`PictureEnds`: what a generator of pictures does before its loop and behind it, each once.

Encoders read the text: CLIP's (learned positions, biases, norms before) or T5's (gated, without
biases, positions as numbers of each head). A decoder makes pixels of latents.

Source:
    Radford et al., arXiv 2103.00020 (CLIP); Raffel et al., arXiv 1910.10683, and its version 1.1;
    Rombach et al., arXiv 2112.10752; layers as in Hugging Face transformers' CLIPTextModel and
    T5EncoderModel and in diffusers' AutoencoderKL.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.workload.models.entries import Entries, EntryField, EntryKind

T5_BUCKETS = 32  # distances between tokens that have a number of their own in each head
_MOST = 10_000

TEXT_FIELDS = (
    EntryField("layers", EntryKind.COUNTS, "layers of each encoder of the text", high=_MOST),
    EntryField("hidden", EntryKind.COUNTS, "numbers of a token of each"),
    EntryField("heads", EntryKind.COUNTS, "heads of attention of each"),
    EntryField("head_size", EntryKind.COUNTS, "numbers of a head of each"),
    EntryField("feed_forward", EntryKind.COUNTS, "width of each one's feed-forward part"),
    EntryField("vocabulary", EntryKind.COUNTS, "tokens that each knows"),
    EntryField("tokens", EntryKind.COUNTS, "tokens that each reads"),
    EntryField("projection", EntryKind.COUNTS, "numbers of the text in all; 0: none", low=0),
    EntryField("gated", EntryKind.COUNTS, "1 of T5's kind, 0 of CLIP's", low=0, high=1),
)
PIXEL_FIELDS = (
    EntryField("channels", EntryKind.COUNTS, "channels of each level, the coarsest first"),
    EntryField("blocks", EntryKind.COUNT, "residual blocks of each level", high=_MOST),
    EntryField("projected", EntryKind.FLAG, "a convolution over latents comes first"),
    EntryField("latent", EntryKind.COUNT, "channels of its latents, where not the network's"),
    EntryField("packed", EntryKind.COUNT, "side of the square of latents that is one there"),
)


@dataclass(frozen=True)
class TextEncoder:
    """A transformer whose tokens see each other; of T5's kind if it is gated."""

    num_layers: int
    hidden: int
    num_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    num_tokens: int
    projection: int  # numbers that the text in all becomes; 0: none
    is_gated: bool

    @property
    def name(self) -> str:
        """Kind and size."""
        kind = "T5" if self.is_gated else "CLIP"
        return f"{kind}, {self.num_layers} layers of {self.hidden}"


@dataclass(frozen=True)
class PixelDecoder:
    """Latents become pixels: each level but the first has twice the side of the one before."""

    latent: int  # channels of what goes in
    channels: tuple[int, ...]  # of each level, the coarsest first
    num_blocks: int  # of each level
    is_projected: bool
    packed: int = 1  # side of the square of latents that the network sees as one


@dataclass(frozen=True)
class PictureEnds:
    """Before the loop, and behind it."""

    encoders: tuple[TextEncoder, ...] = ()
    decoder: PixelDecoder | None = None


def read_ends(text: Entries, pixels: Entries, latent: int) -> PictureEnds:
    """What a file states of them; nothing, if it does not.

    Args:
        text: its table of encoders, a number for each under every key.
        pixels: its table of the decoder.
        latent: channels of the network's latents.

    Raises:
        ValueError: if numbers are missing.
    """
    keys = [field.key for field in TEXT_FIELDS]
    columns = [text.counts(key) for key in keys]
    if text and len({len(column) for column in columns}) != 1:
        raise ValueError(f"[text] needs as many numbers under each of {', '.join(keys)}")
    if pixels and not (pixels.counts("channels") and pixels.count("blocks")):
        raise ValueError("[pixels] needs channels and blocks")
    *counts, gated = columns
    encoders = tuple(TextEncoder(*row) for row in zip(*counts, map(bool, gated), strict=True))
    if not pixels:
        return PictureEnds(encoders)
    decoder = PixelDecoder(
        latent=pixels.count("latent", latent),
        channels=pixels.counts("channels"),
        num_blocks=pixels.count("blocks"),
        is_projected=pixels.flag("projected"),
        packed=pixels.count("packed", 1),
    )
    return PictureEnds(encoders, decoder)
