"""Messages, errors, configuration files, and progress, shared by all commands.

Terminal output is escaped with `printable`. Machine-readable output (`--json -`, judgments on standard output) is
written unchanged with `typer.echo`.
"""

import io
import json
import logging
import re
import signal
import sys
import threading
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from judgelm.data.readers.rows import RejectCounts
from judgelm.errors import ConfigError, JudgelmError, RunError
from judgelm.jsonl import atomic_write, json_ready
from judgelm.package import extra_of, install_hint
from judgelm.records import Judgment
from judgelm.yaml_files import read_yaml

if TYPE_CHECKING:
    from judgelm.runs.stats import RunStats


EXIT_USAGE, EXIT_FAILURES, EXIT_INTERRUPTED = 1, 2, 130
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # from the copy of click that Typer uses
_NOT_CONFIGURED = {"config", "help", "help_all", "install_completion", "show_completion"}
_LOG_EVERY_S = 30.0
_REFRESH_EVERY_S = 0.2
_MIN_BATCHES = 3.0
_MIN_FIRST_S = 1.0

_SHOWN_AS_THEY_ARE = frozenset("\n\t")
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_ODD = re.compile(r"[^ -~]")


def printable(text: str) -> str:
    r"""Escape control, bidirectional, invisible, and unassigned characters, such as `\x1b` or `\u202e`."""
    return text if text.isascii() and text.isprintable() else _ODD.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    shown = character in _SHOWN_AS_THEY_ARE or unicodedata.category(character) == "Zs"
    if shown or (character.isprintable() and character not in _BLANK_LETTERS):
        return character
    return ascii(character)[1:-1]


class PlainConsole(Console):
    """A console that escapes text and does not interpret markup or emoji codes."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape the text before its width is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape renderables other than strings."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def message(self, text: str, *, label: str = "", style: str = "") -> None:
        """Print text without wrapping; lines after the first are indented."""
        indented = printable(text).replace("\n", "\n  ")
        self.print(Text.assemble((label, style), " " if label else "", indented), soft_wrap=True)

    def messages(self, texts: Iterable[str], **options: str) -> None:
        """Print several messages; `options` are passed to `message`."""
        for text in texts:
            self.message(text, **options)

    def lines(self, texts: Iterable[str]) -> None:
        """Print each text on a new line, with wrapping."""
        for text in texts:
            self.print(text)

    @contextmanager
    def activity(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner, and yield a function that changes its text."""
        with self.status(Text(printable(text))) as status:
            yield lambda changed: status.update(Text(printable(changed)))

    @contextmanager
    def stages(self) -> Iterator[Callable[[str, float], None]]:
        """Show a bar or line per stage, and yield a function that takes a stage's name and progress (0 to 1)."""
        from rich import progress as bars

        columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TaskProgressColumn())
        with bars.Progress(
            *columns, bars.TimeElapsedColumn(), console=self, transient=True, disable=not self.is_terminal
        ) as progress:
            tasks: dict[str, bars.TaskID] = {}

            def report(stage: str, share: float) -> None:
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=1.0)
                    if not self.is_terminal:
                        self.message(f"{stage} ...")
                progress.update(tasks[stage], completed=share)

            yield report


console = PlainConsole(stderr=True)
"""Prints progress and notes to standard error, unless `--quiet` is set. Standard output is for results."""
errors = PlainConsole(stderr=True)
"""Prints errors and warnings, even with `--quiet`."""


def echo(text: str, *, err: bool = False) -> None:
    """Escape and print text."""
    typer.echo(printable(text), err=err)


@contextmanager
def printed_rejects(label: str) -> "Iterator[RejectCounts]":
    """Count rejected rows, and print the counts by reason at the end."""
    rejects = RejectCounts()
    yield rejects
    for line in rejects.lines():
        errors.message(f"{label}: {line}")


