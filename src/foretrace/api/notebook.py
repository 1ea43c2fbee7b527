"""How the answers look in a notebook: a line that says what it is, and a small table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from foretrace.analyze import (
    AttentionProfile,
    Comparison,
    CriticalPath,
    Effect,
    Hang,
    MemoryUse,
    OperatorTable,
    Roofline,
    Sensitivity,
    WhatHelps,
    shapes_text,
)
from foretrace.answer import bytes_text, milliseconds_text, signed_percent_text
from foretrace.api.edited import Edited
from foretrace.estimate import Estimate
from foretrace.graph import Blocks
from foretrace.report import (
    change_text,
    difference_rows,
    estimate_facts,
    estimate_subject,
    html_table,
    part_text,
    signed_milliseconds,
    sweep_subject,
    whatif_facts,
    whatif_subject,
)
from foretrace.whatif import Prediction, Sweep

MAX_ROWS = 20


def estimate_html(found: Estimate) -> str:
    """The figures that matter, and where the time goes."""
    facts = html_table(
        ("", "", ""),
        ((fact.name, fact.value, fact.remark) for fact in estimate_facts(found)),
        num_left_out=0,
    )
    parts = found.where.mean.by_name().items()
    return f"<p>{escape(f'{found.model.name} on {estimate_subject(found)}')}</p>{facts}" + _shown(
        "Where the time goes, mean over ranks",
        ("", "ms", "share"),
        (
            (part_text(name), milliseconds_text(ns), _share(ns / found.step_ns))
            for name, ns in parts
        ),
    )


def prediction_html(found: Prediction) -> str:
    """The figures that matter, what each edit does, and where the difference goes."""
    facts = html_table(
        ("", "", ""),
        ((fact.name, fact.value, fact.remark) for fact in whatif_facts(found)),
        num_left_out=0,
    )
    effects = _shown(
        "Edits, each made after those before it",
        ("edit", "step ms", "change ms"),
        (
            (one.sentence, milliseconds_text(one.step_ns), signed_milliseconds(one.change_ns))
            for one in found.effects
        ),
    )
    parts = _shown(
        "Where the difference goes, mean over ranks and steps",
        ("", "before ms", "after ms", "difference ms"),
        (
            (
                row.text,
                milliseconds_text(row.before_ns),
                milliseconds_text(row.after_ns),
                signed_milliseconds(row.difference_ns),
            )
            for row in difference_rows(found)
        ),
    )
    return f"<p>{escape(whatif_subject(found))}</p>{facts}{effects}{parts}"


def edited_html(found: Edited) -> str:
    """The prediction."""
    return prediction_html(found.prediction)


def sweep_html(found: Sweep) -> str:
    """Scenarios, the best first."""
    return _shown(
        sweep_subject(found),
        ("scenario", "step ms", "change", "sequences/s", "per rank", "ranks", "refused"),
        (
            (
                row.name,
                "" if row.is_refused else milliseconds_text(row.step_ns),
                "" if row.is_refused else change_text(row),
                "" if row.is_refused else f"{row.throughput:.3g} x",
                "" if row.is_refused else f"{row.throughput_per_rank:.3g} x",
                "" if row.is_refused else f"{row.num_ranks:,}",
                row.refusal,
            )
            for row in found.rows
        ),
    )


def critical_path_html(path: CriticalPath) -> str:
    """Time on the path by class."""
    return _shown(
        f"{path.span.step_name}: {milliseconds_text(path.step_ns)} ms in {len(path):,} pieces",
        ("on the critical path", "ms", "share", "pieces"),
        (
            (one.label, milliseconds_text(one.time_ns), _share(one.share), f"{one.num_pieces:,}")
            for one in path.by_class()
        ),
    )


def sensitivity_html(found: Sensitivity) -> str:
    """The levers whose change moves the step most."""
    rows = sorted(found.rows, key=lambda row: -abs(row.faster_ns or row.free_ns))
    return _shown(
        f"{found.span.step_name}: {milliseconds_text(found.step_ns)} ms",
        ("lever", "", "ms", "20 % faster", "free", "linear to"),
        (
            (
                str(row.kind),
                row.label,
                milliseconds_text(row.time_ns),
                "" if row.faster_ns is None else _signed(row.faster_ns / found.step_ns),
                _signed(row.free_ns / found.step_ns),
                "" if row.linear_to is None else f"{row.linear_to:.2f}",
            )
            for row in rows
        ),
    )


def what_helps_html(found: WhatHelps) -> str:
    """The changes that gain most."""
    return _shown(
        f"{found.step_name}: {milliseconds_text(found.step_ns)} ms",
        ("what would help most", "step", "ms", "part of"),
        (
            (
                one.text.split(": step")[0],
                _signed(-one.share),
                f"-{milliseconds_text(one.gain_ns)}",
                ", ".join(one.inside),
            )
            for one in found.rows
        ),
    )


def effect_html(found: Effect) -> str:
    """One sentence."""
    return f"<p>{escape(str(found))}</p>"


def hang_html(found: Hang) -> str:
    """Where ranks wait for good."""
    return _shown(
        found.sentence,
        ("group", "position", "collective", ""),
        ((one.group, f"{one.position:,}", one.name, one.sentence) for one in found.stuck),
    )


def operators_html(found: OperatorTable) -> str:
    """Device time by class."""
    return _shown(
        f"{found.step_name or 'the whole recording'}: {milliseconds_text(found.time_ns)} ms on "
        f"all ranks, {_share(found.unrecognised.share)} of it not recognised",
        ("class", "ms", "share", "kernels", "TFLOP/s", "GB/s"),
        (
            (
                row.kind,
                milliseconds_text(row.time_ns),
                _share(row.share),
                f"{row.num_kernels:,}",
                "" if row.flops_per_ns is None else f"{row.flops_per_ns / 1_000:,.1f}",
                "" if row.bytes_per_ns is None else f"{row.bytes_per_ns:,.0f}",
            )
            for row in found.by("class")
        ),
    )


def roofline_html(found: Roofline) -> str:
    """Operators against their chip's limits."""
    return _shown(
        found.chip_name or "the chip is not known, so there are no shares of its limits",
        ("operator", "shapes", "ms", "TFLOP/s", "of limit", "bound by"),
        (
            (
                one.operator,
                shapes_text(one.signature),
                milliseconds_text(one.time_ns),
                f"{one.flops_per_ns / 1_000:,.1f}",
                "" if one.share is None else _share(one.share),
                one.bound,
            )
            for one in found.points
        ),
    )


