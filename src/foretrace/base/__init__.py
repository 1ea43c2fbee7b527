"""Floor 0: errors, array aliases, units and files; imports nothing of ours."""

from __future__ import annotations

from foretrace.base.arrays import Bools as Bools
from foretrace.base.arrays import Float32s as Float32s
from foretrace.base.arrays import Float64s as Float64s
from foretrace.base.arrays import Int16s as Int16s
from foretrace.base.arrays import Int32s as Int32s
from foretrace.base.arrays import Int64s as Int64s
from foretrace.base.arrays import Integers as Integers
from foretrace.base.arrays import UInt8s as UInt8s
from foretrace.base.errors import CircleError as CircleError
from foretrace.base.errors import GraphError as GraphError
from foretrace.base.errors import MissingExtraError as MissingExtraError
from foretrace.base.errors import ModelError as ModelError
from foretrace.base.errors import SimulationError as SimulationError
from foretrace.base.errors import TraceError as TraceError
from foretrace.base.files import written_beside as written_beside
