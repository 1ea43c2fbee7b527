"""Failure rates as a TOML file that `load_failures` reads."""

from __future__ import annotations

import json

from foretrace.risk.failures.rates import Component, FailureRates


def failures_toml(rates: FailureRates, num_hosts: int) -> str:
    """The text of a file.

    Args:
        rates: of which `host_days` is known wherever there are counts.
        num_hosts: that were watched.
    """
    lines = ['kind = "failures"', f"title = {_text(rates.title)}"]
    lines.append(f"gpus_per_host = {rates.gpus_per_host}")
    if rates.host_days is not None:
        lines += ["", "[observed]", f"hosts = {num_hosts}", f"days = {rates.host_days / num_hosts}"]
    for each in rates.components:
        lines += ["", "[[components]]", f"name = {_text(each.name)}", _number(each)]
        lines.append(f"takes_host = {str(each.takes_host).lower()}")
    return "\n".join(lines) + "\n"


def _number(component: Component) -> str:
    if component.count is None:
        return f"per_host_day = {component.per_host_day}"
    return f"count = {component.count}"


def _text(text: str) -> str:
    return json.dumps(text)  # a text of JSON is one of TOML
