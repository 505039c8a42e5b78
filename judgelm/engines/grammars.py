"""Compile grammars with llguidance, and check replies against them."""

import json
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import lru_cache
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from judgelm.errors import GrammarError, first_line
from judgelm.jsonl import parse_json
from judgelm.records import FinishReason, Grammar, Sampling

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

MAX_GRAMMAR_BYTES = 1 << 16
COMPILE_TIMEOUT_S = 2.0
_MAX_DEPTH = 64
_MAX_REPEATS = 10_000
"""Maximum sum of all repetition counts. For `maxItems` of 10^9, llguidance uses all memory, whatever its limits."""
_MAX_CACHED = 64
_MAX_LEXER_STATES = 50_000
_MAX_SHOWN = 200
_NAMES = {"regex": "regular expression", "json_schema": "JSON schema"}
_QUOTED = {"regex": re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL), "json_schema": re.compile(r'"(?:\\.|[^"\\])*"')}
_BRACKETS = {"regex": "()", "json_schema": "{[]}"}
_ONE_LINE = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""llguidance would otherwise allow any number of blanks, which weak models write until the reply is full."""
_COUNT = re.compile(r"\{(\d*),?(\d*)\}")


class CompiledGrammar:
    """A grammar that a thread compiles. Threads that take too long are abandoned."""

    def __init__(self, grammar: Grammar, tokenizer: "Callable[[], LLTokenizer]", *, one_line: bool) -> None:
        self._grammar = grammar
        self._one_line = one_line
        self._tokenizer = tokenizer
        self._began = math.inf
        self._matcher: Future[LLMatcher] = Future()
        Thread(target=self._run, daemon=True).start()

    def matcher(self, timeout_s: float) -> "LLMatcher | None":
        """Return a new matcher, or None if the grammar is not compiled within `timeout_s` seconds.

        Raises:
            GrammarError: if the grammar is invalid, or takes longer than `COMPILE_TIMEOUT_S` to compile.
        """
        wait([self._matcher], timeout_s)
        if self._matcher.done():
            return self._matcher.result().deep_copy()
        if time.monotonic() - self._began > COMPILE_TIMEOUT_S:
            raise _unusable(self._grammar, f"it takes longer than {COMPILE_TIMEOUT_S:g} s to compile")
        return None

    def _run(self) -> None:
        try:
            tokenizer = self._tokenizer()
            self._began = time.monotonic()
            self._matcher.set_result(_compile(normalized(self._grammar, one_line=self._one_line), tokenizer))
        except GrammarError as error:
            self._matcher.set_exception(error)
        except BaseException as error:  # including panics in Rust
            self._matcher.set_exception(_unusable(self._grammar, first_line(error)))


class GrammarCompiler:
    """Compiles grammars for one tokenizer, whose table is built for the first grammar. See `normalized`."""

    def __init__(self, make_tokenizer: "Callable[[], LLTokenizer]", *, one_line: bool = True) -> None:
        self._make_tokenizer = make_tokenizer
        self._lock = Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled = lru_cache(_MAX_CACHED)(
            lambda grammar: CompiledGrammar(grammar, self._table, one_line=one_line)
        )

    def start(self, grammar: Grammar) -> CompiledGrammar:
        """Compile a grammar in the background, unless it is in the cache. Raises GrammarError if it is too large."""
        _check_size(grammar)
        return self._compiled(grammar)

    def _table(self) -> "LLTokenizer":
        with self._lock:
            self._tokenizer = self._tokenizer or self._make_tokenizer()
            return self._tokenizer


def _byte_tokenizer() -> "LLTokenizer":
    from llguidance import LLTokenizer  # importing it takes a tenth of a second

    return LLTokenizer("byte")


_OF_BYTES = GrammarCompiler(_byte_tokenizer, one_line=False)


def check_grammar(grammar: Grammar) -> None:
    """Raise a GrammarError if a grammar is invalid, too large, or slow to compile. Results are cached."""
    _byte_matcher(grammar)


def follows(grammar: Grammar, text: str, *, whole: bool = True) -> bool:
    """Return True if a text matches a grammar or, unless `whole` is set, is the beginning of a text that does."""
    for begin in ("", " "):  # some tokenizers drop the first space of a reply
        matcher = _byte_matcher(grammar)
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


def _byte_matcher(grammar: Grammar) -> "LLMatcher":
    compiled = _OF_BYTES.start(grammar)
    while (matcher := compiled.matcher(COMPILE_TIMEOUT_S / 8)) is None:
        pass
    return matcher


def normalized(grammar: Grammar, *, one_line: bool) -> Grammar:
    r"""Restrict `\d`, `\w`, and `\s` to ASCII, and add llguidance's options to a schema, optionally for one line."""
    if grammar.kind == "regex":
        from llguidance import regex_to_lark

        return Grammar("regex", regex_to_lark(grammar.text, "dws"))
    schema = parse_json(grammar.text)
    if isinstance(schema, dict):  # a schema could otherwise ask to ignore keywords that llguidance does not support
        schema["x-guidance"] = _ONE_LINE if one_line else {}
    return Grammar("json_schema", json.dumps(schema))


