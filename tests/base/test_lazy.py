"""Folders that offer names: what is not offered is refused in words."""

from __future__ import annotations

import pytest

import foretrace.analyze
import foretrace.graph


def test_a_folder_with_a_command_s_name_says_which_verb_is_meant() -> None:
    with pytest.raises(TypeError, match=r"analyze is a folder .*: call foretrace\.overview"):
        foretrace.analyze(None)  # type: ignore[operator]


def test_other_folders_cannot_be_called_either() -> None:
    with pytest.raises(TypeError, match=r"foretrace\.graph is a folder .* cannot be called$"):
        foretrace.graph(None)  # type: ignore[operator]
