"""Stated variation: presets with sources, changes by word, errors that say what is allowed."""

from __future__ import annotations

import pytest

from foretrace.base import RiskError
from foretrace.risk import VARIATIONS, Family, changed_variation, variation_named


def test_every_preset_says_where_it_is_from() -> None:
    for name in VARIATIONS:
        assert variation_named(name).source
    assert variation_named("prism-high").gpu.variation == 0.1404


def test_words_change_what_they_name() -> None:
    found = changed_variation(
        variation_named("prism-low"), ("gpu=0.02", "collective=lognormal:0.1", "step=0")
    )

    assert (found.gpu.family, found.gpu.variation) == (Family.NORMAL, 0.02)
    assert (found.collective.family, found.collective.variation) == (Family.LOGNORMAL, 0.1)
    assert found.step.family is Family.FIXED
    assert found.kernel == variation_named("prism-low").kernel
    assert found.name == "prism-low, changed"


@pytest.mark.parametrize("word", ["gpu", "speed=0.1", "gpu=fast", "gpu=odd:0.1", "gpu=-0.1"])
def test_a_word_that_says_nothing_is_refused(word: str) -> None:
    with pytest.raises(RiskError, match="variation"):
        changed_variation(variation_named("none"), (word,))


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(RiskError, match="prism-low, prism-middle"):
        variation_named("weather")
