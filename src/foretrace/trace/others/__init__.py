"""Recordings of other profilers than PyTorch's: a file for each tells its events in Kineto's words.

In: a file of Nsight Systems, rocprofv3, XLA, Perfetto or the Ascend profiler. Out: a `Trace`.
"""

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.trace.others.ascend import read_ascend as read_ascend
    from foretrace.trace.others.ascend import recognises_ascend as recognises_ascend
    from foretrace.trace.others.flight_recorder import FlightDump as FlightDump
    from foretrace.trace.others.flight_recorder import FlightEntry as FlightEntry
    from foretrace.trace.others.flight_recorder import read_flights as read_flights
    from foretrace.trace.others.flight_recorder import recognises_flights as recognises_flights
    from foretrace.trace.others.nsight import read_nsight as read_nsight
    from foretrace.trace.others.nsight import recognises_nsight as recognises_nsight
    from foretrace.trace.others.perfetto import read_perfetto as read_perfetto
    from foretrace.trace.others.perfetto import recognises_perfetto as recognises_perfetto
    from foretrace.trace.others.rocpd import read_rocpd as read_rocpd
    from foretrace.trace.others.rocpd import recognises_rocpd as recognises_rocpd
    from foretrace.trace.others.rocprof import read_rocprof as read_rocprof
    from foretrace.trace.others.rocprof import recognises_rocprof as recognises_rocprof
    from foretrace.trace.others.several import process_paths as process_paths
    from foretrace.trace.others.xplane import read_xplane as read_xplane
    from foretrace.trace.others.xplane import recognises_xplane as recognises_xplane

lazily(__name__)
