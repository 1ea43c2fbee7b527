"""Collectives: what they cost inside a scale-up domain and across the tiers of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.cost.network.calibration import calibrated_collectives as calibrated_collectives
    from foretrace.cost.network.checking import collective_errors as collective_errors
    from foretrace.cost.network.costs import by_trees as by_trees
    from foretrace.cost.network.costs import collective_costs as collective_costs
    from foretrace.cost.network.costs import messages_with_jitter as messages_with_jitter
    from foretrace.cost.network.domain import collective_named as collective_named
    from foretrace.cost.network.loads import CollectiveLoads as CollectiveLoads
    from foretrace.cost.network.loads import collective_loads as collective_loads
    from foretrace.cost.network.logs import read_log as read_log
    from foretrace.cost.network.span import GroupSpan as GroupSpan
    from foretrace.cost.network.span import span_of as span_of
    from foretrace.cost.network.tables import has_collectives as has_collectives
    from foretrace.cost.network.tables import read_collectives as read_collectives
    from foretrace.cost.network.tiers import MessagesOfTier as MessagesOfTier
    from foretrace.cost.network.tiers import even_total as even_total

lazily(__name__)
