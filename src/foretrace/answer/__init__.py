"""Floor 1: what a result says of itself, and a question as one value; needs `base` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.answer.answer import Answer as Answer
    from foretrace.answer.answer import rows_json as rows_json
    from foretrace.answer.markup import html_of as html_of
    from foretrace.answer.markup import markdown_of as markdown_of
    from foretrace.answer.markup import with_code as with_code
    from foretrace.answer.parts import Fact as Fact
    from foretrace.answer.parts import Facts as Facts
    from foretrace.answer.parts import Legend as Legend
    from foretrace.answer.parts import Paragraph as Paragraph
    from foretrace.answer.parts import Sentences as Sentences
    from foretrace.answer.parts import Share as Share
    from foretrace.answer.parts import ShareBar as ShareBar
    from foretrace.answer.parts import SideBySide as SideBySide
    from foretrace.answer.parts import TimelineDrawing as TimelineDrawing
    from foretrace.answer.parts import Told as Told
    from foretrace.answer.parts import tables_in as tables_in
    from foretrace.answer.plain import Json as Json
    from foretrace.answer.plain import Plain as Plain
    from foretrace.answer.plain import plain as plain
    from foretrace.answer.plain import plain_fields as plain_fields
    from foretrace.answer.questions import Gate as Gate
    from foretrace.answer.questions import Instead as Instead
    from foretrace.answer.questions import Option as Option
    from foretrace.answer.questions import Place as Place
    from foretrace.answer.questions import Question as Question
    from foretrace.answer.questions import Subject as Subject
    from foretrace.answer.questions import question as question
    from foretrace.answer.stated import stated_json as stated_json
    from foretrace.answer.stated import stated_parts as stated_parts
    from foretrace.answer.tables import Chart as Chart
    from foretrace.answer.tables import ChartKind as ChartKind
    from foretrace.answer.tables import Column as Column
    from foretrace.answer.tables import Level as Level
    from foretrace.answer.tables import Series as Series
    from foretrace.answer.tables import Shown as Shown
    from foretrace.answer.tables import Stretch as Stretch
    from foretrace.answer.tables import Table as Table
    from foretrace.answer.tables import columns_of as columns_of
    from foretrace.answer.text import Style as Style
    from foretrace.answer.text import text_of as text_of
    from foretrace.answer.units import Cell as Cell
    from foretrace.answer.units import Unit as Unit
    from foretrace.answer.units import bytes_text as bytes_text
    from foretrace.answer.units import cell_text as cell_text
    from foretrace.answer.units import component_text as component_text
    from foretrace.answer.units import count_text as count_text
    from foretrace.answer.units import duration_text as duration_text
    from foretrace.answer.units import long_duration_text as long_duration_text
    from foretrace.answer.units import milliseconds_text as milliseconds_text
    from foretrace.answer.units import number_text as number_text
    from foretrace.answer.units import parameters_text as parameters_text
    from foretrace.answer.units import per_second_text as per_second_text
    from foretrace.answer.units import percent_text as percent_text
    from foretrace.answer.units import rate_text as rate_text
    from foretrace.answer.units import readable as readable
    from foretrace.answer.units import short_name as short_name
    from foretrace.answer.units import signed_percent_text as signed_percent_text

lazily(__name__)
