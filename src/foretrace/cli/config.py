"""`foretrace config`: what is set where no option says otherwise, and where it is set."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
from foretrace.cli import options
from foretrace.cli.configuration import PROJECT_FILE, everything, user_folder
from foretrace.cli.outputs import Outputs

app = options.group("Say what files of settings and the environment set.")


@app.command()
def show(*, json: options.AsJson = False) -> None:
    """List every setting, its value, and where the value comes from."""
    rows = [
        ShownSetting(key, str(value), origin, words) for key, value, origin, words in everything()
    ]
    Outputs(json).tell(SettingsTold(tuple(rows)), top=None)


@dataclass(frozen=True)
class ShownSetting(Plain):
    """One setting."""

    key: str
    value: str  # "" not set
    origin: str  # a file or a variable
    what: str


@dataclass(frozen=True, repr=False)
class SettingsTold(Answer):
    """All settings, by key."""

    rows: tuple[ShownSetting, ...]

    @property
    def headline(self) -> str:
        """The files that are looked at."""
        return (
            "an option, else the environment, else "
            f"{PROJECT_FILE} here, else {user_folder() / 'config.toml'}"
        )

    def parts(self) -> tuple[Told, ...]:
        """A row a setting."""
        columns = (
            Column("key", unit=Unit.WORD),
            Column("value"),
            Column("origin", "from"),
            Column("what", "what it is"),
        )
        return (Table.of("settings", self.rows, *columns),)
