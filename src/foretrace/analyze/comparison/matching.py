"""What changed between two tallies: matched by label, and told apart by why."""

from __future__ import annotations

from math import log

from foretrace.analyze.comparison.results import NOTHING, Contribution, Share, View
from foretrace.analyze.comparison.views import Tally


def view_of(name: str, before: Tally, after: Tally, *, is_whole: bool) -> View:
    """Both sides matched by label; what takes no time on either side is left out."""
    rows = [
        contribution(label, before.get(label, NOTHING), after.get(label, NOTHING))
        for label in dict.fromkeys((*before, *after))
    ]
    kept = [row for row in rows if row.before != NOTHING or row.after != NOTHING]
    kept.sort(key=lambda row: (-abs(row.difference_ns), -row.before.step_ns, row.label))
    return View(name, tuple(kept), is_whole)


def contribution(label: str, before: Share, after: Share) -> Contribution:
    """One label's difference, split into three effects that sum to it exactly.

    The share of the step is a product: calls x time per call x part of that time which is the
    label's alone. The effect of a factor is the logarithm of its ratio, times the logarithmic
    mean of both shares; a factor that is nothing on one side alone has the whole effect. So no
    order of the factors is preferred, and exchanging the sides changes the signs alone.

    Source:
        Ang, "The LMDI approach to decomposition analysis: a practical guide", Energy Policy
        33(7), 2005.
    """
    difference_ns = after.step_ns - before.step_ns
    effects_ns = [0, 0, 0]
    ratios = list(zip(_factors(before), _factors(after), strict=True))
    from_nothing = [at for at, (one, other) in enumerate(ratios) if not one or not other]
    if from_nothing or not difference_ns:
        effects_ns[from_nothing[0] if from_nothing else 0] = difference_ns
    else:
        mean_ns = _logarithmic_mean(before.step_ns, after.step_ns)
        effects_ns = [round(mean_ns * log(other / one)) for one, other in ratios]
        largest = max(range(3), key=lambda at: abs(effects_ns[at]))
        effects_ns[largest] += difference_ns - sum(effects_ns)
    return Contribution(label, before, after, *effects_ns)


def _factors(share: Share) -> tuple[float, float, float]:
    """Calls, time per call, and the part of it that is the label's alone.

    What has a share without calls (idle, or what began outside the steps) counts as all alone.
    """
    if not share.count:
        return (0.0, 0.0, 0.0) if not share.step_ns else (1.0, 1.0, float(share.step_ns))
    busy_ns = share.busy_ns
    return share.count, busy_ns / share.count, share.step_ns / busy_ns if busy_ns else 0.0


def _logarithmic_mean(one: int, other: int) -> float:
    return float(one) if one == other else (other - one) / log(other / one)