def result_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """Create a table with `left` text columns, followed by number columns."""
    table = Table(title=title, title_justify="left", show_header=any(columns))
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def run_app(app: typer.Typer) -> None:
    """Run a Typer app; exit with code 1 on errors."""
    try:
        with escaped_diagnostics(), terminated_as_interrupt():
            code = app(standalone_mode=False)
    except JudgelmError as error:
        fail(str(error))
    except ModuleNotFoundError as error:
        if (extra := extra_of(error.name or "")) is None:
            raise
        fail(f"{error.name} is not installed; run: {install_hint(extra)}")
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except _UsageError as error:
        message = io.StringIO()
        error.show(message)  # type: ignore[attr-defined]
        echo(message.getvalue().rstrip("\n"), err=True)
        if getattr(getattr(error, "param", None), "name", None) == "labels":
            echo("To print the verdicts without labels, use judgelm report RUN --samples PAIRS", err=True)
        sys.exit(EXIT_USAGE)  # click would exit with 2, which means too many failures here
    sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def escaped_diagnostics() -> Iterator[None]:
    """Escape warnings and log messages inside the block, and tracebacks until the process exits."""

    def print_traceback(error: BaseException | None) -> None:
        echo("".join(traceback.format_exception(error)).rstrip("\n"), err=True)

    sys.excepthook = lambda kind, error, trace: print_traceback(error)
    before = threading.excepthook, warnings.formatwarning, logging.getLogRecordFactory()
    threading.excepthook = lambda failed: print_traceback(failed.exc_value)
    warnings.formatwarning = lambda *parts, **named: printable(before[1](*parts, **named))
    logging.setLogRecordFactory(_PrintableRecord)
    try:
        yield
    finally:
        threading.excepthook, warnings.formatwarning = before[:2]
        logging.setLogRecordFactory(before[2])


class _PrintableRecord(logging.LogRecord):
    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        if self.exc_info and self.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(*self.exc_info))
            self.exc_text = printable(trace.rstrip("\n"))

    def getMessage(self) -> str:  # noqa: N802 - overrides logging's method
        return printable(super().getMessage())


def fail(message: str) -> NoReturn:
    """Print an error and exit with code 1."""
    errors.message(message, label="error:", style="bold red")
    sys.exit(EXIT_USAGE)


def load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Use values from a YAML file as defaults for the command."""
    if path is None:
        return None
    try:
        values = read_yaml(path) or {}
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    known = {str(parameter.name) for parameter in context.command.params} - _NOT_CONFIGURED
    if not isinstance(values, dict):
        raise typer.BadParameter(f"{path}: expected a mapping from option names to values")
    values = {str(key): value for key, value in values.items()}
    if unknown := values.keys() - known:
        finding = f"unknown option {', '.join(sorted(unknown))}"
        raise typer.BadParameter(f"{path}: {finding}; available: {', '.join(sorted(known))}")
    for parameter in context.command.params:
        name = str(parameter.name)
        if getattr(parameter, "multiple", False) and isinstance(values.get(name), str):
            values[name] = [values[name]]
    for name in ("engine_arg", "mode_arg"):
        if name in values:
            values[name] = _pairs(path, name, values[name])
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _pairs(path: Path, option: str, values: Any) -> list[str]:
    import yaml  # imported late to keep --help fast

    if isinstance(values, dict):
        return [f"{name}={yaml.safe_dump(value, default_flow_style=True)}" for name, value in values.items()]
    if isinstance(values, list) and all(isinstance(pair, str) for pair in values):
        return values
    raise typer.BadParameter(f"{path}: {option}: expected a mapping, or a list of strings such as name=value")


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C."""

    def interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def resumable(out: str = "") -> Iterator[None]:
    """On Ctrl-C, exit with 130 and print how to resume unless `out` is `-`."""
    try:
        yield
    except KeyboardInterrupt:
        way_on = "" if out == "-" else "; run the same command again to resume"
        errors.print(f"\ninterrupted{way_on}", style="yellow")
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def watch(total: int | None) -> Iterator[Callable[["RunStats", Judgment], None]]:
    """Show progress as a bar in a terminal, otherwise as a line every 30 s."""
    from rich import progress as bars

    pace, shown = Pace(total), time.monotonic()
    show_bar = console.is_terminal and not console.quiet
    progress = bars.Progress(
        bars.SpinnerColumn(), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TextColumn("{task.fields[pace]}"),
        bars.TimeElapsedColumn(), console=console, transient=True,
    )  # fmt: skip
    task = progress.add_task("judging", total=total, pace="")

    def update(stats: "RunStats", judgment: Judgment) -> None:
        nonlocal shown
        pace.see(stats)
        now, done = time.monotonic(), stats.judged + stats.skipped
        if now - shown < (_REFRESH_EVERY_S if show_bar else _LOG_EVERY_S):
            return
        shown = now
        if show_bar:
            progress.update(task, completed=done, pace=pace.shown(stats))
        else:
            console.message(f"{done}{f'/{total}' if total is not None else ''} judged, {pace.shown(stats)}")

    with progress if show_bar else nullcontext():
        yield update


