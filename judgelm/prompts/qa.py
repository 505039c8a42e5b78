"""The prompts of QA correctness: whether a predicted answer says what the gold answer says.

`qa-6-shot` is the paper's own (Table 9), with two of its six examples ours. The other variants of section 6.3 are named
there and not printed, so their bytes are ours: fewer examples, no context (nor the sentences that send to it), other
words, and all of these together, so also zero-shot without context, which the paper recommends and did not run.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, get_args

from judgelm.errors import ConfigError
from judgelm.prompts.qa_examples import EXAMPLES, QaExample
from judgelm.prompts.sanitization import Sanitizer
from judgelm.records import Prompt, Span, SpanKind

Wording = Literal["paper", "reworded"]
Shots = Literal[0, 2, 6]

SYSTEM = "You are an expert in question answering systems."

_SLOT = re.compile(r"\{(question|gold|predicted|context)\}")
_TEMPLATE: SpanKind = "template"
# Context is never cut, as no question is: what decides an ambiguous case could stand at its end.
_KINDS: dict[str, SpanKind] = {
    "question": "question",
    "gold": "reference",
    "predicted": "answer",
    "context": "question",
}


@dataclass(frozen=True, kw_only=True)
class QaTemplate:
    """A prompt with places for a question, its gold and predicted answer, and its context.

    Attributes:
        id: the name that manifests keep.
        text: what the user says, with `{question}` and the like.
        plain_ending: opens the reply where no chat template does.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
    """

    id: str
    text: str
    plain_ending: str
    delimiters: tuple[str, ...]

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """Sanitizes confusables of the delimiters."""
        return Sanitizer(self.delimiters)

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over id and all bytes of the chat and of the plain prompt."""
        texts = {"id": self.id, "system": SYSTEM, "text": self.text, "plain_ending": self.plain_ending}
        return hashlib.sha256(json.dumps(texts, ensure_ascii=False, sort_keys=True).encode()).hexdigest()

    def render(self, values: Mapping[str, str], *, chat: bool = True) -> Prompt:
        """The prompt with its places filled.

        Args:
            values: by the name of the place.
            chat: as a system and a user message; else as plain text, for models without a chat template (ours).

        Raises:
            ValueError: a place has no value.
        """
        pieces = _SLOT.split(self.text)
        if missing := sorted(set(pieces[1::2]) - values.keys()):
            raise ValueError(f"template {self.id}: no value for {', '.join(missing)}")
        spans = [Span(SYSTEM, "template", "system") if chat else Span(f"{SYSTEM}\n\n")]
        sanitized = 0
        for place, piece in enumerate(pieces):
            text, kind = piece, _TEMPLATE
            if place % 2:
                text, found = self.sanitizer(values[piece])
                sanitized, kind = sanitized + found, _KINDS[piece]
            if text or place % 2:
                spans.append(Span(text, kind, "user" if chat else None))
        if not chat:
            spans.append(Span(self.plain_ending))
        return Prompt(spans=tuple(spans), chat=chat, sanitized=sanitized)


_DELIMITERS = (
    *("<ans>", "</ans>", "* Question:", "* Gold Answer:", "* Predicted Answer:", "* Context:", "* Label:"),
    *("Here is your task:", "Example {n}:"),
)

_PAPER = """\
Your job is to evaluate a predicted answer by comparing it against the gold answer and the given question.
{refer}
Grading Criteria:
* CORRECT: The predicted answer matches the gold answer or is a valid alternative (e.g., different but correct ways of \
writing a name).
* INCORRECT: The predicted answer is wrong or does not align with the gold answer.
{ambiguous}
Response Format:
Please format your answer within brackets as follows: <ans> Your Answer </ans>

{examples}Here is your task:
* Question: {question}
* Gold Answer: {gold}
* Predicted Answer: {predicted}"""

_REWORDED = """\
Decide whether a system's answer to a question says the same as the answer that is known to be right.
{refer}
Choose one of two labels:
* CORRECT: the predicted answer gives what the gold answer gives, be it in other words or in another valid form (e.g., \
a name spelled differently).
* INCORRECT: the predicted answer gives something else, or does not answer the question.
{ambiguous}
How to reply:
Write the label, and nothing but the label, between the two tags: <ans> Your Answer </ans>

{examples}Here is your task:
* Question: {question}
* Gold Answer: {gold}
* Predicted Answer: {predicted}"""

_TEXTS = {"paper": _PAPER, "reworded": _REWORDED}
_REFER = {
    "paper": "You may refer to the provided context if needed.\n",
    "reworded": "The context that the question was asked about is given as well; use it where it helps.\n",
}
_AMBIGUOUS = {
    "paper": "* In some ambiguous cases, where it is unclear whether the predicted answer is correct or not, please "
    "refer to the provided context and use it as the final source for making your judgment.\n",
    "reworded": "* Where the two answers alone do not settle it, the context has the last word.\n",
}


def qa_template_id(shots: Shots, with_context: bool, wording: Wording) -> str:
    """The id of a variant, such as `qa-0-shot-no-context`."""
    return f"qa-{shots}-shot{'' if with_context else '-no-context'}{'' if wording == 'paper' else f'-{wording}'}"


@cache
def qa_template(shots: Shots, with_context: bool, wording: Wording = "paper") -> QaTemplate:
    """The judge's prompt in one of its variants.

    Raises:
        ConfigError: there are no such shots, or no such wording.

    Source: QA-Judge, Table 9 and section 6.3.
    """
    if shots not in EXAMPLES:
        raise ConfigError(f"shots is {shots}; there are: {', '.join(map(str, EXAMPLES))}")
    if wording not in get_args(Wording):
        raise ConfigError(f"wording {wording!r} does not exist; there are: {', '.join(get_args(Wording))}")
    shown = "".join(_example(number, one) for number, one in enumerate(EXAMPLES[shots], 1))
    text = (
        _TEXTS[wording]
        .replace("{refer}", _REFER[wording] if with_context else "")
        .replace("{ambiguous}", _AMBIGUOUS[wording] if with_context else "")
        .replace("{examples}", f"Here are some examples:\n\n{shown}" if shown else "")
    )
    return QaTemplate(
        id=qa_template_id(shots, with_context, wording),
        text=text + ("\n* Context: {context}" if with_context else ""),
        plain_ending="\n* Label:",
        delimiters=_DELIMITERS,
    )


def _example(number: int, one: QaExample) -> str:
    return (
        f"Example {number}:\n* Question: {one.question}\n* Gold Answer: {one.gold}\n"
        f"* Predicted Answer: {one.predicted}\n* Label: <ans> {one.label} </ans>\n\n"
    )


QA_ANSWERING = QaTemplate(
    id="qa-answering",
    text="""\
Answer the following question based on the provided context.

Instructions:
* Task: Identify the correct answer from the provided context.
* Approach:
- Break down the problem into smaller parts, if necessary.
- Carefully reason through your answer step-by-step.
- Ensure that your answer is directly supported by the context.

Response Format:
Please format your answer within brackets as follows:
<ans> Your Answer </ans>

###

* Question: {question}
* Context: {context}""",
    plain_ending="\n* Answer:",
    delimiters=("<ans>", "</ans>", "* Question:", "* Context:", "* Answer:", "###"),
)
"""What a model is asked whose answers are to be judged (QA-Judge, Table 8)."""
