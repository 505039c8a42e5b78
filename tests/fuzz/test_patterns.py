"""No regular expression of the package is slow on a text made against it: all of them, each with hundreds of texts.

A pattern that scans to the text's end from each place where it may begin takes time by the square of the length; the
texts repeat what the pattern itself looks for, so that such scans begin everywhere and end nowhere.
"""

import importlib
import pkgutil
import re
from collections import defaultdict
from pathlib import Path
from re import _parser

import pytest

import judgelm
from tests.support.fuzzing import LONGEST, HungError, limited_cpu

UNITS = [" ", "\n", "\t", "\n\n", " \n", "a", "a ", "word ", "A", "1", "1 ", "1.", "1,", "1/", "x1", *'([*_."-/é’<#']
PAIRS = [("1", " "), ("(", " "), ("[", " "), ("a", " "), (" ", "1"), ("the", " ")]
ANYWHERE = {"search", "findall", "finditer", "sub", "subn", "split"}
MAX_LITERALS = 14


def patterns():
    """(pattern, flags) of each that a module holds, and how it is called there."""
    found = defaultdict(set)
    for place in pkgutil.walk_packages(judgelm.__path__, "judgelm."):
        if place.name == "judgelm.__main__":
            continue
        module = importlib.import_module(place.name)
        source = Path(module.__file__).read_text(encoding="utf-8")
        for name, value in vars(module).items():
            for pattern in held(value):
                found[pattern.pattern, pattern.flags] |= methods(name, source)
    return found


def held(value, depth=0):
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif depth < 4 and isinstance(value, dict | list | tuple | set | frozenset):
        for one in value.values() if isinstance(value, dict) else value:
            yield from held(one, depth + 1)


def literals(pattern):
    """The runs of fixed characters in a pattern, the longest first."""
    found = set()

    def walk(tree):
        run = ""
        for kind, what in tree:
            if str(kind) == "LITERAL":
                run += chr(what)
                continue
            found.add(run)
            run = ""
            for inner in what if isinstance(what, tuple | list) else [what]:
                for one in inner if isinstance(inner, list) else [inner]:
                    if isinstance(one, _parser.SubPattern):
                        walk(one)
                    elif isinstance(one, tuple) and str(one[0]) == "LITERAL":
                        found.add(chr(one[1]))
        found.add(run)

    walk(_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    return sorted(found - {""}, key=lambda run: (-len(run), run))[:MAX_LITERALS]


def texts(pattern):
    """Texts of `LONGEST` characters that repeat what the pattern looks for."""
    own = literals(pattern)
    yield from (filled(one) for one in (*UNITS, *own))
    for one in own:
        for other in (*UNITS, *own):
            yield one + filled(other)
            yield filled(one + other)
    yield from (one + filled(other) + "x" for one, other in PAIRS)


def filled(unit):
    return (unit * (LONGEST // len(unit) + 1))[:LONGEST]


def methods(name, source):
    """How a module's code calls it; anything is possible where that cannot be seen, unless it is there for others."""
    called = set(re.findall(rf"\b{name}\.([a-z]+)\(", source))
    if called & ANYWHERE or (not called and name.startswith("_")):
        called.add("search")
    return called & {"search", "match", "fullmatch"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_pattern_is_slow_on_any_text():
    slow, tried = [], 0
    for (written, flags), called in patterns().items():
        pattern = re.compile(written, flags)
        for method in sorted(called):
            for text in texts(pattern):
                tried += 1
                try:
                    with limited_cpu():
                        getattr(pattern, method)(text)
                except HungError:
                    slow.append(f"{method} of {written!r}: {text[:30]!r}...")
                    break
    assert tried > 50_000
    assert slow == []


def test_a_slow_pattern_is_found():
    pattern = re.compile(r"<b>\s*(?:x|\s)*</b>")
    assert "<b>" in literals(pattern)
    assert any(text.startswith("<b> ") for text in texts(pattern))
    assert methods("_A", "_A.match(text) or _A.sub('', text)") == {"match", "search"}
    assert methods("_RULES", "any(rule.search(text) for rule in _RULES)") == {"search"}
