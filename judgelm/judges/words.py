"""The words of released judges' prompts, cut out of the files in which their authors publish them.

judgelm ships none of these words: a card names the file at a fixed revision, its sha256, its licence and where the
words stand in it. The file is read from the cache; it comes there by a download, where a licence allows to use it, or
from a copy that the user has. No code of such a file is ever run.
"""

import ast
import hashlib
import textwrap
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from judgelm.engines.model_cache import cache_root
from judgelm.errors import CardError, InputError, ModelError, RunError
from judgelm.yaml_files import parse_yaml

_TIMEOUT_S = 30
_GITHUB, _GITHUB_RAW = "https://github.com/", "https://raw.githubusercontent.com/"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsFile:
    """A file of a judge's authors.

    Attributes:
        url: its page, at a fixed revision.
        sha256: of its bytes, hex.
        licence: SPDX identifier of what it is published under; empty where its authors state none. Then judgelm does
            not download it: the user brings it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    url: str
    sha256: str
    licence: str = ""

    @property
    def raw_url(self) -> str:
        """The address of the bytes behind a GitHub page; another address is that of the bytes."""
        return self.url.replace(_GITHUB, _GITHUB_RAW, 1).replace("/blob/", "/", 1)

    @property
    def path(self) -> Path:
        """Where the cache has it."""
        return cache_root() / "words" / self.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    r"""Where words stand in a file: at one of `constant`, `key` and `between`, else they are the whole file.

    Attributes:
        constant: name of a text in Python code: an assignment, or a function that returns it.
        key: of a YAML file.
        between: the texts before and behind the words.
        escaped: how many times over they are written as in the text of a program or of JSON, `\n` for a line's end.
        which: which of several, from 0.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    constant: str = ""
    key: str = ""
    between: tuple[str, str] | None = None
    escaped: int = 0
    which: int = 0


def read_words(file: WordsFile) -> str:
    """The text of a file: from the cache, or downloaded into it.

    Raises:
        ModelError: it is not in the cache, and has no licence or cannot be downloaded; the message says what to bring.
        CardError: the downloaded bytes are others than the card's.
        RunError: the cache cannot be written.
    """
    if not file.path.is_file():
        if not file.licence:
            raise ModelError(
                f"the prompt's words are in {file.url}, for which its authors state no licence; get that file and "
                "bring it by: judgelm judges words NAME --from FILE"
            )
        keep_words(file, _download(file), origin=file.raw_url)
    return file.path.read_text(encoding="utf-8")


def bring_words(files: list[WordsFile], copy: Path) -> int:
    """Take files from a copy that the user has: one file, or a folder with them anywhere in it; how many were new.

    Raises:
        InputError: none of them is there.
        RunError: the cache cannot be written.
    """
    candidates = [copy] if copy.is_file() else [path for path in copy.rglob("*") if path.is_file()]
    names = {Path(file.url).name for file in files}
    by_hash = {
        hashlib.sha256(content).hexdigest(): content
        for path in candidates
        if copy.is_file() or path.name in names
        for content in [path.read_bytes()]
    }
    held = [file for file in files if file.sha256 in by_hash]
    if not held:
        wanted = "; ".join(f"{file.url} (sha256 {file.sha256[:12]})" for file in files)
        raise InputError(f"{copy}: holds none of the files that this judge needs: {wanted}")
    for file in held:
        keep_words(file, by_hash[file.sha256], origin=str(copy))
    return len(held)


def keep_words(file: WordsFile, content: bytes, *, origin: str) -> None:
    """Write a file into the cache.

    Raises:
        CardError: its bytes are others than the card's.
        RunError: the cache cannot be written.
    """
    if (digest := hashlib.sha256(content).hexdigest()) != file.sha256:
        raise CardError(f"{origin}: has sha256 {digest[:12]}, and the card states {file.sha256[:12]}; nothing was used")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        partial = file.path.with_suffix(".part")
        partial.write_bytes(content)
        partial.replace(file.path)
    except OSError as error:
        raise RunError(f"{file.path}: cannot write: {error.strerror or error}") from error


def cut(text: str, where: Cut, *, location: str) -> str:
    """The words in a file's text.

    Args:
        text: of the file.
        where: they stand.
        location: names the file in errors.

    Raises:
        CardError: there are none.
    """
    if where.constant:
        texts = _constants(text, where.constant)
    elif where.key:
        value = parse_yaml(text).get(where.key)
        texts = [value] if isinstance(value, str) else []
    else:
        texts = [text] if where.between is None else _between(text, *where.between)
    if where.which >= len(texts):
        raise CardError(f"{location}: no words at {where.constant or where.key or where.between}; the card is wrong")
    words = texts[where.which]
    for _ in range(where.escaped):
        words = _unescaped(words)
    return words


def _download(file: WordsFile) -> bytes:
    try:
        with urllib.request.urlopen(file.raw_url, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ModelError(
            f"{file.raw_url}: cannot download the prompt's words ({file.licence}): {reason}; get the file on another "
            "machine and bring it by: judgelm judges words NAME --from FILE"
        ) from error
    return content


def _unescaped(words: str) -> str:
    literal: str = ast.literal_eval('"""' + words.replace('"""', '\\"\\"\\"') + '\n"""')
    return literal[:-1]


def _between(text: str, before: str, after: str) -> list[str]:
    texts: list[str] = []
    position = 0
    while (start := text.find(before, position)) >= 0:
        start += len(before)
        end = text.find(after, start)
        if end < 0:
            break
        texts.append(text[start:end])
        position = end
    return texts


def _constants(code: str, name: str) -> list[str]:
    """The texts that a name is given, in order."""
    texts: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(code)):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            value = node.value
        elif isinstance(node, ast.FunctionDef) and node.name == name and isinstance(node.body[-1], ast.Return):
            value = node.body[-1].value
        if value is not None and (text := _text_of(value)) is not None:
            texts.append((value.lineno, text))
    return [text for _, text in sorted(texts)]


def _text_of(node: ast.expr) -> str | None:
    """The text of an expression of constants, sums, `textwrap.dedent(...)` and `....strip()`; None for any other.

    In an f-string the names stay in their braces.
    """
    match node:
        case ast.JoinedStr(values=values):
            return "".join(
                f"{{{ast.unparse(value.value)}}}" if isinstance(value, ast.FormattedValue) else _text_of(value) or ""
                for value in values
            )
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = (_text_of(left), _text_of(right))
            return None if None in parts else "".join(part for part in parts if part)
        case ast.Call(func=ast.Attribute(attr="strip", value=inner), args=[]):
            return None if (inside := _text_of(inner)) is None else inside.strip()
        case ast.Call(func=ast.Attribute(attr="dedent") | ast.Name(id="dedent"), args=[inner]):
            return None if (inside := _text_of(inner)) is None else textwrap.dedent(inside)
    return None
