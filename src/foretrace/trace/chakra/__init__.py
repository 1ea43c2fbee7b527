"""Chakra execution traces: their messages, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.trace.chakra.columns import Attribute as Attribute
    from foretrace.trace.chakra.columns import Attributes as Attributes
    from foretrace.trace.chakra.columns import ChakraNodes as ChakraNodes
    from foretrace.trace.chakra.columns import ChakraTrace as ChakraTrace
    from foretrace.trace.chakra.columns import Collected as Collected
    from foretrace.trace.chakra.columns import Texts as Texts
    from foretrace.trace.chakra.columns import listed_numbers as listed_numbers
    from foretrace.trace.chakra.columns import unknown_kinds as unknown_kinds
    from foretrace.trace.chakra.json_forms import read_feeder as read_feeder
    from foretrace.trace.chakra.json_forms import read_jsonized as read_jsonized
    from foretrace.trace.chakra.json_forms import read_linked as read_linked
    from foretrace.trace.chakra.read import chakra_batches as chakra_batches
    from foretrace.trace.chakra.read import read_chakra as read_chakra
    from foretrace.trace.chakra.recognise import recognises as recognises
    from foretrace.trace.chakra.recognise import recognises_feeder as recognises_feeder
    from foretrace.trace.chakra.recognise import recognises_jsonized as recognises_jsonized
    from foretrace.trace.chakra.schema import CHAKRA_VERSION as CHAKRA_VERSION
    from foretrace.trace.chakra.schema import COMM_TYPES as COMM_TYPES
    from foretrace.trace.chakra.schema import KINDS_OF_COMM_TYPE as KINDS_OF_COMM_TYPE
    from foretrace.trace.chakra.schema import NO_TEXT as NO_TEXT
    from foretrace.trace.chakra.schema import CommType as CommType
    from foretrace.trace.chakra.schema import NodeType as NodeType
    from foretrace.trace.chakra.schema import ValueField as ValueField
    from foretrace.trace.chakra.schema import kind_name as kind_name

lazily(__name__)
