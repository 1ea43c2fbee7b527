"""`Sizes`: what of a model and its inputs a recording's shapes tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Widths of a model, of the whole of it; `None` where nothing tells."""

    layers: int | None = None
    hidden: int | None = None
    feed_forward: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    head_width: int | None = None
    vocabulary: int | None = None
    experts: int | None = None

    @property
    def known(self) -> dict[str, int]:
        """Those that something tells, by name."""
        return {name: size for name, size in vars(self).items() if size is not None}

    def filled(self, other: Mapping[str, int | None]) -> Sizes:
        """These, and others where nothing tells."""
        return Sizes(**{**other, **self.known})
