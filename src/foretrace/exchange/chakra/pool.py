"""The texts of a file while it is being made."""

from __future__ import annotations

from foretrace.trace import Texts


class TextPool:
    """Texts of a file, each once: a graph's names first, in their order."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._texts = [name.encode() for name in names]
        self._position = {text: at for at, text in enumerate(self._texts)}

    def of(self, text: str | bytes) -> int:
        """Position of a text, added if it is new."""
        raw = text.encode() if isinstance(text, str) else text
        position = self._position.setdefault(raw, len(self._texts))
        if position == len(self._texts):
            self._texts.append(raw)
        return position

    def texts(self) -> Texts:
        """All texts so far."""
        return Texts.of(self._texts)
