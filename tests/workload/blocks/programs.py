"""Programs written by hand: a few operators in each of some layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foretrace.operators import ModuleProgram, ProgramPart, Ran, Tensor
from foretrace.workload.blocks.signatures import array, call

TOKENS, WIDTH = 64, 32


def product(label: str, rows: int, columns: int, inner: int, **more: Any) -> Ran:
    one = call("aten::mm", array((rows, inner), "bf16"), array((inner, columns), "bf16"))
    return Ran(label, one.name, one.signature, **more)


def summed(label: str) -> Ran:
    return Ran(label, "all_reduce", "", num_bytes=TOKENS * WIDTH * 2, dtype="bf16")


def layer(path: str, **more: Any) -> ProgramPart:
    return ProgramPart(
        path=path,
        forward=(product("up", TOKENS, WIDTH, WIDTH), product("down", TOKENS, WIDTH, WIDTH)),
        backward=(
            product("down", TOKENS, WIDTH, WIDTH),
            product("down", WIDTH, WIDTH, TOKENS, is_weight_gradient=True),
            product("up", TOKENS, WIDTH, WIDTH),
            product("up", WIDTH, WIDTH, TOKENS, is_weight_gradient=True),
        ),
        parameters=(Tensor((WIDTH, WIDTH), "bf16"), Tensor((WIDTH, WIDTH), "bf16")),
        kept_bytes=3 * TOKENS * WIDTH * 2,
        forward_bytes=100,
        backward_bytes=1000,
        input_bytes=TOKENS * WIDTH * 2,
        input_dtype="bf16",
        **more,
    )


def program(num_layers: int = 4, **more: Any) -> ModuleProgram:
    return ModuleProgram(
        name="mine",
        way="dispatch",
        batch=2,
        sequence=TOKENS // 2,
        layers=tuple(layer(f"layers.{at}") for at in range(num_layers)),
        **more,
    )


def divided(num_layers: int = 2) -> ModuleProgram:
    """With a sum behind every layer's last product, and before its first, over two ranks."""
    found = program(num_layers, tensor=2)
    layers = tuple(
        replace(
            one,
            forward=(*one.forward, summed("down: sum")),
            backward=(*one.backward[:3], summed("up: sum"), *one.backward[3:]),
        )
        for one in found.layers
    )
    return replace(found, layers=layers)
