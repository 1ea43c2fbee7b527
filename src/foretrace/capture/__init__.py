"""Floor 3: a live PyTorch program becomes traces."""

from __future__ import annotations

from foretrace.capture.recorder import Recorder as Recorder
from foretrace.capture.recorder import record as record
from foretrace.capture.schedule import Schedule as Schedule
