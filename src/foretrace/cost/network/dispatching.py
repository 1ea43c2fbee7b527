"""How long libraries take that send a token once to each rank of its experts, as they published.

Links of a scale-up domain carry a copy to each of its ranks, the network between domains one to
each, and both go on at once. Shares are of what a step waits for: kernels, and what the library
does around them.

Source:
    Hybrid-EP: deepseek-ai/DeepEP, branch hybrid-ep (94a9f8f), docs/README_Hybrid-EP.md, "Torch API"
    in 16 bits, 4,096 tokens of 7,168 numbers, top 8. Inside: 32 processors on 8 to 36 GB200, own
    copies left out, are 450 to 490 GB/s of 900, 16 on 8 B200 467. Between: 16 processors on 32 and
    64 H100 are 37.5 and 38.4 GB/s of 50.
    DeepEP: the same, 8 B200 and 8 to 16 GB200 with 16 and 24 processors: 17 GB/s a processor, of
    which Megatron-LM takes 20 (`moe_deepep_num_sms`). Between: docs/legacy.md of branch main
    (dd758ca), 58 and 51 GB/s with own copies on 32 and 64 H800, which are 43.5 and 44.6 of 50.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import Dispatched, Float64s, Library
from foretrace.cost.fitting import at_once
from foretrace.cost.network.span import GroupSpan
from foretrace.machine import Chip


@dataclass(frozen=True)
class LibraryRates:
    """What a library reaches in an exchange of many tokens."""

    link_share: float  # of a chip's links, by copies to other ranks of the domain
    network_share: float  # of a rank's bandwidth between domains
    most_bytes_per_ns: float = np.inf  # of all processors that are lent to it


RATES: Mapping[Library, LibraryRates] = {
    Library.HYBRID_EP: LibraryRates(link_share=0.52, network_share=0.76),
    Library.DEEP_EP: LibraryRates(link_share=0.6, network_share=0.88, most_bytes_per_ns=20 * 17.0),
}


def dispatched_ns(what: Dispatched, num_bytes: Float64s, span: GroupSpan, chip: Chip) -> Float64s:
    """Duration of each exchange from the last arrival on, float64[rows], in ns.

    Args:
        what: the library, and how many experts a token chose.
        num_bytes: float64[rows], of the copies for all ranks, its own among them.
        span: of the ranks that divide the experts.
        chip: with links.
    """
    rates = RATES[what.library]
    links = min((chip.link_bytes_per_ns or np.inf) * rates.link_share, rates.most_bytes_per_ns)
    inside = min(span.num_inside, what.host_ranks or span.num_inside) if span.levels else 0
    inside_ns = num_bytes * (1 - 1 / (inside or span.num_ranks)) / links
    if not inside:
        return inside_ns
    hosts = span.num_ranks / inside
    token = num_bytes / float(what.copies(span.num_ranks))
    away = token * float(what.hosts_reached(hosts)) * (1 - 1 / hosts)
    between_ns = away / (min(one.bytes_per_ns for one in span.levels) * rates.network_share)
    return at_once(inside_ns, between_ns)
