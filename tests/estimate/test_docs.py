from __future__ import annotations

import re
from pathlib import Path

from foretrace.estimate import Estimate

PAGE = Path(__file__).parents[2] / "docs" / "estimate.md"


def test_the_python_of_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    names: dict[str, object] = {}
    exec(example, names)  # noqa: S102  the example is ours

    found = names["found"]
    assert isinstance(found, Estimate)
    assert found.plan.num_ranks == 8
