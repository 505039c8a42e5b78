"""Compile grammars with llguidance, and check replies against them.

A new grammar is first compiled in a process of its own (`python -m judgelm.engines.grammars`). llguidance has limits,
but some schemas still exhaust the memory, take minutes, or overflow the stack, which would end this process.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from judgelm.errors import GrammarError, first_line
from judgelm.jsonl import parse_json
from judgelm.records import FinishReason, Grammar, Sampling

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_GRAMMAR_BYTES = 1 << 16
_MAX_REPEATS = 10_000
"""Maximum sum of all repetition counts. With `a{100000}`, each token takes 0.15 s."""
_MAX_CPU_S = 2
_MAX_MEMORY = 1 << 30
_MAX_STACK = 2 << 20
_TIMEOUT_S = 30.0
_ROOT = str(Path(__file__).parents[2])
_MAX_CACHED = 64
_MAX_LEXER_STATES = 50_000
_MAX_SHOWN = 200
_NAMES = {"regex": "regular expression", "json_schema": "JSON schema"}
_COUNT = re.compile(r'(?:\{(?:\d*,)?|"(?:min|max)Items": )(\d+)')
_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""llguidance would otherwise allow any number of blanks, which weak models write until the reply is full."""


def check_grammar(grammar: Grammar) -> None:
    """Raise a GrammarError if a grammar is invalid, too large, or takes more than 2 s to compile. Results are cached.

    The first check of a grammar takes a fraction of a second.
    """
    if (error := _error(grammar)) is not None:
        raise GrammarError(error)


def refusal(sampling: Sampling) -> str:
    """Return the error of `check_grammar`, or an empty string."""
    return "" if sampling.grammar is None else _error(sampling.grammar) or ""


def follows(grammar: Grammar, text: str, *, whole: bool = True) -> bool:
    """Return True if a text matches a grammar or, unless `whole` is set, is the beginning of a text that does."""
    for begin in ("", " "):  # some tokenizers drop the first space of a reply
        matcher = _byte_matcher(grammar).deep_copy()
        ids = list((begin + (text if whole else text.rstrip("\ufffd"))).encode(errors="replace"))
        if matcher.try_consume_tokens(ids) == len(ids) and (matcher.is_accepting() or not whole):
            return True
    return False


def mismatch(sampling: Sampling, text: str, reason: FinishReason | None) -> str:
    """Return an error if a backend ignored the grammar or stopped before the reply was complete, or an empty string."""
    if sampling.grammar is None or reason not in (None, "stop", "length"):
        return ""
    whole = reason != "length" and not sampling.stop  # stop strings cut replies
    return "" if follows(sampling.grammar, text, whole=whole) else "the reply does not match the grammar"


class GrammarCompiler:
    """Compiles grammars in the background for one tokenizer, whose table is built for the first grammar."""

    def __init__(self, make_tokenizer: "Callable[[], LLTokenizer]") -> None:
        self._make_tokenizer = make_tokenizer
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self.start: Callable[[Grammar], Future[LLMatcher]] = lru_cache(_MAX_CACHED)(self._start)
        """Start to compile a grammar, unless it is cached. Copy the result. All errors are GrammarErrors."""

    def _start(self, grammar: Grammar) -> "Future[LLMatcher]":
        result: Future[LLMatcher] = Future()
        threading.Thread(target=self._run, args=(grammar, result), daemon=True).start()
        return result

    def _run(self, grammar: Grammar, result: "Future[LLMatcher]") -> None:
        try:
            check_grammar(grammar)
            with self._lock:
                self._tokenizer = self._tokenizer or self._make_tokenizer()
            result.set_result(_compile(normalized(grammar, one_line=True), self._tokenizer))
        except BaseException as error:  # including panics in Rust
            known = isinstance(error, GrammarError)
            result.set_exception(error if known else GrammarError(_unusable(grammar, first_line(error))))


