"""`Requests`: what is asked of an engine: when, how many tokens in, how many out.

From a file (JSON lines, JSON, CSV) in the forms that benchmarks and published traces have, or drawn
from a law. Nothing but lengths and arrivals is read.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.base import NS_PER_MS, NS_PER_S, Float64s, Int64s, WorkloadError

# How files call a prompt's tokens, a reply's, and when a request came. In order: LLMServingSim and
# vLLM's benchmarks, Vidur, Mooncake (ms), Azure's traces (a date), BurstGPT, and what benchmarks of
# vLLM and SGLang saved of their runs.
_PROMPT = (
    *("input_toks", "prompt_len", "prompt_tokens", "num_prompt_tokens", "input_length"),
    *("input_len", "num_prefill_tokens", "ContextTokens", "Request tokens", "input_lens"),
)
_OUTPUT = (
    *("output_toks", "output_len", "output_tokens", "num_output_tokens", "output_length"),
    *("expected_output_len", "num_decode_tokens", "GeneratedTokens", "Response tokens"),
    "output_lens",
)
_ARRIVAL: Mapping[str, int] = {
    "arrival_time": NS_PER_S,
    "arrival_time_s": NS_PER_S,
    "arrival": NS_PER_S,
    "arrived_at": NS_PER_S,
    "arrival_time_ms": NS_PER_MS,
    "arrival_time_ns": 1,
    "timestamp": NS_PER_MS,
    "TIMESTAMP": NS_PER_S,
    "Timestamp": NS_PER_S,
    "start_times": NS_PER_S,
}
_WHOLE_MS = "timestamp"  # Mooncake's counts ms; where parts of one are stated it is seconds
_CACHED = ("cached_tokens", "num_cached_tokens", "cached_toks")
_HASHES = "hash_ids"  # one for so many tokens of a prompt: 512 in Mooncake's traces, 16 in Qwen's
_HASHED_TOKENS = (512, 16, 32, 64, 128, 256, 1024)
_NAME = ("request_id", "id", "name")
_LAWS = ("poisson", "bursts", "constant")
_MOST_TOKENS = 2**31
_MOST_REQUESTS = 10_000_000
_MOST_SECONDS = 4e9  # from the first request to the last: ns in 64 bit leave room for twice as many
_SPREAD_OF_BURSTS = 4.0  # intervals' variance over their squared mean: gamma, shape 1/4


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order in which they come; the first at 0."""

    name: str
    arrival_ns: Int64s  # int64[requests], rising
    prompt_tokens: Int64s  # int64[requests], 1 or more
    output_tokens: Int64s  # int64[requests], 1 or more
    names: tuple[str, ...]  # of each request
    # int64[requests], first tokens of prompts whose keys are kept when they come; None: of none.
    cached_tokens: Int64s | None = None

    def __post_init__(self) -> None:
        """Refuse what no engine takes.

        Raises:
            WorkloadError: if there are none, a length is below 1, or they do not come in order.
        """
        if not len(self.arrival_ns):
            raise WorkloadError(f"{self.name} holds no request: it needs one or more")
        for what, tokens in (("prompt", self.prompt_tokens), ("reply", self.output_tokens)):
            wrong = np.flatnonzero((tokens < 1) | (tokens > _MOST_TOKENS))
            if len(wrong):
                named, count = self.names[wrong[0]], int(tokens[wrong[0]])
                raise WorkloadError(
                    f"request {named!r} of {self.name} has a {what} of {count:,} tokens, expected "
                    "1 or more: leave such requests out"
                )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_ns)

    @property
    def new_tokens(self) -> Int64s:
        """Tokens of each prompt that are worked on: all that are not kept, and the last."""
        if self.cached_tokens is None:
            return self.prompt_tokens
        found: Int64s = np.maximum(self.prompt_tokens - self.cached_tokens, 1)
        return found

    @property
    def keys_each(self) -> float:
        """Keys that a token of a reply attends to, in the mean over all of them."""
        kept = self.prompt_tokens + self.output_tokens / 2
        return float(np.average(kept, weights=self.output_tokens))

    def with_hits(self, share: float) -> Requests:
        """The same, where so much of every prompt is kept from others.

        Raises:
            WorkloadError: if it is no share.
        """
        if not 0 <= share <= 1:
            raise WorkloadError(f"a share of hits of {share} is none: expected 0 to 1")
        return replace(self, cached_tokens=(share * self.prompt_tokens).astype(np.int64))

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_ns[-1]) / NS_PER_S

    @property
    def rate(self) -> float:
        """Requests that come in a second; 0 where all come at once."""
        return (len(self) - 1) / self.seconds if self.seconds > 0 else 0.0

    def at_rate(self, rate: float, *, seed: int = 0, spread: float = 1.0) -> Requests:
        """The same lengths, coming at random, the last when that many have come at this rate.

        As vLLM's benchmark has them (0.19, vllm/benchmarks/serve.py): intervals are drawn, and
        made longer or shorter all alike.

        Args:
            rate: requests in a second.
            seed: of the draw.
            spread: variance of the intervals over their squared mean: 1 Poisson, 0 even, above
                1 in bursts.
        """
        gaps = _gaps(len(self), rate, spread=spread, seed=seed)
        arrival = np.concatenate([[0.0], np.cumsum(gaps[1:])])
        if arrival[-1] > 0:
            arrival *= (len(self) - 1) / rate / arrival[-1]
        return replace(self, arrival_ns=np.rint(arrival * NS_PER_S).astype(np.int64))

    def share(self, part: int, parts: int) -> Requests:
        """Those of one of several engines that take turns; arrivals stay as they are."""
        return replace(
            self,
            arrival_ns=self.arrival_ns[part::parts],
            prompt_tokens=self.prompt_tokens[part::parts],
            output_tokens=self.output_tokens[part::parts],
            names=self.names[part::parts],
            cached_tokens=None if self.cached_tokens is None else self.cached_tokens[part::parts],
        )


