"""Formulas as MathML, made when the site is built: no script, nothing to load. A hook of mkdocs (`mkdocs.yml`)."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(page_html: str, **_: Any) -> str:
    """Replace what pymdownx.arithmatex marked as formulas."""
    return _FORMULA.sub(_mathml, page_html)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]).strip(), display=display)