def attention_html(found: AttentionProfile) -> str:
    """Calls and time by sequence length."""
    return _shown(
        f"{len(found):,} calls of attention",
        ("queries", "keys", "pass", "calls", "ms"),
        (
            (
                f"{row['query_length']:,}",
                f"{row['kv_length']:,}",
                "backward" if row["is_backward"] else "forward",
                f"{row['num_calls']:,}",
                milliseconds_text(row["time_ns"]),
            )
            for row in found.by_length().iter_rows(named=True)
        ),
    )


def memory_html(found: MemoryUse) -> str:
    """Every memory's peak."""
    return _shown(
        found.step_name or "over all",
        ("", "begin", "peak", "end", "reserved", "at the peak"),
        (
            (
                one.label,
                *map(bytes_text, (one.begin_bytes, one.peak_bytes, one.end_bytes)),
                bytes_text(one.peak_reserved_bytes),
                f"{one.peak.block} {one.peak.operator}".strip(),
            )
            for one in found.places
        ),
    )


def blocks_html(found: Blocks) -> str:
    """The first blocks, by rank and step."""
    return _shown(
        f"{len(found):,} blocks, {_share(found.share_assigned)} of the work in a known one",
        ("rank", "step", "part", "phase", "layer", "microbatch", "work ms", "host ms"),
        (
            (
                str(row["rank"]),
                row["step"],
                row["part"],
                row["phase"],
                "" if row["layer"] < 0 else str(row["layer"]),
                "" if row["microbatch"] < 0 else str(row["microbatch"]),
                milliseconds_text(row["work_ns"]),
                milliseconds_text(row["host_ns"]),
            )
            for row in found.to_frame().iter_rows(named=True)
        ),
    )


def comparison_html(found: Comparison) -> str:
    """The reasons, and the classes before and after."""
    reasons = "".join(f"<li>{escape(one.sentence)}</li>" for one in found.reasons)
    table = _shown(
        f"{milliseconds_text(found.before.mean_ns)} ms before, "
        f"{milliseconds_text(found.after.mean_ns)} ms after "
        f"({signed_percent_text(found.percent)}): {found.noise.verdict.value}",
        ("class", "before ms", "after ms", "difference ms"),
        (
            (
                row.label,
                milliseconds_text(row.before.step_ns),
                milliseconds_text(row.after.step_ns),
                f"{row.difference_ns / 1e6:+,.3f}",
            )
            for row in found.view("class").rows
        ),
    )
    return f"{table}<ul>{reasons}</ul>" if reasons else table


def _shown(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    listed = list(rows)
    table = html_table(head, listed[:MAX_ROWS], num_left_out=len(listed) - MAX_ROWS)
    return f"<p>{escape(title)}</p>{table}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(share: float) -> str:
    return signed_percent_text(100 * share)
