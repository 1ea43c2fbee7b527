"""Floor 9: the best plan of a space, and how much better one that was not simulated could be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.search.bound import StepBound as StepBound
    from foretrace.search.deployments import DEGREES as DEGREES
    from foretrace.search.deployments import HOST_RANKS as HOST_RANKS
    from foretrace.search.deployments import VARIED as VARIED
    from foretrace.search.deployments import engines_of as engines_of
    from foretrace.search.deployments import fewest_gpus as fewest_gpus
    from foretrace.search.found import PlanSearch as PlanSearch
    from foretrace.search.found import Stopped as Stopped
    from foretrace.search.found import Worth as Worth
    from foretrace.search.found_deployments import FewestGpus as FewestGpus
    from foretrace.search.found_deployments import TriedGpus as TriedGpus
    from foretrace.search.found_links import LinksTried as LinksTried
    from foretrace.search.found_tables import TableSearch as TableSearch
    from foretrace.search.links_to_buy import LinksToBuy as LinksToBuy
    from foretrace.search.links_to_buy import links_tried as links_tried
    from foretrace.search.looked import Looked as Looked
    from foretrace.search.modelled import searched as searched
    from foretrace.search.objectives import Objective as Objective
    from foretrace.search.objectives import Recovery as Recovery
    from foretrace.search.objectives import Target as Target
    from foretrace.search.objectives import best_recovery as best_recovery
    from foretrace.search.orders import FoundSchedule as FoundSchedule
    from foretrace.search.orders import OrderedStep as OrderedStep
    from foretrace.search.orders import found_schedule as found_schedule
    from foretrace.search.progress import Limits as Limits
    from foretrace.search.progress import Progress as Progress
    from foretrace.search.progress import Rung as Rung
    from foretrace.search.progress import SearchOptions as SearchOptions
    from foretrace.search.recompute import RecomputeChoice as RecomputeChoice
    from foretrace.search.recompute import chosen_recompute as chosen_recompute
    from foretrace.search.recorded import RecordedGround as RecordedGround
    from foretrace.search.recorded import recorded_space as recorded_space
    from foretrace.search.recorded import searched_recording as searched_recording
    from foretrace.search.space import PlanSpace as PlanSpace
    from foretrace.search.space import plan_space as plan_space
    from foretrace.search.tables import searched_tables as searched_tables
    from foretrace.search.variables import MORE_VARIABLES as MORE_VARIABLES
    from foretrace.search.variables import SpaceLimits as SpaceLimits
    from foretrace.search.versus import Doubt as Doubt
    from foretrace.search.versus import Versus as Versus

lazily(__name__)