def _compile(grammar: Grammar, tokenizer: "LLTokenizer") -> "LLMatcher":
    from llguidance import LLMatcher, LLParserLimits

    is_regex = grammar.kind == "regex"
    source = (LLMatcher.grammar_from_regex if is_regex else LLMatcher.grammar_from_json_schema)(grammar.text)
    limits = LLParserLimits(max_lexer_states=_MAX_LEXER_STATES, verbose_errors=False)
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    if not matcher.is_error():
        first = matcher.deep_copy()
        first.compute_bitmask()
        if first.is_error():
            raise _unusable(grammar, mask_failure(first))
        return matcher
    error = matcher.get_error()
    stated = re.search(r"error: (.+)", error) or re.search(r"\(in regex\): (.+)", error)
    raise _unusable(grammar, stated[1] if stated else error.partition("\n")[0])


def mask_failure(matcher: "LLMatcher") -> str:
    """Return the reason why a matcher allows no further token."""
    error = matcher.get_error().partition("\n")[0]
    return "it matches no text" if error.startswith("NoExtension") else error[:_MAX_SHOWN] or "the token is not allowed"


def _unusable(grammar: Grammar, why: str) -> GrammarError:
    return GrammarError(
        f"cannot use the {_NAMES[grammar.kind]}: {why[:_MAX_SHOWN].rstrip('.')}; correct or simplify it"
    )


def _check_size(grammar: Grammar) -> None:
    text = grammar.text
    if (size := len(text.encode(errors="replace"))) > MAX_GRAMMAR_BYTES:
        raise _unusable(grammar, f"it has {size:,} bytes (maximum: {MAX_GRAMMAR_BYTES:,})")
    opening = _BRACKETS[grammar.kind][: len(_BRACKETS[grammar.kind]) // 2]
    depth = deepest = 0
    for bracket in re.findall(f"[{re.escape(_BRACKETS[grammar.kind])}]", _QUOTED[grammar.kind].sub("", text)):
        depth += 1 if bracket in opening else -1
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        raise _unusable(grammar, f"it is nested {deepest} levels deep (maximum: {_MAX_DEPTH})")
    try:
        repeats = _regex_repeats(text) if grammar.kind == "regex" else _schema_repeats(parse_json(text))
    except ValueError as error:
        raise _unusable(grammar, f"it is not valid JSON: {first_line(error)}") from error
    if repeats > _MAX_REPEATS:
        raise _unusable(grammar, f"it repeats parts up to {repeats:,.0f} times (maximum: {_MAX_REPEATS:,})")


def _regex_repeats(regex: str) -> float:
    return sum(float(most or least or 0) for least, most in _COUNT.findall(_QUOTED["regex"].sub("", regex)))


def _schema_repeats(schema: Any) -> float:
    repeats, parts = 0.0, [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            counts = (part.get("minItems"), part.get("maxItems"))
            repeats += sum(float(count) for count in counts if isinstance(count, int | float))
            patterns = (part.get("pattern"), *_keys(part.get("patternProperties")))
            repeats += sum(_regex_repeats(pattern) for pattern in patterns if isinstance(pattern, str))
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return repeats


def _keys(part: Any) -> tuple[Any, ...]:
    return tuple(part) if isinstance(part, dict) else ()
