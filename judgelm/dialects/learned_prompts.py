"""Records prompts that the server does not recognise, and suggests prompt file entries for them."""

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from judgelm.bounds import read_text
from judgelm.dialects.contract import ChatRequest, digest
from judgelm.errors import ConfigError
from judgelm.prompts.judge_prompt import PromptMessage, literal_text

log = logging.getLogger("judgelm.dialects")
MAX_LEARNED = 200
_MAX_CHARACTERS = 100_000
_MIN_SHARED = 30
_MIN_SHARE = 0.6
"""Share of a prompt that must occur in another one if its end does not occur in any other."""
_NEAR = 80
"""Search this many characters before a slot for its name."""

_ANSWER = r"\b(?:response|answer|output|assistant|reply|completion|candidate|submission|model)\w*\W{0,3}"
_NAMED = tuple(
    (name, re.compile(pattern, re.I))
    for name, pattern in {
        "question": r"\b(?:question|instruction|prompt|query|input|ticket|task|user)\b",
        "answer": _ANSWER,
        "answer_1": _ANSWER + r"(?:a|1|one)\b",
        "answer_2": _ANSWER + r"(?:b|2|two)\b",
        "reference": r"\b(?:reference|gold|ground truth|expected)\b.{0,12}",
        "criterion": r"\b(?:criteri\w+|rubric)\b",
    }.items()
)
_PIECE = re.compile(r"^[^:\n]{1,40}:[ \t]?|<[^<>\n]{1,40}>|[^\n<]+|\n|<", re.M)

_BEFORE_SLOT = re.compile(r".*[>\])}\"'`=|]\s*", re.S)
_AFTER_SLOT = re.compile(r"\s*[<\[\"'`|].*", re.S)
"""Cut common prefixes and suffixes at a punctuation mark, so that words are not split."""


def shared_parts(texts: Sequence[str]) -> list[str]:
    """Return the text parts that all texts have in common, in order. The texts are compared line by line."""
    rows = [_PIECE.findall(text) for text in texts]
    parts, begins = [""], [0] * len(rows)
    for run in [*_common_runs(rows), [tuple(map(len, rows))]]:
        gaps = ["".join(row[begin:end]) for row, begin, end in zip(rows, begins, run[0], strict=True)]
        fixed = "".join(rows[0][run[0][0] : run[-1][0] + 1])
        if any(gaps):
            before, behind = _marked_ends(gaps)
            parts[-1] += before
            parts.append(behind + fixed)
        else:
            parts[-1] += fixed
        begins = [place + 1 for place in run[-1]]
    return parts


def _common_runs(rows: Sequence[Sequence[str]]) -> list[list[tuple[int, ...]]]:
    places: list[tuple[int, ...]] = [(index,) for index in range(len(rows[0]))]
    for row in rows[1:]:
        pieces = [rows[0][place[0]] for place in places]
        blocks = SequenceMatcher(None, pieces, row).get_matching_blocks()
        places = [(*places[block.a + k], block.b + k) for block in blocks for k in range(block.size)]
    runs: list[list[tuple[int, ...]]] = []
    for place in places:
        if runs and all(before + 1 == now for before, now in zip(runs[-1][-1], place, strict=True)):
            runs[-1].append(place)
        else:
            runs.append([place])
    return [run for run in runs if any(re.search(r"\w", rows[0][place[0]]) for place in run)]


def _marked_ends(texts: Sequence[str]) -> tuple[str, str]:
    before = _BEFORE_SLOT.match(_common_start(texts))
    rest = [text[len(before[0]) if before else 0 :] for text in texts]
    behind = _AFTER_SLOT.search(_common_start([text[::-1] for text in rest])[::-1])
    return before[0] if before else "", behind[0] if behind else ""


def _common_start(texts: Sequence[str]) -> str:
    columns = zip(*texts, strict=False)
    return "".join(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))


class LearnedPrompts:
    """Records unrecognised prompts as JSON lines for `suggested_prompts`, except duplicates and very long prompts.

    Raises:
        ConfigError: the file cannot be opened, or was not written by `--learn`.
    """

    def __init__(self, path: Path) -> None:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot write to the file: {error.strerror}; choose a different file for --learn"
            ) from error
        self._path = path
        self._known = {digest(repr(messages)) for messages in read_learned(path)}

    def __call__(self, request: ChatRequest) -> None:
        """Record the prompt of a request."""
        messages = tuple(PromptMessage(role=message.role, text=message.text) for message in request.messages)
        key, size = digest(repr(messages)), sum(len(message.text) for message in messages)
        if key in self._known or len(self._known) >= MAX_LEARNED or size > _MAX_CHARACTERS:
            return
        self._known.add(key)
        row = {"messages": [{"role": message.role, "text": message.text} for message in messages]}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        except OSError as error:  # for example, the disk is full; the request still succeeds
            log.error("--learn %s: %s", self._path, error)


