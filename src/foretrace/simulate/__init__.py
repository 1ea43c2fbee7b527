"""Floor 4: a graph and durations become a timeline, or the ends of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.simulate._compiled import NO_LIMIT_NS as NO_LIMIT_NS
    from foretrace.simulate.batch import NO_GOAL as NO_GOAL
    from foretrace.simulate.batch import BatchEnds as BatchEnds
    from foretrace.simulate.batch import Scaling as Scaling
    from foretrace.simulate.batch import passes_at_once as passes_at_once
    from foretrace.simulate.batch import simulate_batch as simulate_batch
    from foretrace.simulate.sampling._compiled import LANES as LANES
    from foretrace.simulate.sampling._compiled import NUM_POINTS as NUM_POINTS
    from foretrace.simulate.sampling.coupled import Cells as Cells
    from foretrace.simulate.sampling.coupled import simulate_cells as simulate_cells
    from foretrace.simulate.sampling.draws import FIXED as FIXED
    from foretrace.simulate.sampling.draws import Draws as Draws
    from foretrace.simulate.sampling.draws import drawn_factors as drawn_factors
    from foretrace.simulate.sampling.draws import probabilities as probabilities
    from foretrace.simulate.sampling.draws import quantile_table as quantile_table
    from foretrace.simulate.sampling.draws import sampled_duration_ns as sampled_duration_ns
    from foretrace.simulate.sampling.draws import simulate_samples as simulate_samples
    from foretrace.simulate.sampling.draws import table_mean as table_mean
    from foretrace.simulate.sharing.shared import NO_FLOW as NO_FLOW
    from foretrace.simulate.sharing.shared import Cores as Cores
    from foretrace.simulate.sharing.shared import LinkTimes as LinkTimes
    from foretrace.simulate.sharing.shared import Traffic as Traffic
    from foretrace.simulate.sharing.shared import alone_ns as alone_ns
    from foretrace.simulate.sharing.shared import simulate_links as simulate_links
    from foretrace.simulate.sharing.shared import simulate_shared as simulate_shared
    from foretrace.simulate.static import NO_EDGE as NO_EDGE
    from foretrace.simulate.static import WayBack as WayBack
    from foretrace.simulate.static import simulate as simulate
    from foretrace.simulate.static import slack_before as slack_before
    from foretrace.simulate.static import way_back as way_back

lazily(__name__)
