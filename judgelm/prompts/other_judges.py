r"""The prompts of other open judges, so that their released checkpoints run as baselines beside ours.

The bytes are those that the checkpoints' own code builds, the wrapper of their chat format included; the reply follows
them. With `chat` the tokenizer's chat template wraps the words instead, for servers and for other models.

- `pandalm`: the instruction's `input`, where there is one, has a block of its own; answers are stripped.
- `auto-j` (a pair, ties allowed) and `auto-j-single` (1 to 10), in Llama 2's `[INST] ... [/INST]`. Its authors gave the
  words no licence, so they are not here: the user hands them over, from that judge's own code.
- `prometheus-absolute` and `prometheus-relative` (version 2), each with a reference or without. The wrapper is
  FastChat's `mistral`: `[INST] `, the system line, one line end, the user's message and ` [/INST]`.
- `prometheus-1` (version 1, absolute, always with a reference), in FastChat's `llama-2`.

Answers that hold a block's delimiter are sanitized, which the original code does not do; it deletes special tokens from
answers (PandaLM), where our engines sanitize them.

Source: PandaLM (Wang et al. 2023), Auto-J (Li et al. 2023), Prometheus (Kim et al. 2023), Prometheus 2 (Kim et al.
2024), and their code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from judgelm.errors import ConfigError
from judgelm.prompts.sanitization import sanitizer_for
from judgelm.prompts.template import fill, sha_of
from judgelm.records import Prompt, Role, Span, SpanKind

BaselineJudge = Literal[
    "pandalm", "auto-j", "auto-j-single", "prometheus-absolute", "prometheus-relative", "prometheus-1"
]
"""Judges whose prompts and replies are known here."""

Slots = Mapping[str, str]
"""`question`, `answer_1` and, as the judge has places for them, `answer_2`, `input`, `reference`, `rubric`."""

_SLOT = re.compile(r"\{(question|input|answer_[12]|reference|rubric|criterion|levels|bulleted_levels)\}")
_RUBRIC_SLOTS = ("rubric", "criterion", "levels", "bulleted_levels")
# A rubric, as a question, is never cut: what its last level says would be lost first.
_KINDS: Mapping[str, SpanKind] = {"reference": "reference", "answer_1": "answer", "answer_2": "answer"}


@dataclass(frozen=True, kw_only=True)
class JudgePrompt:
    """The prompt of one judge.

    Attributes:
        id: the template's name in manifests.
        texts: by which of `input` and `reference` are shown (a text of their names, joined by a blank) -> the message
            with its slots. A judge without a place for either has "" alone.
        system: the system message; None where the judge has none, empty where it is shown an empty one.
        before: what its own wrapper has before the message, the system message included; for plain text.
        after: and behind the message.
        delimiters: what bounds the blocks; confusables in untrusted text are sanitized.
        stripped: whether blanks around the answers are taken off, as the judge's own code does.
        words_from_user: whether the text here only names the slots, see `with_words`.
    """

    id: str
    texts: Mapping[str, str]
    system: str | None = None
    before: str = ""
    after: str = ""
    delimiters: tuple[str, ...]
    stripped: bool = False
    words_from_user: bool = False

    def with_words(self, words: str) -> "JudgePrompt":
        """The same judge, prompted with these words.

        Args:
            words: the message, with each slot of this prompt once.

        Raises:
            ConfigError: a slot is missing, or comes twice.
        """
        [(shown, named)] = self.texts.items()
        slots = _SLOT.findall(named)
        if sorted(_SLOT.findall(words)) != sorted(slots):
            wanted = ", ".join(f"{{{slot}}}" for slot in slots)
            raise ConfigError(f"words of judge {self.id}: expected the text of its own prompt with {wanted} once each")
        return replace(self, texts={shown: words}, words_from_user=False)

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over id, all texts and the wrapper."""
        wrapper = [self.before, self.after]
        system = self.system or ""
        return sha_of({"id": self.id, "texts": dict(self.texts), "system": system, "wrapper": wrapper})

    @cached_property
    def takes_reference(self) -> bool:
        """True if it has a place for a reference."""
        return any("{reference}" in text for text in self.texts.values())

    @cached_property
    def needs_reference(self) -> bool:
        """True if it always shows a reference."""
        return all("{reference}" in text for text in self.texts.values())

    @cached_property
    def answers(self) -> int:
        """The number of answers that it shows."""
        return 2 if any("{answer_2}" in text for text in self.texts.values()) else 1

    @cached_property
    def takes_rubric(self) -> bool:
        """True if it shows a rubric."""
        return any(f"{{{slot}}}" in text for text in self.texts.values() for slot in _RUBRIC_SLOTS)

    def render(self, slots: Slots, *, chat: bool) -> Prompt:
        """The prompt with its slots filled.

        Args:
            slots: all that is to be shown; `input` and `reference` only where there is one.
            chat: a system and a user message for the tokenizer's chat template; else plain text in its own wrapper.

        Raises:
            KeyError: a slot has no value, or the judge has no place for what is to be shown.
        """
        shown = " ".join(name for name in ("input", "reference") if name in slots)
        message = _SLOT.split(self.texts[shown])
        messages: list[tuple[Role | None, Sequence[str]]] = [
            (None, [self.before]),
            (None, message),
            (None, [self.after]),
        ]
        if chat:
            messages = [("user", message)]
            if self.system is not None:
                messages.insert(0, ("system", [self.system]))

        def show(slot: str) -> list[Span]:
            kind = _KINDS.get(slot, "question")
            return [Span(slots[slot].strip() if self.stripped and kind == "answer" else slots[slot], kind)]

        prompt = replace(fill(messages, show, sanitizer_for(self.delimiters), chat=chat), compares=self.answers)
        if chat and self.system == "":  # some judges are shown an empty system message, which a template would fill
            return replace(prompt, spans=(Span("", "template", "system"), *prompt.spans))
        return prompt


