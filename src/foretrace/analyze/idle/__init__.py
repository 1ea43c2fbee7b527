"""Why a rank's device stood still, or waited inside a collective: every nanosecond, one cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.analyze.idle.attribution import idle as idle
    from foretrace.analyze.idle.causes import Excuses as Excuses
    from foretrace.analyze.idle.causes import IdleCause as IdleCause
    from foretrace.analyze.idle.subjects import Subjects as Subjects
    from foretrace.analyze.idle.subjects import of_it_text as of_it_text
    from foretrace.analyze.idle.subjects import shortened as shortened
    from foretrace.analyze.idle.table import IdleCauses as IdleCauses
    from foretrace.analyze.idle.table import IdleRow as IdleRow
    from foretrace.analyze.idle.table import Stillness as Stillness
    from foretrace.analyze.idle.waits import UNRECORDED_RANK as UNRECORDED_RANK
    from foretrace.analyze.idle.waits import Delays as Delays
    from foretrace.analyze.idle.waits import Waits as Waits
    from foretrace.analyze.idle.waits import waits_of as waits_of
    from foretrace.analyze.idle.walks import binding_edges as binding_edges

lazily(__name__)
