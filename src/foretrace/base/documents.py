"""Descriptions as TOML files: found by name or path, extended, merged, with their sources.

`extends = "h100-sxm"` starts from that description and changes what the file says. Where a name
is looked up: the folder of the file that mentions it, the folders handed in (the user's own), and
last the presets that come with foretrace. Hardware and models are both described so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from foretrace.base.errors import ModelError

Table = Mapping[str, object]
_MAX_ALLOWED = 12  # keys that an error lists in full
_MAX_NEAR = 4  # of more, those that are nearest


@dataclass(frozen=True)
class Shelf:
    """One kind of descriptions: what its files are called, where they stand, how they fail."""

    noun: str  # "chip": in sentences
    presets: Path
    error: type[ModelError]  # raised when a file is wrong
    folder: str = (
        ""  # below the presets and below a user's folder: "chips"; "" for these themselves
    )
    kinds: tuple[str, ...] = ()  # what `kind = "..."` of a file may say; the noun, if left out
    named_lists: tuple[str, ...] = ()  # keys of lists of tables that are merged by their `name`
    joined_lists: tuple[str, ...] = ()  # keys of lists that stand before those of what is extended
    # A table's own `source = "..."` counts for each of its numbers that names none.
    has_table_sources: bool = False


@dataclass(frozen=True)
class Citation:
    """A published document."""

    title: str
    url: str


@dataclass(frozen=True)
class Document:
    """One description with everything that it extends merged in."""

    name: str  # the file's name without ".toml"
    path: Path
    shelf: Shelf
    table: Table
    parent: str  # what it extends; "" if it stands alone

    @property
    def where(self) -> str:
        """The file, in words for an error."""
        return f"{self.shelf.noun} file {str(self.path)!r}"

    def text(self, key: str, default: str = "") -> str:
        """The text under `key`.

        Raises:
            ModelError: the shelf's own, if it is no text.
        """
        value = self.table.get(key, default)
        if not isinstance(value, str):
            raise self.shelf.error(
                f"{key!r} of {self.where} is {value!r}, where a text is expected"
            )
        return value


def document_names(shelf: Shelf, folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all descriptions of a shelf, sorted; a user's file hides a preset's name."""
    found = {
        path.stem
        for folder in (*folders, shelf.presets)
        for path in (folder / shelf.folder).glob("*.toml")
    }
    return tuple(sorted(found))


def read_document(
    name_or_path: str | Path,
    shelf: Shelf,
    folders: Sequence[Path] = (),
    *,
    also: Sequence[str] = (),
) -> Document:
    """The description of that name, or in that file, merged with what it extends.

    Args:
        name_or_path: of a file of the shelf.
        shelf: what kind it is of.
        folders: the user's own; looked through before the presets.
        also: names of other shelves that would have done, and that may have been meant.

    Raises:
        ModelError: the shelf's own, if there is none, it cannot be parsed, or it extends itself.
    """
    path = document_path(name_or_path, shelf, folders, also=also)
    return _document(path, shelf, folders=folders, seen=())


def _document(
    path: Path, shelf: Shelf, *, folders: Sequence[Path], seen: tuple[Path, ...]
) -> Document:
    if path in seen:
        circle = " -> ".join(each.stem for each in (*seen, path))
        raise shelf.error(f"{str(path)!r} extends itself ({circle}): remove one `extends`")
    table = parsed_toml(path, shelf.error)
    kinds = shelf.kinds or (shelf.noun,)
    stated = table.get("kind", kinds[0])
    if stated not in kinds:
        raise shelf.error(
            f"{str(path)!r} has kind {stated!r} where a {shelf.noun} is expected: "
            f"write kind = {_either(kinds)}, or name another file"
        )
    parent = table.pop("extends", "")
    if not isinstance(parent, str):
        raise shelf.error(f"'extends' of {str(path)!r} is {parent!r}: write one name or path")
    if shelf.has_table_sources:
        table = {key: _sourced(key, value) for key, value in table.items()}
    if parent:
        own = (path.parent, *folders)
        base_path = document_path(parent, shelf, own, besides=path)
        base = _document(base_path, shelf, folders=folders, seen=(*seen, path))
        _check_sources(base.table, table, path=path, error=shelf.error)
        table = merged(
            base.table, _joined(base.table, table, shelf.joined_lists), shelf.named_lists
        )
    return Document(path.stem, path, shelf, table, parent)


def _either(kinds: Sequence[str]) -> str:
    return " or ".join(f'"{kind}"' for kind in kinds)


def _sourced(key: str, value: object) -> object:
    """A table whose numbers each name the source that the table states for all."""
    if not isinstance(value, Mapping) or key == "sources" or not isinstance(_source(value), str):
        return value
    return {
        name: _with_source(entry, _source(value))
        for name, entry in value.items()
        if name != "source"
    }


def _source(table: Table) -> object:
    return table.get("source")


def _with_source(entry: object, source: object) -> object:
    if not isinstance(entry, Mapping):
        return {"value": entry, "source": source}
    has_own = "source" in entry or "assumed" in entry or "value" not in entry
    return entry if has_own else {**entry, "source": source}