def read_learned(path: Path) -> list[tuple[PromptMessage, ...]]:
    """Read recorded prompts. Raise ConfigError if the file cannot be read or was not written by `--learn`."""
    try:
        rows = [json.loads(line)["messages"] for line in read_text(path).splitlines()]
        return [tuple(PromptMessage(**message) for message in row) for row in rows]
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror}; expected a file written by serve --learn") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: not a file written by serve --learn ({error}); choose a different file") from error


def suggested_prompts(prompts: Sequence[Sequence[PromptMessage]]) -> list[dict[str, Any]]:
    """Suggest a prompt file entry for each kind of prompt. The user must check the entries.

    Prompts are of the same kind if they have the same roles, begin and end with the same fixed text, and share more of
    it. Prompts of different clients may share a sentence, or judge the same texts. Slots are named after the preceding
    words.
    """
    pieces = [_pieces_of(prompt) for prompt in prompts]
    counts = Counter(piece for prompt in pieces for piece in {*prompt})
    kinds: dict[tuple[object, ...], list[list[int]]] = {}
    for index, prompt in enumerate(prompts):
        frame = tuple(piece if counts[piece] > 1 else None for piece in (*pieces[index][:1], *pieces[index][-1:]))
        framed = kinds.setdefault((*(message.role for message in prompt), *frame), [])
        least = 0.0 if frame and frame[-1] is not None else _MIN_SHARE * sum(map(len, pieces[index]))
        kind = next(
            (kind for kind in framed if _shared(pieces[kind[0]], pieces[index]) >= max(_MIN_SHARED, least)), None
        )
        framed.append([index]) if kind is None else kind.append(index)
    named = sorted(kind for framed in kinds.values() for kind in framed if len(kind) > 1)
    return [_suggested([prompts[index] for index in kind], f"prompt-{number}") for number, kind in enumerate(named, 1)]


def _pieces_of(prompt: Sequence[PromptMessage]) -> list[str]:
    pieces = (piece for message in prompt for piece in _PIECE.findall(message.text.strip()))
    return [piece for piece in pieces if re.search(r"\w", piece)]


def _shared(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(map(len, {*first} & {*second}))


def _suggested(kind: Sequence[Sequence[PromptMessage]], name: str) -> dict[str, Any]:
    columns = [[message.text.strip() for message in column] for column in zip(*kind, strict=True)]
    named: list[str] = []
    messages = []
    for message, column in zip(kind[0], columns, strict=True):
        first, *rest = shared_parts(column)
        text, before = literal_text(first), first
        for anchor in rest:
            named.append(_slot_name(before, named))
            text += f"{{{named[-1]}}}{literal_text(anchor)}"
            before = anchor
        messages.append({"role": message.role, "text": text})
    whole = "\n".join(message["text"] for message in messages)
    return {"name": name, "prompt": messages, "reply": _suggested_reply(whole, named)}


def _slot_name(before: str, taken: Sequence[str]) -> str:
    words = before[-_NEAR:]
    matches = [(match.end(), name) for name, pattern in _NAMED for match in pattern.finditer(words)]
    name = max(matches, default=(0, f"text_{len(taken) + 1}"))[1]
    return name if name not in taken else f"text_{len(taken) + 1}"


def _suggested_reply(text: str, slots: Sequence[str]) -> dict[str, Any]:
    brackets = "[[{verdict}]]" if "[[" in text else "{verdict}"
    if "answer_2" in slots:
        tie = {"tie": "C"} if "[[C]]" in text else {}
        return {"pair": {"first": "A", "second": "B"} | tie, "text": f"{{reason}}\n{brackets}"}
    scale = re.search(r"\b(\d+)\s*(?:to|-|–|and)\s*(\d+)\b", text)
    return {"grade": [int(scale[1]), int(scale[2])] if scale else [1, 10], "text": f"{{reason}}\n{brackets}"}


def written(prompts: Sequence[Mapping[str, Any]]) -> str:
    """Return prompt file entries as YAML, with multi-line strings in block style."""

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(list(prompts), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000)