_PANDALM_TASK = (
    "Evaluate the responses and generate a reference answer for the task.\n\n### Instruction:\n{question}\n\n"
)
_PANDALM_ANSWERS = "### Response 1:\n{answer_1}\n\n### Response 2:\n{answer_2}\n\n### Evaluation:\n"
_PANDALM = JudgePrompt(
    id="pandalm",
    texts={
        "": (
            "Below are two responses for a given task. The task is defined by the Instruction. "
            f"{_PANDALM_TASK}{_PANDALM_ANSWERS}"
        ),
        "input": (
            "Below are two responses for a given task. The task is defined by the Instruction with an Input that "
            f"provides further context. {_PANDALM_TASK}### Input:\n{{input}}\n\n{_PANDALM_ANSWERS}"
        ),
    },
    delimiters=(
        *("### Instruction:", "### Input:", "### Response {n}:", "### Evaluation:"),
        *("### Reason:", "### Reference:"),
    ),
    stripped=True,
)

_LLAMA_2 = ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")
_AUTO_J_MARKS = ("[BEGIN DATA]", "[END DATA]", "[Query]:", "[Response]:", "[Response {n}]:", *_LLAMA_2)
_AUTO_J = JudgePrompt(
    id="auto-j",
    texts={"": "{question}{answer_1}{answer_2}"},
    before="[INST] ",
    after=" [/INST]",
    delimiters=_AUTO_J_MARKS,
    words_from_user=True,
)
_AUTO_J_SINGLE = JudgePrompt(
    id="auto-j-single",
    texts={"": "{question}{answer_1}"},
    before="[INST] ",
    after=" [/INST]",
    delimiters=_AUTO_J_MARKS,
    words_from_user=True,
)

_PROMETHEUS_MARKS = (
    *("###Task Description:", "###The instruction to evaluate:", "###Instruction:", "###Response to evaluate:"),
    *("###Response A:", "###Response B:", "###Reference Answer (Score 5):", "###Reference Answer:"),
    *("###Score Rubrics:", "###Score Rubric:", "###Feedback:", "[RESULT]", *_LLAMA_2),
)


