from __future__ import annotations

import hashlib
import re
from importlib.resources import files

VENDOR = files("foretrace.report").joinpath("templates", "vendor")


def test_the_vendored_library_is_the_one_that_its_notice_names() -> None:
    notice = VENDOR.joinpath("NOTICE").read_text(encoding="utf-8")
    library = VENDOR.joinpath("echarts.min.js").read_bytes()

    (stated,) = re.findall(r"sha256 of echarts\.min\.js (\w{64})", notice)

    assert hashlib.sha256(library).hexdigest() == stated


def test_every_licence_that_the_notice_names_is_here() -> None:
    notice = VENDOR.joinpath("NOTICE").read_text(encoding="utf-8")

    names = set(re.findall(r"LICENSE[-\w]*", notice))

    assert len(names) > 3
    assert all(VENDOR.joinpath(name).is_file() for name in names)


def test_the_library_needs_no_eval_and_cannot_end_its_script() -> None:
    library = VENDOR.joinpath("echarts.min.js").read_text(encoding="utf-8")

    assert re.findall(r"new Function|\beval\(|</script|<!--", library) == []
