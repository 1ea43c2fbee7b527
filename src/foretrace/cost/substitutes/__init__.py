"""Other kernels in the place of those that a job has: rules, and a cost model that obeys them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.cost.substitutes.contractions import ContractionStep as ContractionStep
    from foretrace.cost.substitutes.contractions import contraction_steps as contraction_steps
    from foretrace.cost.substitutes.contractions import described_costs as described_costs
    from foretrace.cost.substitutes.fast_products import FastScheme as FastScheme
    from foretrace.cost.substitutes.rule import AddedOperator as AddedOperator
    from foretrace.cost.substitutes.rule import Offer as Offer
    from foretrace.cost.substitutes.rule import SubstitutionRule as SubstitutionRule
    from foretrace.cost.substitutes.rules import Substituted as Substituted
    from foretrace.cost.substitutes.rules import factors_of as factors_of
    from foretrace.cost.substitutes.rules import offers_of as offers_of
    from foretrace.cost.substitutes.rules import rule_named as rule_named
    from foretrace.cost.substitutes.rules import substitution_rules as substitution_rules

lazily(__name__)
