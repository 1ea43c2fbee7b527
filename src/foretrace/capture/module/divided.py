"""Tensor parallelism of any module: its linear layers are divided over ranks by their names.

Outputs divided ("column"): what goes in is on all ranks alike, and its gradients are summed over
them. Inputs divided ("row"): results are summed. Linear layers that read one tensor sum its
gradients once.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053, the operators f and g; PyTorch's
    `ColwiseParallel` and `RowwiseParallel` (torch.distributed.tensor.parallel).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from foretrace.base import WorkloadError

if TYPE_CHECKING:
    import torch
    from torch import nn

COLUMN, ROW = "column", "row"
COPIED, SUMMED = "foretrace::copied_to_ranks", "foretrace::summed_over_ranks"


def divide(module: nn.Module, ranks: int, styles: Mapping[str, str]) -> None:
    """Leave one rank's share of a module's linear layers; the module is changed.

    Args:
        module: a copy without memory.
        ranks: of the tensor group.
        styles: "column" or "row" by patterns of module names: {"*.wq": "column"}.

    Raises:
        WorkloadError: if a pattern names no linear layer, or ranks do not divide one.
    """
    if ranks == 1:
        return
    if not styles:
        raise WorkloadError(
            f"the module is to be divided over {ranks} tensor ranks, and nothing says how: name "
            'its linear layers, as in divided={"*.wq": "column", "*.wo": "row"}, or take tp 1'
        )
    chosen = _chosen(module, styles)
    columns: dict[int, tuple[Any, Any]] = {}  # tensors that are read, and what stands for them
    for path, linear in chosen.items():
        style = next(each for pattern, each in styles.items() if fnmatchcase(path, pattern))
        _cut(path, linear, ranks, style=style)
        if style == COLUMN:
            linear.register_forward_pre_hook(_copying(columns))
        else:
            linear.register_forward_hook(_summing)


def _chosen(module: nn.Module, styles: Mapping[str, str]) -> dict[str, nn.Linear]:
    from torch import nn  # on demand: an optional dependency

    unknown = sorted(set(styles.values()) - {COLUMN, ROW})
    if unknown:
        raise WorkloadError(
            f"linear layers are divided by {COLUMN!r} or {ROW!r}, found {unknown[0]!r}: choose one"
        )
    linears = {path: one for path, one in module.named_modules() if isinstance(one, nn.Linear)}
    for pattern in styles:
        if not any(fnmatchcase(path, pattern) for path in linears):
            some = ", ".join(list(linears)[:3]) or "none"
            raise WorkloadError(
                f"no linear layer of the module is called {pattern!r}, of {len(linears)} there are "
                f"(the first: {some}): give patterns that name some"
            )
    return {
        path: one
        for path, one in linears.items()
        if any(fnmatchcase(path, pattern) for pattern in styles)
    }


def _cut(path: str, linear: nn.Linear, ranks: int, *, style: str) -> None:
    import torch  # on demand: an optional dependency

    rows, columns = linear.weight.shape
    size = rows if style == COLUMN else columns
    if size % ranks:
        what = "outputs" if style == COLUMN else "inputs"
        raise WorkloadError(
            f"tp {ranks} does not divide the {size:,} {what} of {path}: {size:,} / {ranks} leaves "
            f"{size % ranks}; choose a divisor of {size:,}"
        )
    own = (rows // ranks, columns) if style == COLUMN else (rows, columns // ranks)

    def parameter(old: torch.Tensor, shape: tuple[int, ...]) -> torch.nn.Parameter:
        return torch.nn.Parameter(old.new_empty(shape), requires_grad=old.requires_grad)

    linear.weight = parameter(linear.weight, own)
    linear.out_features, linear.in_features = own
    bias: torch.Tensor | None = linear.bias  # PyTorch says it is never none
    if bias is not None and style == COLUMN:
        linear.bias = parameter(bias, own[:1])


def _copying(columns: dict[int, tuple[Any, Any]]) -> Any:
    """One copy for all linear layers that read the same tensor."""

    def before(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        read, *rest = inputs
        known = columns.get(id(read))
        if known is None or known[0] is not read:
            columns.clear()
            known = columns[id(read)] = (read, _operators()[0](read))
        return (known[1], *rest)

    return before


def _summing(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    return _operators()[1](output)  # type: ignore[no-any-return]


@cache
def _operators() -> tuple[Any, Any]:
    """Megatron's f (gradients summed) and g (results summed), known to PyTorch by name."""
    import torch  # on demand: an optional dependency

    def same(data: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(data)

    def first(data: torch.Tensor) -> torch.Tensor:
        return data.clone()

    kind = "(Tensor data) -> Tensor"
    found = []
    for name in (COPIED, SUMMED):
        made = torch.library.custom_op(name, first, mutates_args=(), schema=kind)
        made.register_fake(same)
        found.append(made)
    copied, summed = found
    copied.register_autograd(lambda _context, gradient: summed(gradient))
    summed.register_autograd(lambda _context, gradient: gradient)
    return copied, summed
