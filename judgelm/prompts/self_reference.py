"""The prompts of Self-Reference: a judge answers the question itself, then says whether another's answer is correct.

The words are those of Figures 5 to 11 of the paper, `[System]` included, which stands in the figures as a line of the
prompt. A chat has all of it as one user message. The figures do not settle blank lines: here there is one behind the
instruction and none between the blocks, as Figures 7 and 8 are printed.

Ours, since the paper does not print it: what stands for `{question}` before a meta-judge (the question with both
answers, in the blocks of Figure 7, or it would judge blindly), and the opening of Figure 6 for a question that has no
category.

Source: Self-Reference (*Do Before You Judge*), appendix B.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from judgelm.prompts.sanitization import sanitizer_for
from judgelm.prompts.template import fill, sha_of
from judgelm.records import Prompt, Span, SpanKind

_SLOT = re.compile(r"\{(category|question|reference|response|answer_[12])\}")
_KINDS: dict[str, SpanKind] = {"answer_1": "answer", "answer_2": "answer", "reference": "reference"}


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """One prompt with its slots.

    Attributes:
        text: with `{question}` and the like.
        delimiters: what bounds its blocks, and the verdicts that only the judge may give; look-alikes in untrusted
            text are sanitized.
        whole: slots whose text is never cut, because what is judged stands at its end.
    """

    text: str
    delimiters: tuple[str, ...]
    whole: frozenset[str] = frozenset()

    def render(self, values: Mapping[str, str], *, chat: bool) -> Prompt:
        """The prompt with its slots filled.

        Args:
            values: what goes into each slot; all of it is untrusted.
            chat: one user message for the tokenizer's chat template; else plain text.

        Raises:
            KeyError: a slot has no value.
        """

        def show(slot: str) -> list[Span]:
            return [Span(values[slot], "question" if slot in self.whole else _KINDS.get(slot, "question"))]

        return fill(
            [("user" if chat else None, _SLOT.split(self.text))], show, sanitizer_for(self.delimiters), chat=chat
        )


@dataclass(frozen=True, kw_only=True)
class PromptFamily:
    """All prompts of one way of judging, under the id that manifests have.

    Attributes:
        id: names the family.
        texts: its prompts by name.
    """

    id: str
    texts: Mapping[str, PromptText]

    @cached_property
    def sha(self) -> str:
        """sha256 (hex) over the id and every text: those that ask for the judge's own answers too."""
        return sha_of({"id": self.id, "texts": {name: text.text for name, text in self.texts.items()}})


VERDICTS = ("[[Correct]]", "[[Incorrect]]")
_CHOICES = ("[[A]]", "[[B]]", "[[C]]")
_QUESTION = ("[System]", "[User Question]")
_REFERENCE = ("[The Start of Reference Answer]", "[The End of Reference Answer]")
_ASSISTANT = ("[The Start of Assistant's Answer]", "[The End of Assistant's Answer]")
_PAIR = ("[The Start of Assistant {n}'s Answer]", "[The End of Assistant {n}'s Answer]")
_PAIR_BLOCKS = tuple(marker.replace("{n}", name) for name in "AB" for marker in _PAIR)
_VERDICT = ("[The Start of AI Judge's Selected Verdict]", "[The End of AI Judge's Selected Verdict]")

_BOTH_ANSWERS = (
    "[The Start of Assistant A's Answer]\n{answer_1}\n[The End of Assistant A's Answer]\n"
    "[The Start of Assistant B's Answer]\n{answer_2}\n[The End of Assistant B's Answer]"
)
_REFERENCE_BLOCK = "[The Start of Reference Answer]\n{reference}\n[The End of Reference Answer]\n"
_ANSWER_BLOCK = "[The Start of Assistant's Answer]\n{response}\n[The End of Assistant's Answer]"
_VERDICT_BLOCK = "[The Start of AI Judge's Selected Verdict]\n{response}\n[The End of AI Judge's Selected Verdict]"

_STEP_BY_STEP = "Let's think step by step"

NUMBER = PromptText(
    text=(
        f"The question is: {{question}}. {_STEP_BY_STEP} and then finish your answer with "
        '"The answer is (arabic numerals):"'
    ),
    delimiters=(f"{_STEP_BY_STEP} and then finish your answer",),
)
"""Figure 5, for GSM8K and GSM-Symbolic."""


def _choice(about: str) -> PromptText:
    return PromptText(
        text=(
            f"[System]\nThe following are multiple-choice questions (with answers){about}. Think step by step and then "
            'output the answer in the format of "The answer is (X)" at the end.\n\n'
            f"Question: {{question}}\n\nAnswer: {_STEP_BY_STEP}."
        ),
        delimiters=("[System]", f"Answer: {_STEP_BY_STEP}"),
    )


CHOICE = _choice(" about {category}")
"""Figure 6, for MMLU-Pro; the options stand in `{question}`, see `judgelm.prompts.correctness`."""

CHOICE_OF_NO_CATEGORY = _choice("")
"""Figure 6 without its category; ours."""

