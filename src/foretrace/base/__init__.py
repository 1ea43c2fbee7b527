"""Floor 0: errors, array aliases, units and files; imports nothing of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazy

if TYPE_CHECKING:
    from foretrace.base._compiled import LoopHint as LoopHint
    from foretrace.base._compiled import njit as njit
    from foretrace.base.arrays import Bools as Bools
    from foretrace.base.arrays import Float32s as Float32s
    from foretrace.base.arrays import Float64s as Float64s
    from foretrace.base.arrays import Int8s as Int8s
    from foretrace.base.arrays import Int16s as Int16s
    from foretrace.base.arrays import Int32s as Int32s
    from foretrace.base.arrays import Int64s as Int64s
    from foretrace.base.arrays import Integers as Integers
    from foretrace.base.arrays import UInt8s as UInt8s
    from foretrace.base.arrays import UInt64s as UInt64s
    from foretrace.base.arrays import begins_run as begins_run
    from foretrace.base.arrays import joined_ranges as joined_ranges
    from foretrace.base.arrays import lower_medians as lower_medians
    from foretrace.base.arrays import numbered_rows as numbered_rows
    from foretrace.base.arrays import row_starts as row_starts
    from foretrace.base.arrays import rows_by_value as rows_by_value
    from foretrace.base.arrays import turns_within as turns_within
    from foretrace.base.arrays import used_positions as used_positions
    from foretrace.base.collectives import PARTED as PARTED
    from foretrace.base.collectives import USUAL_CHANNELS as USUAL_CHANNELS
    from foretrace.base.collectives import CollectiveKind as CollectiveKind
    from foretrace.base.collectives import Dispatched as Dispatched
    from foretrace.base.collectives import Library as Library
    from foretrace.base.collectives import NetworkUse as NetworkUse
    from foretrace.base.collectives import channels_of as channels_of
    from foretrace.base.collectives import collective_kind_of as collective_kind_of
    from foretrace.base.collectives import distinct as distinct
    from foretrace.base.collectives import in_channels as in_channels
    from foretrace.base.declared import LARGEST_COUNT as LARGEST_COUNT
    from foretrace.base.declared import MOST_EXPERTS as MOST_EXPERTS
    from foretrace.base.declared import MOST_LAYERS as MOST_LAYERS
    from foretrace.base.declared import MOST_RANKS as MOST_RANKS
    from foretrace.base.declared import Count as Count
    from foretrace.base.declared import DescriptionKey as DescriptionKey
    from foretrace.base.declared import Positive as Positive
    from foretrace.base.declared import Share as Share
    from foretrace.base.declared import Statement as Statement
    from foretrace.base.declared import Text as Text
    from foretrace.base.declared import Whole as Whole
    from foretrace.base.declared import read_fields as read_fields
    from foretrace.base.declared import read_keys as read_keys
    from foretrace.base.declared import read_statements as read_statements
    from foretrace.base.declared import read_value as read_value
    from foretrace.base.documents import Citation as Citation
    from foretrace.base.documents import Document as Document
    from foretrace.base.documents import Shelf as Shelf
    from foretrace.base.documents import Table as Table
    from foretrace.base.documents import allowed_text as allowed_text
    from foretrace.base.documents import as_table as as_table
    from foretrace.base.documents import check_keys as check_keys
    from foretrace.base.documents import document_names as document_names
    from foretrace.base.documents import document_path as document_path
    from foretrace.base.documents import merged as merged
    from foretrace.base.documents import parsed_toml as parsed_toml
    from foretrace.base.documents import read_document as read_document
    from foretrace.base.documents import read_sources as read_sources
    from foretrace.base.errors import CircleError as CircleError
    from foretrace.base.errors import DifferentRunsError as DifferentRunsError
    from foretrace.base.errors import EngineError as EngineError
    from foretrace.base.errors import GraphError as GraphError
    from foretrace.base.errors import MachineError as MachineError
    from foretrace.base.errors import MissingExtraError as MissingExtraError
    from foretrace.base.errors import ModelError as ModelError
    from foretrace.base.errors import NoRoomError as NoRoomError
    from foretrace.base.errors import NotShownError as NotShownError
    from foretrace.base.errors import OutputError as OutputError
    from foretrace.base.errors import RiskError as RiskError
    from foretrace.base.errors import ScenarioError as ScenarioError
    from foretrace.base.errors import SimulationError as SimulationError
    from foretrace.base.errors import TraceError as TraceError
    from foretrace.base.errors import WorkloadError as WorkloadError
    from foretrace.base.files import inputs_kept as inputs_kept
    from foretrace.base.files import remove_abandoned as remove_abandoned
    from foretrace.base.files import write_whole as write_whole
    from foretrace.base.files import written_beside as written_beside
    from foretrace.base.files import written_together as written_together
    from foretrace.base.functions import function_named as function_named
    from foretrace.base.lazy import home_of as home_of
    from foretrace.base.lazy import lazily as lazily
    from foretrace.base.lazy import optional as optional
    from foretrace.base.lazy import source_of as source_of
    from foretrace.base.memory import check_fits as check_fits
    from foretrace.base.number_formats import FORMAT_BY_CODE as FORMAT_BY_CODE
    from foretrace.base.number_formats import FORMAT_BY_NAME as FORMAT_BY_NAME
    from foretrace.base.number_formats import SIXTEEN_BITS as SIXTEEN_BITS
    from foretrace.base.number_formats import NumberFormat as NumberFormat
    from foretrace.base.number_formats import known_format as known_format
    from foretrace.base.number_formats import number_format as number_format
    from foretrace.base.number_formats import tensor_format as tensor_format
    from foretrace.base.processes import Mapper as Mapper
    from foretrace.base.processes import SweepEngine as SweepEngine
    from foretrace.base.processes import mapped as mapped
    from foretrace.base.remembering import Remembering as Remembering
    from foretrace.base.texts import cut_short as cut_short
    from foretrace.base.texts import is_number as is_number
    from foretrace.base.texts import key_text as key_text
    from foretrace.base.texts import visible as visible
    from foretrace.base.times import NS_PER_DAY as NS_PER_DAY
    from foretrace.base.times import NS_PER_HOUR as NS_PER_HOUR
    from foretrace.base.times import NS_PER_MINUTE as NS_PER_MINUTE
    from foretrace.base.times import NS_PER_MS as NS_PER_MS
    from foretrace.base.times import NS_PER_S as NS_PER_S
    from foretrace.base.times import NS_PER_UNIT as NS_PER_UNIT
    from foretrace.base.times import NS_PER_US as NS_PER_US

lazy.lazily(__name__)