class Pace:
    """Speed and ETA of a run, shown after about three batches because warm-up slows the first batch."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self._first_s: float | None = None

    def see(self, stats: "RunStats") -> None:
        """Record the time of the first judgment."""
        if self._first_s is None:
            self._first_s = max(stats.judge_s, _MIN_FIRST_S)

    def shown(self, stats: "RunStats") -> str:
        """Return the speed, failures, and ETA; at the start, only the failures."""
        failed = f"{sum(stats.failures.values())} failed"
        if self._first_s is None or stats.judge_s < _MIN_BATCHES * self._first_s:
            return failed
        tokens = (stats.prompt_tokens + stats.completion_tokens) / stats.judge_s
        shown = f"{speed(stats.judged, stats.judge_s)}, {tokens:,.0f} tokens/s, {failed}"
        if not self.total:
            return shown
        left = max(0, self.total - stats.judged - stats.skipped)
        return f"{shown}, ETA {left * stats.judge_s / stats.judged:,.0f} s"


def speed(samples: int, seconds: float) -> str:
    """Format the speed as samples per second, or as seconds per sample if a sample takes longer than a second."""
    if 0 < samples < seconds:
        return f"{seconds / samples:,.1f} s per sample"
    return f"{samples / seconds:,.1f} samples/s"


def _json_value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print only errors.")]
JsonOut = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all results as JSON; use - for standard output.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Options for commands that print results."""

    json_out: JsonOut = None
    quiet: Quiet = False

    def write(self, content: Any) -> bool:
        """Write the `--json` file; return True if the results should also be printed."""
        write_json(self.json_out, content)
        return not (self.quiet or is_stdout(self.json_out))


def write_json(path: Path | None, content: Any) -> None:
    """Write results as JSON, unless `path` is None."""
    if path is not None:
        text = io.StringIO()  # `dumps` would build a list of all tokens
        json.dump(json_ready(content), text, indent=1, default=_json_value, allow_nan=False)
        write_text(path, text.getvalue() + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSONL, atomically."""
    with atomic_write(path) as file:
        for row in rows:
            file.write(row)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, or write to standard output if `path` is `-`."""
    if str(path) == "-":
        typer.echo(text, nl=not text.endswith("\n"))
        return
    if path.is_file() or not path.exists():
        from judgelm.data.dataset_files import write_text as write_whole  # loads pyarrow

        return write_whole(path, text)
    try:  # do not replace a device or pipe
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RunError(f"{path}: could not write the file: {error.strerror}; choose a different path") from error


def picked(record: Any, *names: str) -> dict[str, Any]:
    """Return the given fields of a record for `--json`."""
    return {name: getattr(record, name) for name in names}


def is_stdout(path: Path | None) -> bool:
    """Return True for `--json -`, which uses standard output."""
    return str(path) == "-"
