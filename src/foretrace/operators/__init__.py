"""Floor 1: names and shapes of operators become classes, FLOPs and bytes."""

from __future__ import annotations

from foretrace.operators.classes import OperatorClass as OperatorClass
from foretrace.operators.classes import operator_class as operator_class
