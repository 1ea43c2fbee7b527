"""Chips by what public tables of measurements call them."""

from __future__ import annotations

from functools import cache

from foretrace.machine import Chip, chip_named, load_chip

# Where it is neither a name of ours nor the device's own; `_` reads as `-`.
_CHIP_BY_LABEL = {
    "a100": "a100-sxm-80gb",
    "a100-sxm": "a100-sxm-80gb",
    "a100-sxm4-80gb": "a100-sxm-80gb",
    "a100-40gb": "a100-sxm-40gb",
    "a100-sxm4-40gb": "a100-sxm-40gb",
    "h100": "h100-sxm",
    # What ai-dynamo/aiconfigurator calls systems, one chip of which its tables are of.
    "gb200-sxm": "gb200",
    "gb200-nvl": "gb200",
    "rtx-pro-6000-server": "rtx-pro-6000",
    "rtxpro6000": "rtx-pro-6000",
    "gh200": "gh200-96gb",
    "mi250x": "mi250x-die",  # PyTorch sees one die as a device
    "v100": "v100-sxm2-16gb",
}
# The links of a host of V100s were measured on those with 32 GB.
OF_COLLECTIVES = "v100-sxm2-32gb"


@cache
def chip_labelled(label: str, v100: str = _CHIP_BY_LABEL["v100"]) -> Chip | None:
    """The chip that a table means; none, if no description has that name.

    Args:
        label: as the table has it: "a100_sxm", "NVIDIA H100 80GB HBM3".
        v100: the chip that "v100" alone stands for.
    """
    plain = label.casefold().replace("_", "-")
    known = v100 if plain == "v100" else _CHIP_BY_LABEL.get(plain)
    if known is not None:
        return load_chip(known)
    return chip_named(label) or chip_named(plain)
