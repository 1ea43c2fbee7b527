"""`Variation`: how durations vary where nothing was recorded, and the presets of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.answer import Plain
from foretrace.base import RiskError
from foretrace.risk.steps.models import FIXED_MODEL, DurationModel, Family, stated_model


@dataclass(frozen=True, kw_only=True)
class Variation(Plain):
    """What varies, each with mean 1.

    A GPU's factor is drawn once and holds for all its kernels in all steps; a kernel's is drawn
    anew each time; a collective's once for all its ranks; a step's once for everything in it.
    """

    gpu: DurationModel = FIXED_MODEL
    kernel: DurationModel = FIXED_MODEL
    collective: DurationModel = FIXED_MODEL
    step: DurationModel = FIXED_MODEL
    name: str = "stated"
    source: str = "stated by the user"


NO_VARIATION = Variation(name="none", source="nothing varies")

_PRISM = (
    "PRISM, arXiv:2510.15596: variation of products over more than 20,000 GPUs {spatial} and on "
    "one GPU {temporal}, taken as standard deviation over mean of normal factors; collectives "
    "vary as kernels do, since the paper gives no figure for them alone"
)


def _prism(name: str, spatial: float, temporal: float) -> Variation:
    kernel = stated_model(Family.NORMAL, temporal)
    return Variation(
        gpu=stated_model(Family.NORMAL, spatial),
        kernel=kernel,
        collective=kernel,
        name=name,
        source=_PRISM.format(spatial=f"{spatial:.2%}", temporal=f"{temporal:.2%}"),
    )


# The ends of the ranges that the paper gives, and their geometric means.
_PRESETS = {
    one.name: one
    for one in (
        NO_VARIATION,
        _prism("prism-low", 0.0164, 0.0098),
        _prism("prism-middle", (0.0164 * 0.1404) ** 0.5, (0.0098 * 0.0646) ** 0.5),
        _prism("prism-high", 0.1404, 0.0646),
    )
}
VARIATIONS = tuple(_PRESETS)
DEFAULT_VARIATION = "prism-low"


def variation_named(name: str) -> Variation:
    """A preset.

    Raises:
        RiskError: if there is none of that name.
    """
    try:
        return _PRESETS[name]
    except KeyError:
        raise RiskError(
            f"no variation is called {name!r}: known are {', '.join(VARIATIONS)}"
        ) from None


def changed_variation(base: Variation, statements: tuple[str, ...]) -> Variation:
    """A variation with some of it stated anew, as in `gpu=normal:0.02` or `step=0.01`.

    Raises:
        RiskError: if a statement is not of that form.
    """
    found = base
    for text in statements:
        what, separator, value = text.partition("=")
        family, colon, number = value.rpartition(":")
        try:
            model = stated_model(family if colon else Family.NORMAL, float(number))
        except ValueError:
            model = None
        if not separator or model is None or what not in {"gpu", "kernel", "collective", "step"}:
            raise RiskError(
                f"variation {text!r} is not understood: expected gpu, kernel, collective or step, "
                "then = and a share or a family with its share, as in gpu=0.02 or "
                "collective=lognormal:0.1"
            )
        found = _with(found, what, model)
    return replace(found, name=f"{base.name}, changed") if statements else found


def _with(base: Variation, what: str, model: DurationModel) -> Variation:
    if what == "gpu":
        return replace(base, gpu=model)
    if what == "kernel":
        return replace(base, kernel=model)
    return replace(base, collective=model) if what == "collective" else replace(base, step=model)
