"""An operator's signature as people write it: `8192x2048, 2048x4096 fp16`."""

from __future__ import annotations

from foretrace.operators import Tensor, parsed_shapes
from foretrace.report.subjects import shortened


def shapes_text(signature: str) -> str:
    """The inputs' shapes, those of scalars left out, and their number format where it is one."""
    shapes = parsed_shapes(signature)
    if shapes is None:
        return shortened(signature)
    tensors: list[Tensor] = []
    texts = []
    for one in shapes.inputs:
        several = one if isinstance(one, tuple) else () if one is None else (one,)
        sized = [tensor for tensor in several if tensor.shape]
        tensors += sized
        if isinstance(one, tuple) and len(sized) > 1:
            texts.append(f"{len(sized)} tensors")
        else:
            texts += ["x".join(map(str, tensor.shape)) for tensor in sized]
    formats = {tensor.dtype for tensor in tensors if tensor.dtype}
    return shortened(", ".join(texts) + (f" {formats.pop()}" if len(formats) == 1 else ""))