def _absolute(referenced: bool, opening: str = "") -> str:
    """The absolute grading message; `opening` stands before the feedback in the format that it asks for."""
    given = ", a reference answer that gets a score of 5" if referenced else ""
    block = "###Reference Answer (Score 5):\n{reference}\n\n" if referenced else ""
    return (
        "###Task Description:\n"
        f"An instruction (might include an Input inside it), a response to evaluate{given}, and a score rubric "
        "representing a evaluation criteria are given.\n"
        "1. Write a detailed feedback that assess the quality of the response strictly based on the given score "
        "rubric, not evaluating in general.\n"
        "2. After writing a feedback, write a score that is an integer between 1 and 5. You should refer to the score "
        "rubric.\n"
        f'3. The output format should look as follows: "{opening}(write a feedback for criteria) [RESULT] (an integer '
        'number between 1 and 5)"\n'
        "4. Please do not generate any other opening, closing, and explanations.\n\n"
        "###The instruction to evaluate:\n{question}\n\n###Response to evaluate:\n{answer_1}\n\n"
        f"{block}###Score Rubrics:\n{{rubric}}\n\n###Feedback: "
    )


def _relative(referenced: bool) -> str:
    """The relative grading message; its second step names a reference answer whether there is one or not."""
    given = " a reference answer," if referenced else ""
    block = "###Reference Answer:\n{reference}\n\n" if referenced else ""
    return (
        "###Task Description:\n"
        "An instruction (might include an Input inside it), two responses to evaluate (denoted as Response A and "
        f"Response B),{given} and an evaluation criteria are given.\n"
        "1. Write a detailed feedback that assess the quality of the two responses strictly based on the given "
        "evaluation criteria, not evaluating in general.\n"
        "2. Make comparisons between Response A, Response B, and the Reference Answer. Instead of examining Response A "
        "and Response B separately, go straight to the point and mention about the commonalities and differences "
        "between them.\n"
        '3. After writing the feedback, indicate the better response, either "A" or "B".\n'
        '4. The output format should look as follows: "Feedback: (write a feedback for criteria) [RESULT] (Either "A" '
        'or "B")"\n'
        "5. Please do not generate any other opening, closing, and explanations.\n\n"
        "###Instruction:\n{question}\n\n###Response A:\n{answer_1}\n\n###Response B:\n{answer_2}\n\n"
        f"{block}###Score Rubric:\n{{rubric}}\n\n###Feedback: "
    )


_ABSOLUTE_SYSTEM = (
    "You are a fair judge assistant tasked with providing clear, objective feedback based on specific criteria, "
    "ensuring each assessment reflects the absolute standards set for performance."
)
_RELATIVE_SYSTEM = (
    "You are a fair judge assistant assigned to deliver insightful feedback that compares individual performances, "
    "highlighting how each stands relative to others within the same cohort."
)
_FIRST_SYSTEM = "You are a fair evaluator language model."

OTHER_JUDGES: Mapping[BaselineJudge, JudgePrompt] = {
    "pandalm": _PANDALM,
    "auto-j": _AUTO_J,
    "auto-j-single": _AUTO_J_SINGLE,
    "prometheus-absolute": JudgePrompt(
        id="prometheus-absolute",
        texts={"": _absolute(False), "reference": _absolute(True)},
        system=_ABSOLUTE_SYSTEM,
        before=f"[INST] {_ABSOLUTE_SYSTEM}\n",
        after=" [/INST]",
        delimiters=_PROMETHEUS_MARKS,
    ),
    "prometheus-relative": JudgePrompt(
        id="prometheus-relative",
        texts={"": _relative(False), "reference": _relative(True)},
        system=_RELATIVE_SYSTEM,
        before=f"[INST] {_RELATIVE_SYSTEM}\n",
        after=" [/INST]",
        delimiters=_PROMETHEUS_MARKS,
    ),
    "prometheus-1": JudgePrompt(
        id="prometheus-1",
        texts={"reference": _absolute(True, "Feedback: ")},
        system=_FIRST_SYSTEM,
        before=f"[INST] <<SYS>>\n{_FIRST_SYSTEM}\n<</SYS>>\n\n",
        after=" [/INST]",
        delimiters=_PROMETHEUS_MARKS,
    ),
}
"""Every judge's prompt by the name that mode `baseline` has for it."""

HELPFULNESS = """\
[Does the response do what the instruction asks, correctly, and at a useful level of detail?]
Score 1: The response does not address the instruction, or is wrong throughout.
Score 2: The response addresses the instruction in part, with errors or gaps that make it of little use.
Score 3: The response addresses the instruction, with some errors, gaps or needless text.
Score 4: The response does what the instruction asks, with only small shortcomings.
Score 5: The response does all that the instruction asks, correctly and at a useful level of detail."""
"""The rubric of a sample that has none; ours. A pair is compared by its first line."""
