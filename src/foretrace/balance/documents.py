"""`Documents`: how long the documents of a dataset are, as they are or drawn from a law.

In: an index of a tokenised dataset (see `datasets`), an array, or the two numbers of a lognormal
law. Out: lengths in order of arrival, in tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, WorkloadError

_LAW = "lognormal:"
MOST_TOKENS = 2**40


@dataclass(frozen=True)
class LogNormal:
    """A law of lengths: the logarithm of a length in tokens is normal."""

    mu: float  # mean of the natural logarithm
    sigma: float  # its standard deviation
    longest: int = MOST_TOKENS  # tokens at which documents end, the rest dropped

    def __post_init__(self) -> None:
        """Refuse what is no law of lengths.

        Raises:
            WorkloadError: if a number is none, or lengths would leave what tokens count to.
        """
        if not 1 <= self.longest <= MOST_TOKENS:
            raise WorkloadError(
                f"no documents end at {self.longest:,} tokens: expected 1 to {MOST_TOKENS:,}"
            )
        is_finite = math.isfinite(self.mu) and math.isfinite(self.sigma)
        if not is_finite or self.sigma < 0 or abs(self.mu) + 6 * self.sigma > math.log(2.0**60):
            raise WorkloadError(
                f"no lengths follow a lognormal law with mu {self.mu} and sigma {self.sigma}: mu "
                "is the mean of the logarithm of lengths in tokens (8.3 is 4,000 tokens), sigma "
                "its standard deviation, 0 or more (1.6 is usual)"
            )

    @classmethod
    def fitted(cls, lengths: Int64s) -> LogNormal:
        """The law with the mean and spread of these lengths' logarithms."""
        logs = np.log(lengths)
        return cls(float(logs.mean()), float(logs.std()))


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents of a dataset, of which only the lengths count."""

    name: str
    lengths: Int64s | None = None  # int64[documents], 1 or more
    law: LogNormal | None = None  # where there are no lengths

    def __post_init__(self) -> None:
        """Refuse what holds no documents.

        Raises:
            WorkloadError: if there are neither lengths nor a law, or a length is below 1.
        """
        if (self.lengths is None) == (self.law is None):
            raise ValueError("documents have lengths, or a law, and not both")
        if self.lengths is None:
            return
        if not len(self.lengths):
            raise WorkloadError(f"{self.name} holds no document: name a dataset with documents")
        wrong = np.flatnonzero((self.lengths < 1) | (self.lengths > MOST_TOKENS))
        if len(wrong):
            raise WorkloadError(
                f"document {int(wrong[0]):,} of {self.name} has {int(self.lengths[wrong[0]]):,} "
                "tokens: a document has 1 or more; leave empty ones out"
            )

    def arriving(self, num_tokens: int, *, seed: int = 0) -> Int64s:
        """Lengths of documents in the order in which training meets them.

        Documents of a dataset come in random order, each once before any comes again.

        Args:
            num_tokens: that they have in all, at least.
            seed: of the order, or of the law.

        Returns:
            int64[documents].
        """
        generator = np.random.default_rng(seed)
        found: list[Int64s] = []
        total = 0
        while total < num_tokens:
            more = self._more(generator, num_tokens - total)
            found.append(more)
            total += int(more.sum())
        lengths = np.concatenate(found)
        return lengths[: int(np.searchsorted(np.cumsum(lengths), num_tokens)) + 1]

    def _more(self, generator: np.random.Generator, num_tokens: int) -> Int64s:
        if self.lengths is not None:
            mean = float(self.lengths.mean())
            count = min(len(self.lengths), int(1.5 * num_tokens / mean) + 1_000)
            if count < len(self.lengths):
                return generator.choice(self.lengths, count, replace=False, shuffle=True)
            return generator.permutation(self.lengths)
        assert self.law is not None  # noqa: S101  one of the two is given
        median = math.exp(self.law.mu)
        count = min(1_000_000, int(num_tokens / median) + 100)
        drawn = np.ceil(generator.lognormal(self.law.mu, self.law.sigma, count))
        return np.clip(drawn, 1, self.law.longest).astype(np.int64)


def law_named(text: str) -> Documents | None:
    """The documents of a law as command lines state it, "lognormal:8.3,1.6"; None for a path.

    Raises:
        WorkloadError: if its numbers are none.
    """
    if not text.startswith(_LAW):
        return None
    try:
        mu, sigma, *longest = text.removeprefix(_LAW).split(",")
        law = LogNormal(float(mu), float(sigma), *(int(one) for one in longest))
    except (TypeError, ValueError) as err:
        raise WorkloadError(
            f"cannot read {text!r}: expected lognormal:MU,SIGMA, the mean and the standard "
            "deviation of the logarithm of lengths in tokens, as in lognormal:8.3,1.6, and where "
            "longer documents end, as in lognormal:8.3,1.6,131072"
        ) from err
    return Documents(text, law=law)
