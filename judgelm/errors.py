"""The errors that judgelm raises on purpose.

    JudgelmError
    ├── InputError     a file or a row the user gave: place, finding, way out
    │   └── UnknownFieldsError    the fields of a file are of no known layout
    ├── LabelCodeError the values of a file's label field have no stated meaning, so none of its rows is used
    ├── ConfigError    an option, a mode, a template or an engine that is unknown or does not fit
    │   └── MissingExtraError   a feature needs a package that is not installed
    ├── ModelError     a model folder or hub id that cannot be used
    │   └── CardError  the model's `judge.json` contradicts what was asked for
    ├── EngineError    the engine itself broke; no sample is concerned
    │   └── ShutdownError       the server that drives it ends
    ├── BusyError      a server's queue is full
    ├── TrainingError  a training broke: its loss or weights are not finite
    └── RunError       the output cannot be written, or belongs to another run

Each message names the place, the finding and the way out. A judge's unparseable reply is none of these: it is
a value (`records.Unparsed`), counted and reported.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches


class JudgelmError(Exception):
    """Base of all; the command line prints the message and exits with 1."""


class InputError(JudgelmError):
    """A file or row that cannot be read: `place: finding; way out`."""


class UnknownFieldsError(InputError):
    """The fields of a file are of no known layout.

    Attributes:
        columns: a guess at the fields of a known one: name -> the file's own column.
    """

    def __init__(self, message: str, columns: Mapping[str, str]) -> None:
        super().__init__(message)
        self.columns = dict(columns)


class LabelCodeError(JudgelmError):
    """A label field holds values that its code does not explain, so no row of the file is read by guess.

    It concerns the whole file; a reader must not count it as one rejected row.
    """


class ConfigError(JudgelmError):
    """An option that is unknown or does not fit the others."""


def not_found(kind: str, name: object, available: Iterable[object]) -> ConfigError:
    """The error of a name that does not exist, with the closest of the available ones."""
    names = [str(known) for known in available]
    close = get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    return ConfigError(f"{kind} {name!r} does not exist{hint} available: {', '.join(names)}")


def out_of_range(name: str, value: object, least: float, most: float) -> ConfigError:
    """The error of a number outside its range; NaN is outside every range."""
    return ConfigError(f"{name} is {str(value)[:40]}; it must be a number from {least:.20g} to {most:.20g}")


class MissingExtraError(ConfigError):
    """A package of an optional extra is not installed."""


class ModelError(JudgelmError):
    """A model folder or hub id that cannot be loaded."""


class CardError(ModelError):
    """The model's card contradicts the template, scale or format in use."""


class EngineError(JudgelmError):
    """The engine broke as a whole, so the run stops; finished judgments are on disk."""


class ShutdownError(EngineError):
    """The server ends before the request is answered."""


class BusyError(JudgelmError):
    """A server's queue is full; the request can be repeated later."""


class TrainingError(JudgelmError):
    """A training broke and was stopped; its last checkpoint is whole."""


class RunError(JudgelmError):
    """The run's files cannot be written, or belong to another run."""


def first_line(error: BaseException) -> str:
    """The first line of an error's text without its full stop, with the second where it only announces that.

    An error without text is named by its type.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    shown = f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return shown.rstrip(".")
