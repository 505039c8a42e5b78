"""The prompts of QA correctness: whether a predicted answer says what the gold answer says.

`qa-6-shot` is the paper's own (Table 9), with two of its six examples ours. The other variants of section 6.3 are named
there and not printed, so their bytes are ours: fewer examples, no context (nor the sentences that send to it), other
words, and all of these together, so also zero-shot without context, which the paper recommends and did not run.

`qa-6-shot-released` is the template of the authors' code. It has the words of Table 9 in another layout: headings
behind `##` and `###`, quoted labels, the source's own indentation, and a last line `* <ans> YOUR LABEL </ans>` behind
the context. The code reads its examples from `data/demonstrations.json`, which its repository does not hold, so they
are those of `qa-6-shot`; all other bytes are the code's. It was released with six examples and context, and has no
other variant.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, NamedTuple, get_args

from judgelm.errors import ConfigError, not_found
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.prompts.template import fill, sha_of
from judgelm.records import Prompt, Role, Span, SpanKind

Wording = Literal["paper", "reworded", "released"]
Shots = Literal[0, 2, 6]

SYSTEM = "You are an expert in question answering systems."

_SLOT = re.compile(r"\{(question|gold|predicted|context)\}")
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
    def sha(self) -> str:
        """sha256 (hex) over id and all bytes of the chat and of the plain prompt."""
        return sha_of({"id": self.id, "system": SYSTEM, "text": self.text, "plain_ending": self.plain_ending})

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
        messages: list[tuple[Role | None, Sequence[str]]] = [
            (None, [f"{SYSTEM}\n\n"]),
            (None, pieces),
            (None, [self.plain_ending]),
        ]
        if chat:
            messages = [("system", [SYSTEM]), ("user", pieces)]
        return fill(
            messages, lambda slot: [Span(values[slot], _KINDS[slot])], sanitizer_for(self.delimiters), chat=chat
        )


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

_RELEASED = (
    "Your job is to evaluate a predicted answer by comparing it against the gold answer and the given question. \n"
    "                You may refer to the provided context if needed.\n"
    "            ## Grading Criteria:\n"
    '            * "CORRECT": The predicted answer matches the gold answer or is a valid alternative (e.g., different '
    "but correct ways of writing a name).\n"
    '            * "INCORRECT": The predicted answer is wrong or does not align with the gold answer.\n'
    "\t\t\t* In some ambiguous cases, where it is unclear whether the predicted answer is correct or not, please refer "
    "to the provided context and use it as the final source for making your judgment.\n"
    "\t\t\t## Response Format:\n"
    "            Please format your answer within brackets as follows: <ans> Your Answer </ans>.\n"
    "            ## Here are some examples:\n"
    "            {examples}\n"
    "            ## Here is your task:\n"
    "            * Question: {question}\n"
    "            * Gold Answer: {gold}\n"
    "            * Predicted Answer: {predicted}\n"
    "            * Context: {context}\n"
    "            * <ans> YOUR LABEL </ans>\n"
    "\t\t"
)

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


class QaExample(NamedTuple):
    """One judged answer."""

    question: str
    gold: str
    predicted: str
    label: Literal["CORRECT", "INCORRECT"]


PRINTED = (
    QaExample("What nationality is the performer of song Daddy, Come Home?", "United States", "American", "CORRECT"),
    QaExample(
        "Who is Bohemond Iv Of Antioch's paternal grandmother?",
        "Constance of Antioch",
        "princess Constance of Antioch",
        "CORRECT",
    ),
    QaExample(
        "Rejuvelac is kind of grain water invented and promoted by a 'holistic health' practitioner born in which "
        "year?",
        "1909",
        "Rejuvelac is a kind of grain water invented and promoted by Ann Wigmore, who was born in 1909.",
        "CORRECT",
    ),
    QaExample(
        "What is the birthday of the actress who was the Duchess in 'The Revengers Tragedy'?",
        "23 November 1946",
        "Diana Quick, who played the Duchess in 'The Revengers Tragedy', was born on 23rd September 1934.",
        "INCORRECT",
    ),
)
"""Those of Table 9."""

OURS = (
    QaExample("How many more yards was the second field goal than the first?", "7", "7 yards longer", "CORRECT"),
    QaExample(
        "What is the last name of the person who finds the letter in the attic?",
        "Hollis",
        "The letter is found by Margaret Penrose.",
        "INCORRECT",
    ),
)
"""In the place of the two that the paper leaves out: a number with its unit, and another person than the one asked."""

EXAMPLES = {0: (), 2: (PRINTED[0], PRINTED[3]), 6: (*PRINTED, *OURS)}
"""By the number of shots. Which two the paper's 2-shot prompt has it does not say; ours has one of each label."""


def qa_template_id(shots: Shots, with_context: bool, wording: Wording) -> str:
    """The id of a variant, such as `qa-0-shot-no-context`."""
    return f"qa-{shots}-shot{'' if with_context else '-no-context'}{'' if wording == 'paper' else f'-{wording}'}"


@cache
def qa_template(shots: Shots, with_context: bool, wording: Wording = "paper") -> QaTemplate:
    """The judge's prompt in one of its variants.

    Raises:
        ConfigError: there are no such shots, no such wording, or the wording has no such variant.

    Source: QA-Judge, Table 9 and section 6.3; Alab-NII/llm-judge-extract-qa at 65ba47b,
    `prompts/judge_prompt_template.py` (`released`).
    """
    if shots not in EXAMPLES:
        raise not_found("shots", shots, EXAMPLES)
    if wording not in get_args(Wording):
        raise not_found("wording", wording, get_args(Wording))
    if wording == "released":
        return _released(shots, with_context)
    shown = "".join(_example(rank, example) for rank, example in enumerate(EXAMPLES[shots], 1))
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


def _released(shots: Shots, with_context: bool) -> QaTemplate:
    if shots != 6 or not with_context:
        raise ConfigError(
            f"wording released: got {shots} shots {'with' if with_context else 'without'} context; the authors "
            "released 6 shots with context; give shots=6 and with_context=true, or wording paper"
        )
    examples = "\n".join(
        f"### Example {rank}:\n  * Question: {example.question}\n  * Gold Answer: {example.gold}\n"
        f"  * Predicted Answer: {example.predicted}\n  * Label: <ans> {example.label} </ans>\n"
        for rank, example in enumerate(EXAMPLES[6], 1)
    )
    return QaTemplate(
        id="qa-6-shot-released",
        text=_RELEASED.replace("{examples}", examples),
        plain_ending="\n* Label:",
        delimiters=_DELIMITERS,
    )


def _example(rank: int, example: QaExample) -> str:
    return (
        f"Example {rank}:\n* Question: {example.question}\n* Gold Answer: {example.gold}\n"
        f"* Predicted Answer: {example.predicted}\n* Label: <ans> {example.label} </ans>\n\n"
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
