"""HTML building blocks for the page. All text is escaped."""

from collections.abc import Iterable
from html import escape

from judgelm.errors import BusyError, EngineError, JudgelmError

MAX_TEXT = 20_000

_WAYS_OUT: tuple[tuple[type[JudgelmError], str], ...] = (
    (BusyError, "Try again in a moment."),
    (EngineError, "Restart `judgelm web`. Its terminal output shows the cause."),
)


def text_block(text: str, *, title: str, note: str = "") -> str:
    """Render a text with a title, preserving line breaks and spaces."""
    left = len(text) - MAX_TEXT
    shown = text if left <= 0 else f"{text[:MAX_TEXT]}\n[… {left:,} more characters are not shown]"
    aside = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<section class="jl-text"><h4>{escape(title)}{aside}</h4><div class="jl-raw">{escape(shown)}</div></section>'
    )


def side_by_side(blocks: Iterable[str]) -> str:
    """Render blocks in columns, which are stacked on narrow screens."""
    return f'<div class="jl-columns">{"".join(blocks)}</div>'


def panel(*parts: str, title: str = "") -> str:
    """Render a box with an optional title."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<section class="jl-panel">{heading}{"".join(parts)}</section>'


def verdict(sentence: str, *rest: str) -> str:
    """Render a verdict and its details, which screen readers announce."""
    return f'<div class="jl-verdict" role="status"><p class="jl-lead">{escape(sentence)}</p>{sentences(rest)}</div>'


def sentences(lines: Iterable[str]) -> str:
    """Render each non-empty line as a paragraph."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


def notice(*lines: str) -> str:
    """Render a highlighted note."""
    return f'<div class="jl-notice">{sentences(lines)}</div>'


def folded(text: str, *, title: str) -> str:
    """Render a text that is hidden until its title is clicked."""
    return f'<details class="jl-folded"><summary>{escape(title)}</summary><p>{escape(text)}</p></details>'


def alert(error: JudgelmError | str) -> str:
    """Render an error with a hint on what to do."""
    way_out = next((words for kind, words in _WAYS_OUT if isinstance(error, kind)), "")
    return f'<div class="jl-alert" role="alert">{sentences([str(error), way_out])}</div>'


def busy(words: str) -> str:
    """Render a progress message."""
    return f'<p class="jl-busy" role="status">{escape(words)}</p>'


def partial_text(text: str, *, title: str) -> str:
    """Render a text that is still being generated."""
    return (
        f'<section class="jl-text jl-writing"><h4>{escape(title)}</h4>'
        f'<div class="jl-raw">{escape(text)}<span class="jl-cursor" aria-hidden="true"></span></div></section>'
    )
