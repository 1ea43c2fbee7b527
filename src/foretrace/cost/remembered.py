"""`Remembered`: another model's answers, each distinct question asked once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretrace.base import Int64s
from foretrace.cost.model import CollectiveRequests, CostModel, Costs, KernelRequests

_Answer = tuple[int, int, int, int, str]  # duration, low, high, source, family


@dataclass(frozen=True)
class Remembered:
    """Another model's answers; for many graphs in turn that ask alike."""

    model: CostModel
    _kernels: dict[Hashable, _Answer] = field(default_factory=dict, repr=False, compare=False)
    _collectives: dict[Hashable, _Answer] = field(default_factory=dict, repr=False, compare=False)
    # Numbers of groups: they may have thousands of ranks, which are not to be read for each answer.
    _groups: dict[tuple[int, ...], int] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Another process remembers for itself."""
        return Remembered, (self.model,)

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As the model's own."""
        code = requests.operator.astype(np.int64) + 1
        for column, texts in (
            (requests.signature, requests.signatures),
            (requests.kernel, requests.kernels),
        ):
            code = code * (len(texts) + 1) + column + 1
        first, rows = np.unique(code, return_index=True, return_inverse=True)[1:]
        operator, signature, kernel = (
            column[first] for column in (requests.operator, requests.signature, requests.kernel)
        )
        names = (*requests.operators, ""), (*requests.signatures, ""), (*requests.kernels, "")
        keys = [
            (names[0][one], names[1][two], names[2][three])
            for one, two, three in zip(
                operator.tolist(), signature.tolist(), kernel.tolist(), strict=True
            )
        ]

        def asked(new: Sequence[int]) -> Costs:
            texts = (requests.operators, requests.signatures, requests.kernels)
            return self.model.kernel_costs(
                KernelRequests(operator[new], signature[new], kernel[new], *texts)
            )

        return _recalled(keys, self._kernels, asked, rows.reshape(-1))

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As the model's own."""
        texts = (requests.collectives, requests.dtypes, requests.groups)
        asked_of = requests.group.tolist()
        number = {
            at: self._groups.setdefault(texts[2][at], len(self._groups))
            for at in dict.fromkeys(asked_of)
        }
        keys = [
            (texts[0][one], size, texts[1][dtype], number[group])
            for one, size, dtype, group in zip(
                requests.collective.tolist(),
                requests.num_bytes.tolist(),
                requests.dtype.tolist(),
                asked_of,
                strict=True,
            )
        ]

        def asked(new: Sequence[int]) -> Costs:
            return self.model.collective_costs(
                CollectiveRequests(
                    requests.collective[new],
                    requests.num_bytes[new],
                    requests.dtype[new],
                    requests.group[new],
                    *texts,
                )
            )

        return _recalled(keys, self._collectives, asked, np.arange(len(keys)))


def _recalled(
    keys: Sequence[Hashable],
    known: dict[Hashable, _Answer],
    asked: Callable[[Sequence[int]], Costs],
    rows: Int64s,
) -> Costs:
    """Answers to some of the questions, one for each row."""
    new = list({key: at for at, key in enumerate(keys) if key not in known}.values())
    if new:
        found = asked(new)
        names = [found.families[one] for one in found.family.tolist()]
        columns = (found.duration_ns, found.low_ns, found.high_ns, found.source)
        told = zip(*(column.tolist() for column in columns), names, strict=True)
        known.update(zip([keys[at] for at in new], told, strict=True))
    answers = [known[key] for key in keys]
    families = tuple(dict.fromkeys(one[-1] for one in answers))
    family = np.array([families.index(one[-1]) for one in answers], np.int32)
    duration_ns, low_ns, high_ns, source = (
        np.array([one[at] for one in answers], np.int64)[rows] for at in range(4)
    )
    return Costs(duration_ns, low_ns, high_ns, source.astype(np.uint8), family[rows], families)