def _gaps(count: int, rate: float, *, spread: float, seed: int) -> Float64s:
    if not (0 < rate < NS_PER_S) or count / rate > _MOST_SECONDS:
        raise WorkloadError(
            f"{count:,} requests cannot come at a rate of {rate:g} in a second: expected one above "
            "0 (lengths of a file without arrivals come all at once)"
        )
    if spread <= 0:
        return np.full(count, 1 / rate)
    generator = np.random.default_rng(seed)
    gaps: Float64s = generator.gamma(1 / spread, spread / rate, count)
    return gaps


def requests_named(text: str, *, seed: int = 0) -> Requests:
    """The requests that a command line names: a law, or a file.

    A law is `poisson:rate=10,prompt=1024,output=256,requests=1000`; `bursts` and `constant` alike;
    `prompt_spread` and `output_spread` are the standard deviation of a length's logarithm, `hits`
    the share of every prompt that is kept from others.

    Raises:
        WorkloadError: if the law or the file cannot be read.
    """
    law, colon, rest = text.partition(":")
    if colon and law in _LAWS:
        return _of_law(law, rest, seed=seed)
    return read_requests(Path(text))


def _of_law(law: str, rest: str, *, seed: int) -> Requests:
    values: dict[str, float] = dict.fromkeys(("prompt_spread", "output_spread", "hits"), 0.0)
    values["requests"] = 1000
    needed = ("rate", "prompt", "output")
    for part in filter(None, rest.split(",")):
        key, _, number = part.partition("=")
        try:
            values[key.strip()] = float(number)
        except ValueError:
            values = {}
            break
    known = {*needed, "requests", "prompt_spread", "output_spread", "hits"}
    if not set(needed) <= set(values) or set(values) - known or min(values.values()) < 0:
        raise WorkloadError(
            f"cannot read the law {law}:{rest}: expected {law}:rate=10,prompt=1024,output=256, and "
            "if wanted requests=1000, prompt_spread=0.8, output_spread=0.5, hits=0.3"
        )
    for key, what in (("prompt", "prompts"), ("output", "replies")):
        if not 1 <= values[key] <= _MOST_TOKENS:
            raise WorkloadError(
                f"{law}:{rest} has {what} of {values[key]:,.3g} tokens, expected 1 or more"
            )
    if not 1 <= values["requests"] <= _MOST_REQUESTS:
        raise WorkloadError(
            f"cannot draw {values['requests']:,.0f} requests: expected 1 to {_MOST_REQUESTS:,}"
        )
    count = int(values["requests"])
    generator = np.random.default_rng(seed + 1)
    prompt, output = (
        np.clip(
            np.rint(values[key] * np.exp(values[f"{key}_spread"] * generator.normal(size=count))),
            1,
            _MOST_TOKENS,
        ).astype(np.int64)
        for key in ("prompt", "output")
    )
    names = tuple(map(str, range(count)))
    drawn = Requests(f"{law}:{rest}", np.zeros(count, np.int64), prompt, output, names)
    spread = {"poisson": 1.0, "bursts": _SPREAD_OF_BURSTS, "constant": 0.0}[law]
    found = drawn.at_rate(values["rate"], seed=seed, spread=spread)
    return found.with_hits(values["hits"]) if values["hits"] else found


def read_requests(path: Path) -> Requests:
    """Requests of a file: .jsonl, .json (a list) or .csv.

    Without arrivals all come at once; `at_rate` spreads them.

    Raises:
        WorkloadError: if the file cannot be read, or does not say how long requests are.
    """
    try:
        rows = list(_rows(path))
    except (OSError, ValueError, RecursionError, csv.Error) as err:
        reason = err.strerror if isinstance(err, OSError) else err
        raise WorkloadError(f"cannot read requests from {path}: {reason}") from err
    if not rows:
        raise WorkloadError(f"{path} holds no request: it needs one or more")
    prompt, output = _column(rows, _PROMPT, path), _column(rows, _OUTPUT, path)
    arrival = _arrivals(rows, path)
    order = np.argsort(arrival, kind="stable")
    key = next((name for name in _NAME if name in rows[0]), "")
    names = [str(row.get(key, at)) for at, row in enumerate(rows)]
    cached = _cached(rows, order, path)
    return Requests(
        str(path),
        np.rint((arrival - arrival.min())[order]).astype(np.int64),
        prompt[order],
        output[order],
        tuple(names[at] for at in order.tolist()),
        cached_tokens=None if cached is None else np.minimum(cached, prompt[order]),
    )


