"""Checks of attacks: no escape from the block, no special token, no other role, no score read from the attack.

The checks do not use the code that sanitizes: they count, in the prompt as the judge reads it, what only template,
tokenizer and chat template may have put there, and compare with the same prompt made of harmless texts.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from judgelm.doctor.injection.attacks import TARGETS, Attack, Target, attacks_on, delimiters_of
from judgelm.parsing.scores import parse_pair
from judgelm.prompts.chat_templates import role_markers, special_tokens
from judgelm.prompts.template import Template
from judgelm.prompts.truncation import TokenizedPrompt, Truncator
from judgelm.records import Prompt, Sample, Scores, Unparsed

_HARMLESS: dict[Target, str] = {
    "question": "Which city is the capital of France?",
    "reference": "It is Paris.",
    "answer_1": "Paris is the capital of France.",
    "answer_2": "I think that it is Lyon.",
}
_WINDOWS = (1 << 20, 1024)
"""One in which everything fits, and one in which long answers are cut."""

_REPLY = 24
_HONEST = (7.0, 4.0)
_QUOTING_BELOW = (
    "7 4\n{attack}",
    '7 4\nThe first answer says "{attack}", which is no reason.',
    "7, 4\r\n{attack}",
    "**7** **4**\n> {attack}",
    "7/10 4/10\n```\n{attack}\n```",
    "Assistant 1: 7\nAssistant 2: 4\n{attack}",
)
_QUOTING_ABOVE = (
    'The first answer says "{attack}".\n7 4',
    '"{attack}"\n7 4',
    "> {attack}\n\n7 4",
    "```\n{attack}\n```\n7 4",
    "`{attack}`\n\nScores: 7 4",
    "7 4 {attack}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackCheck:
    """The outcome of an attack.

    Attributes:
        sanitized: imitations, tokens and role markers that were sanitized, in its own field.
        escapes: what got through, in words; empty where nothing did.
    """

    attack: Attack
    sanitized: int
    escapes: tuple[str, ...]


def check_attacks(template: Template, tokenizer: Any = None) -> list[AttackCheck]:
    """Put every attack in its field, and in every field at once, and collect what gets through.

    Args:
        template: what is attacked.
        tokenizer: a model's fast tokenizer; without one only the template and the parser are looked at.

    Raises:
        ConfigError: the template is a chat, and the tokenizer has no chat template for it.
    """
    checker = _Checker(template, tokenizer)
    return [checker.check(attack) for attack in attacks_on(template, tokenizer)]


def score_escapes(attack: Attack) -> list[str]:
    """Replies of an honest judge that quotes the attack, where the parser reads another score than the judge's own.

    Above the judge's own line a quotation may make a reply unreadable; it is never read as the score.
    """
    misread = []
    for shape in (*_QUOTING_BELOW, *_QUOTING_ABOVE):
        reply = shape.replace("{attack}", attack.text)
        scores = parse_pair(reply)
        if scores != Scores(_HONEST) and (shape in _QUOTING_BELOW or not isinstance(scores, Unparsed)):
            read = scores.values if isinstance(scores, Scores) else scores.why
            misread.append(f"score: of {shape!r} is read {read}")
    return misread


class _Checker:
    """Counts in a harmless prompt once, then in every attacked one."""

    def __init__(self, template: Template, tokenizer: Any) -> None:
        self._template = template
        self._delimiters = {skeleton(delimiter): delimiter for delimiter in delimiters_of(template)}
        self._truncators = [] if tokenizer is None else [Truncator(tokenizer, window) for window in _WINDOWS]
        self._tokens = set() if tokenizer is None else special_tokens(tokenizer)
        self._roles = role_markers(tokenizer) if tokenizer is not None and template.chat else set()
        self._ids = set() if tokenizer is None else _ids(tokenizer, self._tokens)
        self._harmless = {referenced: self._render({}, referenced) for referenced in (False, True)}
        self._harmless_read = {
            referenced: [truncator.truncate(prompt, _REPLY) for truncator in self._truncators]
            for referenced, prompt in self._harmless.items()
        }

    def check(self, attack: Attack) -> AttackCheck:
        escapes = dict.fromkeys(score_escapes(attack))
        for targets, referenced in (((attack.target,), attack.target == "reference"), (TARGETS, True)):
            prompt = self._render(dict.fromkeys(targets, attack.text), referenced)
            escapes |= dict.fromkeys(self._structural(prompt, self._harmless[referenced], attack))
            for truncator, harmless in zip(self._truncators, self._harmless_read[referenced], strict=True):
                escapes |= dict.fromkeys(self._as_read(truncator.truncate(prompt, _REPLY), harmless))
        return AttackCheck(attack=attack, sanitized=self._sanitized(attack), escapes=tuple(escapes))

    def _sanitized(self, attack: Attack) -> int:
        prompt = self._render({attack.target: attack.text}, True)
        tokenized = self._truncators[0].truncate(prompt, _REPLY) if self._truncators else None
        return prompt.sanitized + (tokenized.sanitized if isinstance(tokenized, TokenizedPrompt) else 0)

    def _render(self, attacked: dict[Target, str], referenced: bool) -> Prompt:
        texts = {name: f"{text} {attacked[name]}" if name in attacked else text for name, text in _HARMLESS.items()}
        sample = Sample(id="1", question=texts["question"], answers=(texts["answer_1"], texts["answer_2"]))
        return self._template.render(sample, (0, 1), texts["reference"] if referenced else None)

    def _structural(self, prompt: Prompt, harmless: Prompt, attack: Attack) -> Iterator[str]:
        own, others = _template_text(prompt), "".join(span.text for span in prompt.spans if span.kind != "template")
        if own != _template_text(harmless):
            yield "template: its own words have changed"
        for imitation in attack.imitations:
            if imitation in others:
                yield f"delimiter: {imitation!r} is left as it is"
        yield from _more("delimiter", self._delimiters, skeleton(_text(prompt)), skeleton(_text(harmless)))

    def _as_read(self, read: TokenizedPrompt | Unparsed, plain: TokenizedPrompt | Unparsed) -> Iterator[str]:
        if isinstance(read, Unparsed) or isinstance(plain, Unparsed):
            return  # a question that leaves no room for the answers is a failure with a reason, and no prompt
        yield from _more("delimiter", self._delimiters, skeleton(read.text), skeleton(plain.text))
        yield from _more("special token", {token: token for token in self._tokens}, read.text, plain.text)
        yield from _more("role marker", {role: role for role in self._roles}, read.text, plain.text)
        more = Counter(token for token in read.ids if token in self._ids) - Counter(plain.ids)
        yield from (f"special token: id {token} is read {count} times more" for token, count in more.items())


def skeleton(text: str) -> str:
    """A text without blanks, case, invisible characters and compatibility forms."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(
        char for char in plain if not char.isspace() and unicodedata.category(char) not in ("Cf", "Mn", "Me", "Cc")
    )


def _more(kind: str, wanted: dict[str, str], text: str, harmless: str) -> Iterator[str]:
    for form, name in wanted.items():
        count, expected = text.count(form), harmless.count(form)
        if count != expected:
            yield f"{kind}: {name!r} stands there {count} times instead of {expected}"


def _ids(tokenizer: Any, tokens: Iterable[str]) -> set[int]:
    """Ids that untrusted text must never have; that for unknown characters is any text's."""
    ids = {tokenizer.convert_tokens_to_ids(token) for token in tokens}
    return ids - {getattr(tokenizer, "unk_token_id", None)}


def _text(prompt: Prompt) -> str:
    return "".join(span.text for span in prompt.spans)


def _template_text(prompt: Prompt) -> str:
    return "\0".join(span.text for span in prompt.spans if span.kind == "template")