PREFERENCE = PromptText(
    text=(
        "[System]\nPlease act as an impartial judge and evaluate the quality of the responses provided by two AI "
        "assistants to the user question displayed below. Your evaluation should consider correctness and helpfulness. "
        "You will be given assistant A's answer, and assistant B's answer. Your job is to evaluate which assistant's "
        "answer is better. You should independently solve the user question step-by-step first. Then compare both "
        "assistants' answers with your answer. Identify and correct any mistakes. Avoid any position biases and ensure "
        "that the order in which the responses were presented does not influence your decision. Do not allow the "
        "length of the responses to influence your evaluation. Do not favor certain names of the assistants. Be as "
        "objective as possible. After providing your explanation, output your final verdict by strictly following this "
        'format: "[[A]]" if assistant A is better, "[[B]]" if assistant B is better, and "[[C]]" for a tie.\n\n'
        f"[User Question]\n{{question}}\n{_BOTH_ANSWERS}"
    ),
    delimiters=(*_QUESTION, *_PAIR_BLOCKS, *_CHOICES),
)
"""Figure 7, for MT-Bench and Chatbot Arena: there the answer to the question is which assistant is better."""

_IMPARTIAL = (
    "[System]\nPlease act as an impartial judge and evaluate the quality of the response provided by an AI assistant "
    "to the user question displayed below. "
)
_FOCUS = (
    "Your evaluation should focus solely on the correctness of the assistant's final answer. Begin by independently "
    "solving the user question step-by-step to verify the correctness of the response"
)
_FINALLY = (
    "Be as objective as possible. After providing your explanation, state your final verdict by strictly following "
    'this format: "[[Correct]]" if the response\'s final answer is correct and "[[Incorrect]]" if it is not.\n\n'
    "[User Question]\n{question}\n"
)

JUDGE = PromptText(
    text=(
        f"{_IMPARTIAL}{_FOCUS}. Compare your final answer to the assistant's final answer. Provide a brief explanation "
        f"of your judgment. {_FINALLY}{_ANSWER_BLOCK}"
    ),
    delimiters=(*_QUESTION, *_ASSISTANT, *VERDICTS),
    whole=frozenset({"response"}),
)
"""Figure 8."""

JUDGE_GUIDED = PromptText(
    text=(
        f"{_IMPARTIAL}You will be given a reference answer and the assistant's answer. {_FOCUS}, and compare your "
        "final answer with both the reference answer and the assistant's final answer. Provide a brief explanation of "
        "your judgment, highlighting any differences and their significance. "
        f"{_FINALLY}{_REFERENCE_BLOCK}{_ANSWER_BLOCK}"
    ),
    delimiters=(*_QUESTION, *_REFERENCE, *_ASSISTANT, *VERDICTS),
    whole=frozenset({"response"}),
)
"""Figure 10."""

_META = (
    "Please act as an impartial meta-judge and evaluate the decision made by an AI judge on the following user "
    "question. The user question is a comparative evaluation task, asking to judge which of two AI assistant responses "
    "is better based on correctness and helpfulness.\n\n"
    "The AI judge has already made a selection between Assistant A and Assistant B as the better response, using the "
    "following verdict format:\n"
    '- "[[A]]" if Assistant A is better\n- "[[B]]" if Assistant B is better\n- "[[C]]" if it is a tie\n\n'
)
_META_FINALLY = (
    "After completing your evaluation, provide a concise explanation of your reasoning. Be as objective as possible. "
    'Finally, state your verdict in the following format: "**[[Correct]]**" if the AI judge\'s selection is correct, '
    'or "**[[Incorrect]]**" if it is not.\n\n'
    f"User Question:\n{{question}}\n{_BOTH_ANSWERS}\n"
)
_SAME_COMPARISON = (
    "our task is to independently perform the same comparison step-by-step and determine whether you agree with the AI "
    "judge's choice. "
)

META = PromptText(
    text=(
        f"{_META}Y{_SAME_COMPARISON}Focus solely on verifying the correctness of the AI judge's final decision.\n\n"
        f"{_META_FINALLY}{_VERDICT_BLOCK}"
    ),
    delimiters=(*_PAIR_BLOCKS, *_VERDICT, *VERDICTS),
    whole=frozenset({"response"}),
)
"""Figure 9; `{response}` is what the judged judge wrote, its `[[A]]` included."""

META_GUIDED = PromptText(
    text=(
        f"{_META}You will also be given a reference answer to the same user question. Y{_SAME_COMPARISON}Use the "
        "reference answer to guide your reasoning and verification, but base your decision on whether the AI judge's "
        "final choice was justified given the relative correctness and helpfulness of the two assistant responses.\n\n"
        f"{_META_FINALLY}{_REFERENCE_BLOCK}{_VERDICT_BLOCK}"
    ),
    delimiters=(*_PAIR_BLOCKS, *_REFERENCE, *_VERDICT, *VERDICTS),
    whole=frozenset({"response"}),
)
"""Figure 11."""

SELF_REFERENCE = PromptFamily(
    id="self-reference",
    texts={
        "number": NUMBER,
        "choice": CHOICE,
        "choice_of_no_category": CHOICE_OF_NO_CATEGORY,
        "preference": PREFERENCE,
        "judge": JUDGE,
        "judge_guided": JUDGE_GUIDED,
        "meta": META,
        "meta_guided": META_GUIDED,
    },
)