def _check_sources(base: Table, over: Table, *, path: Path, error: type[ModelError]) -> None:
    """Refuse a source that would give numbers of the extended description another origin."""
    below, own = base.get("sources"), over.get("sources")
    if not isinstance(below, Mapping) or not isinstance(own, Mapping):
        return
    for key, source in own.items():
        if key in below and below[key] != source:
            raise error(
                f"{str(path)!r} gives the source {key!r} another meaning than what it extends: "
                "use another key"
            )


def _joined(base: Table, over: Table, keys: Sequence[str]) -> Table:
    """`over`, its lists of those keys with the base's entries after its own."""
    found = dict(over)
    for key in keys:
        own, below = over.get(key), base.get(key)
        if isinstance(own, list) and isinstance(below, list):
            found[key] = [*own, *below]
    return found


def merged(base: Table, over: Table, named_lists: Sequence[str] = ()) -> dict[str, object]:
    """`base` with what `over` says instead: tables go key by key, named lists name by name."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and "value" not in value:
            result[key] = merged(below, value, named_lists)
        elif key in named_lists and isinstance(value, list) and isinstance(below, list):
            result[key] = _merged_lists(below, value, named_lists)
        else:
            result[key] = value
    return result


def _merged_lists(
    base: list[object], over: list[object], named_lists: Sequence[str]
) -> list[object]:
    result = list(base)
    for entry in over:
        below = [each for each in result if _name(each) == _name(entry)]
        if isinstance(entry, Mapping) and below and isinstance(below[0], Mapping):
            result[result.index(below[0])] = merged(below[0], entry, named_lists)
        else:
            result.append(entry)
    return result


def _name(entry: object) -> object:
    return entry.get("name") if isinstance(entry, Mapping) else None


def document_path(
    name_or_path: str | Path,
    shelf: Shelf,
    folders: Sequence[Path],
    *,
    besides: Path | None = None,
    also: Sequence[str] = (),
) -> Path:
    """The file of that name, or the file itself; arguments are as in `read_document`.

    Raises:
        ModelError: the shelf's own, if there is none.
    """
    text = str(name_or_path)
    if text.endswith(".toml") or isinstance(name_or_path, Path) or "/" in text:
        candidates = [Path(text), *(folder / text for folder in folders)]
    else:
        candidates = [
            place / f"{text}.toml"
            for folder in (*folders, shelf.presets)
            for place in (folder / shelf.folder, folder)
        ]
    for path in candidates:
        # A user's file may extend the preset of its own name.
        if path.is_file() and path != besides:
            return path
    known = document_names(shelf, folders)
    near = get_close_matches(text, (*known, *also), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(known)}"
    raise shelf.error(f"no {shelf.noun} is called {text!r}, and no such file exists: {hint}")


def parsed_toml(
    path: Path, error: type[ModelError], *, until: str | None = None
) -> dict[str, object]:
    """What a TOML file holds.

    Args:
        path: of the file.
        error: raised if it cannot be parsed.
        until: a line, from which on nothing is read; of all that reading a file costs, parsing is
            most.

    Raises:
        ModelError: `error`, if it cannot be parsed.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text if until is None else text.partition(f"\n{until}\n")[0])
    except (ValueError, RecursionError) as err:  # of digits without end, too
        raise error(f"{str(path)!r} is not a TOML file: {err}") from err


def check_keys(
    table: Table,
    allowed: Sequence[str],
    where: str,
    *,
    error: type[ModelError],
    listed: str = "",
) -> None:
    """Refuse a key that nothing reads.

    Raises:
        ModelError: `error`, naming the key and what is allowed; of many the nearest, and the
            place, if there is one, where all are listed.
    """
    for key in table:
        if key not in allowed:
            near = get_close_matches(key, allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise error(
                f"{where} has the key {key!r}, which means nothing there: "
                f"{allowed_text(key, allowed, listed)}{hint}"
            )


def allowed_text(key: str, allowed: Sequence[str], listed: str = "") -> str:
    """All that is allowed where that is little, else what resembles the key, and where all is."""
    if len(allowed) <= _MAX_ALLOWED:
        return f"allowed are {', '.join(allowed)}"
    near = get_close_matches(key, allowed, n=_MAX_NEAR, cutoff=0.4) or allowed[:_MAX_NEAR]
    where = f", see {listed}" if listed else ""
    return f"allowed are {', '.join(near)} and {len(allowed) - len(near)} more{where}"


def read_sources(table: object, where: str, *, error: type[ModelError]) -> dict[str, Citation]:
    """The documents a file names, by the key it refers to them with."""
    found: dict[str, Citation] = {}
    for key, entry in as_table(table, f"[sources] of {where}", error=error).items():
        fields = as_table(entry, f"source {key!r} of {where}", error=error)
        check_keys(fields, ("title", "url"), f"source {key!r} of {where}", error=error)
        found[key] = Citation(str(fields.get("title", key)), str(fields.get("url", "")))
    return found


def as_table(value: object, where: str, *, error: type[ModelError]) -> Table:
    """`value` as a table; nothing counts as an empty one.

    Raises:
        ModelError: `error`, if it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise error(f"{where} is {value!r}, where a table is expected")
    return value