def _cached(rows: Sequence[Mapping[str, Any]], order: Int64s, path: Path) -> Int64s | None:
    """What is kept of each prompt when it comes, as stated or by hashes that came before."""
    if any(name in rows[0] for name in _CACHED):
        stated = _column(rows, _CACHED, path)[order]
        return np.maximum(stated, 0)
    if not isinstance(rows[0].get(_HASHES), list):
        return None
    names = [[str(one) for one in row.get(_HASHES) or []] for row in rows]
    counts, lengths = np.array(list(map(len, names))), _column(rows, _PROMPT, path)
    each = max(_HASHED_TOKENS, key=lambda size: int((-(-lengths // size) == counts).sum()))
    seen: set[object] = set()
    found = []
    for at in order.tolist():
        hashes = names[at]
        known = next((place for place, one in enumerate(hashes) if one not in seen), len(hashes))
        found.append(known * each)
        seen.update(hashes)
    return np.array(found, np.int64)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() in {".csv", ".tsv"}:
        lines = text.splitlines()
        between = max(",;\t", key="".join(lines[:1]).count)
        reader = csv.DictReader(lines, delimiter=between)
        for row in reader:
            if None in row:
                raise ValueError(f"line {reader.line_num} has more values than there are columns")
            yield row
        return
    for row in _of_json(text):
        if not isinstance(row, dict):
            told = f"expected a mapping for every request, found {str(row)[:40]!r}"
            raise ValueError(told)  # noqa: TRY004  as of what the file holds
        yield row


def _of_json(text: str) -> list[Any]:
    """Rows of a list, of lines, of `requests`, or of the columns that a benchmark saved."""
    try:
        found = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(found, list):
        return found
    if not isinstance(found, dict):
        return [found]
    if isinstance(found.get("requests"), list):
        return list(found["requests"])
    lengths = next((found[name] for name in _PROMPT if isinstance(found.get(name), list)), None)
    if lengths is None:
        return [found]
    columns = {
        key: values
        for key, values in found.items()
        if isinstance(values, list) and len(values) == len(lengths)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _column(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path) -> Int64s:
    name = next((name for name in names if name in rows[0]), None)
    if name is None:
        told = ", ".join(list(rows[0])[:8])
        raise WorkloadError(
            f"cannot tell how long the requests of {path} are: it has {told}; expected lengths in "
            f"tokens, such as {names[0]!r} (texts need a tokenizer: count their tokens first)"
        )
    try:
        found = np.array([float(row[name]) for row in rows])
    except (KeyError, TypeError, ValueError) as err:
        raise WorkloadError(
            f"cannot read requests from {path}: expected a whole number of tokens as {name!r} of "
            f"every request ({err})"
        ) from err
    if not (np.isfinite(found).all() and (found == np.floor(found)).all()):
        raise WorkloadError(
            f"cannot read requests from {path}: {name!r} holds numbers that count no tokens"
        )
    whole: Int64s = np.clip(found, -(2.0**40), 2.0**40).astype(np.int64)
    return whole


def _arrivals(rows: Sequence[Mapping[str, Any]], path: Path) -> Float64s:
    """When each came, float64[requests], in ns."""
    name = next((name for name in _ARRIVAL if name in rows[0]), None)
    if name is None:
        return np.zeros(len(rows))
    try:
        found = [_moment(row[name]) for row in rows]
    except (KeyError, TypeError, ValueError) as err:
        raise WorkloadError(
            f"cannot read requests from {path}: {name!r} of every request must be a time ({err})"
        ) from err
    moments = np.array([moment for moment, _ in found])
    if not np.isfinite(moments).all():
        raise WorkloadError(f"cannot read requests from {path}: {name!r} holds what is no time")
    is_seconds = any(is_date for _, is_date in found)
    if name == _WHOLE_MS and not (moments == np.floor(moments)).all():
        is_seconds = True
    unit = NS_PER_S if is_seconds else _ARRIVAL[name]
    # Seconds since 1970 have more digits than ns in 64 bit leave room for: the first is taken off.
    seconds = (moments.max() - moments.min()) * (unit / NS_PER_S)
    if seconds > _MOST_SECONDS:
        raise WorkloadError(
            f"cannot read requests from {path}: {name!r} says that they come over {seconds:.2g} s, "
            "which is more than engines run for"
        )
    since: Float64s = (moments - moments.min()) * float(unit)
    return since


def _moment(value: object) -> tuple[float, bool]:
    """A number of some unit, or the seconds of a date; and whether it is a date."""
    try:
        return float(str(value)), False
    except ValueError:
        return datetime.fromisoformat(str(value)).timestamp(), True