def normalized(grammar: Grammar, *, one_line: bool) -> Grammar:
    r"""Restrict `\d`, `\w`, and `\s` to ASCII, and add llguidance's options to a schema, optionally for one line."""
    if grammar.kind == "regex":
        from llguidance import regex_to_lark  # importing it takes a tenth of a second

        return Grammar("regex", regex_to_lark(grammar.text, "dws"))
    schema = parse_json(grammar.text)
    if isinstance(schema, dict):  # a schema could otherwise ask to ignore keywords that llguidance does not support
        schema["x-guidance"] = _ONE_LINE if one_line else {}
    return Grammar("json_schema", json.dumps(schema))


def matcher_error(matcher: "LLMatcher") -> str:
    """Return the reason why a matcher cannot continue."""
    error = matcher.get_error()
    stated = re.search(r"error: (.+)", error) or re.search(r"\(in regex\): (.+)", error)
    why = stated[1] if stated else error.partition("\n")[0]
    return "it matches no text" if why.startswith("NoExtension") else why or "the token is not allowed"


@lru_cache(_MAX_CACHED)
def _error(grammar: Grammar) -> str | None:
    if (size := len(grammar.text.encode(errors="replace"))) > MAX_GRAMMAR_BYTES:
        return _unusable(grammar, f"it has {size:,} bytes (maximum: {MAX_GRAMMAR_BYTES:,})")
    try:
        plain = normalized(grammar, one_line=False)
    except ValueError as error:
        return _unusable(grammar, f"it is invalid: {first_line(error)}")
    if (repeats := sum(map(float, _COUNT.findall(plain.text)))) > _MAX_REPEATS:
        return _unusable(grammar, f"it repeats parts up to {repeats:,.0f} times (maximum: {_MAX_REPEATS:,})")
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "judgelm.engines.grammars"],
            input=json.dumps([plain.kind, plain.text]).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))},
        )
    except subprocess.TimeoutExpired:
        return _unusable(grammar, "it takes too long to compile")
    if not process.stdout:  # ended by the system
        return _unusable(grammar, f"compiling it takes more than {_MAX_CPU_S} s, or too much memory")
    why: str | None = json.loads(process.stdout)
    return None if why is None else _unusable(grammar, why)


@lru_cache(_MAX_CACHED)
def _byte_matcher(grammar: Grammar) -> "LLMatcher":
    from llguidance import LLTokenizer

    check_grammar(grammar)
    return _compile(normalized(grammar, one_line=False), LLTokenizer("byte"))


def _compile(grammar: Grammar, tokenizer: "LLTokenizer") -> "LLMatcher":
    from llguidance import LLMatcher, LLParserLimits

    is_regex = grammar.kind == "regex"
    source = (LLMatcher.grammar_from_regex if is_regex else LLMatcher.grammar_from_json_schema)(grammar.text)
    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    first = matcher.deep_copy()
    first.compute_bitmask()  # also finds grammars that match no text
    if first.is_error():
        raise GrammarError(matcher_error(first))
    return matcher


def _unusable(grammar: Grammar, why: str) -> str:
    return f"cannot use the {_NAMES[grammar.kind]}: {why[:_MAX_SHOWN].rstrip('.')}; correct or simplify it"


def _compile_input() -> None:
    """Compile the grammar in the standard input for bytes, and print the error or null."""
    from llguidance import LLTokenizer

    error = None
    try:
        _compile(Grammar(*json.load(sys.stdin)), LLTokenizer("byte"))
    except (GrammarError, ValueError) as invalid:
        error = first_line(invalid)
    json.dump(error, sys.stdout)


if __name__ == "__main__":
    import resource  # not on Windows

    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _MAX_CPU_S),
        (resource.RLIMIT_AS, _MAX_MEMORY),
    ):
        with suppress(ValueError, OSError):  # macOS does not limit the address space
            resource.setrlimit(limit, (value, value))
    threading.stack_size(_MAX_STACK)  # grammars that need more could end the process that uses them
    thread = threading.Thread(target=_compile_input)
    thread.start()
    thread.join()
