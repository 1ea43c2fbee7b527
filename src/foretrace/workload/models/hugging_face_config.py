"""`HuggingFaceConfig`: what a `config.json` states, asked for by key."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from foretrace.base import MOST_LAYERS, WorkloadError
from foretrace.workload.models.entries import MOST_COUNT

Tables = dict[str, dict[str, object]]


@dataclass(frozen=True)
class HuggingFaceConfig:
    """A configuration, asked for by key."""

    values: Mapping[str, object]
    where: str

    def count(self, *keys: str, low: int = 0, high: int = MOST_COUNT) -> int:
        """The whole number under the first of these keys that there is."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                if not low <= value <= high:
                    self.refuse(key, f"from {low:,} to {high:,} is expected")
                return value
            if value is not None:
                raise WorkloadError(
                    f"{key!r} of {self.where} is {value!r}, where a whole number is expected"
                )
        raise WorkloadError(
            f"{self.where} lacks {keys[0]!r}, which models of its model_type have: is it complete?"
        )

    def has(self, key: str) -> bool:
        """Whether something stands under a key."""
        return self.values.get(key) is not None

    def count_or(self, key: str, default: int) -> int:
        """The whole number under a key, or its class's default."""
        return self.count(key) if self.has(key) else default

    def experts(self, count: str, width: str) -> dict[str, object]:
        """Experts of each layer: how many, how many a token is sent to, and how wide they are.

        Args:
            count: key of their number.
            width: key of their width.
        """
        return {
            "count": self.count(count),
            "active": self.count("num_experts_per_tok"),
            "width": self.count(width),
        }

    @property
    def layers(self) -> int:
        """How many there are, few enough to be listed."""
        return self.count("num_hidden_layers", low=1, high=MOST_LAYERS)

    @property
    def heads(self) -> int:
        """Of attention."""
        return self.count("num_attention_heads", low=1)

    def words(self, key: str, known: Collection[str], count: int | None = None) -> list[str] | None:
        """A word for each layer, if any are listed."""
        found = self.values.get(key)
        if found is None:
            return None
        listed = found if isinstance(found, list) else [found]
        words = [one for one in listed if isinstance(one, str) and one in known]
        if found is not listed or not len(words) == len(listed) == (count or len(listed)):
            each = "each layer" if count is None else f"each of {count} layers"
            self.refuse(key, f"{each} is one of {', '.join(known)} here")
        return words

    def stated(self, key: str, *, default: object) -> object:
        """What stands under a key, null included, or its class's default."""
        return self.values.get(key, default)

    def over(self, **defaults: object) -> HuggingFaceConfig:
        """The same, with what its class has where nothing is stated."""
        return replace(self, values={**defaults, **self.values})

    def share(self, key: str, default: float) -> float:
        """The number from 0 to 1 under a key, or in what is said of rotary positions."""
        nested = [self.values.get(name) for name in ("rope_parameters", "rope_scaling")]
        stated = [self.values, *(one for one in nested if isinstance(one, Mapping))]
        value = next((one[key] for one in stated if one.get(key) is not None), default)
        if not isinstance(value, int | float) or not 0 < value <= 1:
            raise WorkloadError(
                f"{key!r} of {self.where} is {value!r}, where a number above 0, up to 1, is "
                "expected"
            )
        return float(value)

    def rotary_factor(self) -> float:
        """By how much longer what is turned becomes: YaRN's attention factor, 1 without.

        Source:
            huggingface/transformers, modeling_rope_utils.py, `_compute_yarn_parameters`.
        """
        nested = (self.values.get(name) for name in ("rope_parameters", "rope_scaling"))
        said = next((one for one in nested if isinstance(one, Mapping)), {})
        if said.get("rope_type", said.get("type")) != "yarn":
            return 1.0
        stated, longer = said.get("attention_factor"), said.get("factor", 1)
        if isinstance(stated, int | float):
            return float(stated)
        is_longer = isinstance(longer, int | float) and longer > 1
        return 0.1 * math.log(longer) + 1 if is_longer else 1.0

    def flag(self, key: str, *, default: bool) -> bool:
        """Whether a key is true."""
        value = self.values.get(key)
        return default if value is None else bool(value)

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error that a setting cannot be described here."""
        raise WorkloadError(f"{key!r} of {self.where} is {self.values.get(key)!r}: {why}")


Reader = Callable[[HuggingFaceConfig], Tables]
