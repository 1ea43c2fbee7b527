"""Floor 2: names and shapes of operators become classes, FLOPs and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.operators.attention import AttentionShape as AttentionShape
    from foretrace.operators.attention import attention_shape as attention_shape
    from foretrace.operators.attention import scores_shape as scores_shape
    from foretrace.operators.counting import work_of as work_of
    from foretrace.operators.framework import moves_nothing as moves_nothing
    from foretrace.operators.notation import IndexedOperator as IndexedOperator
    from foretrace.operators.notation_text import parsed_operator as parsed_operator
    from foretrace.operators.notation_text import read_operator as read_operator
    from foretrace.operators.products import runs_in_tf32 as runs_in_tf32
    from foretrace.operators.program import ModuleProgram as ModuleProgram
    from foretrace.operators.program import ProgramPart as ProgramPart
    from foretrace.operators.program import Ran as Ran
    from foretrace.operators.program import is_told as is_told
    from foretrace.operators.recognition import HOST_COPY as HOST_COPY
    from foretrace.operators.recognition import UNRECOGNISED as UNRECOGNISED
    from foretrace.operators.recognition import Recognised as Recognised
    from foretrace.operators.recognition import kernel_family as kernel_family
    from foretrace.operators.recognition import operator_class as operator_class
    from foretrace.operators.recognition import recognised as recognised
    from foretrace.operators.recognition import with_class as with_class
    from foretrace.operators.shapes import Shapes as Shapes
    from foretrace.operators.shapes import Tensor as Tensor
    from foretrace.operators.shapes import parsed_shapes as parsed_shapes
    from foretrace.operators.work import UNKNOWN_BYTES as UNKNOWN_BYTES
    from foretrace.operators.work import OperatorClass as OperatorClass
    from foretrace.operators.work import Work as Work

lazily(__name__)
