"""Names of kernels, short enough for a sentence or a table."""

from __future__ import annotations

import re

from foretrace.base import visible

_SAYS_LITTLE = re.compile(
    r"^void |\([^()]*(\([^()]*\)[^()]*)*\)( const)?$"  # return type, parameters
    r"|at::native::|at::cuda::|c10::|std::|\(anonymous namespace\)::|\bdetail::"
)
_WRAPPER = re.compile(r"^cutlass::(?:Kernel2?|device_kernel)<([\w:]+)>$")  # what it wraps says all


def short_name(name: str, width: int) -> str:
    """A name without what says little, its middle left out if it is longer than `width`.

    Return type, parameters, the namespaces that most kernels share and a class that only wraps a
    name go; control characters are escaped. Most of the end stays, since names of generated
    kernels differ there.
    """
    name = visible(_WRAPPER.sub(r"\1", " ".join(_SAYS_LITTLE.sub("", name).split())))
    if len(name) <= width:
        return name
    tail = (width - 3) * 2 // 3
    return f"{name[: width - 3 - tail]}...{name[-tail:]}"
