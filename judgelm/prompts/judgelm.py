"""The JudgeLM family's pair templates.

`judgelm-v1` holds the bytes that the released checkpoints were trained on (the original code's templates),
`judgelm-paper` those of Figures 3 and 4, `judgelm-chat` the same words as chat messages for newer instruct models, and
`judgelm-compact` the same blocks with short markers, for judges of a few million parameters.
"""

from judgelm.prompts.template import PairTemplate

_SYSTEM = "You are a helpful and precise assistant for checking the quality of the answer."
_RATE = (
    "{opening} rate the helpfulness, relevance, accuracy, level of details of their responses. Each assistant receives "
    "an overall score on a scale of 1 to 10, where a higher score indicates better overall performance.\n"
)
_INSTRUCTION = (
    "We would like to request your feedback on the performance of two AI assistants in response to the user question "
    "displayed above.\n" + _RATE + "Please first output a single line containing only two values indicating the scores "
    "for Assistant 1 and 2, respectively. The two scores are separated by a space. In the subsequent line, please "
    "provide a comprehensive explanation of your evaluation, avoiding any potential bias and ensuring that the order "
    "in which the responses were presented does not affect your judgment."
)
_PLEASE = _INSTRUCTION.replace("{opening}", "Please")
_BASED = _INSTRUCTION.replace("{opening}", "Based on the reference answer, please")

_QUESTION = "[Question]\n{question}\n\n"
_REFERENCE = "[Reference Answer]\n{reference}\n\n"
_CODE_ANSWERS = "".join(
    f"[The Start of Assistant {n}'s Answer]\n{{answer_{n}}}\n\n[The End of Assistant {n}'s Answer]\n\n" for n in (1, 2)
)
_PAPER_ANSWERS = _CODE_ANSWERS.replace("}\n\n[The End", "}\n[The End")

_BLOCKS = (
    "[Question]",
    "[Reference Answer]",
    "[The Start of Assistant {n}'s Answer]",
    "[The End of Assistant {n}'s Answer]",
    "[System]",
    "[Response]",
)

JUDGELM_V1 = PairTemplate(
    id="judgelm-v1",
    plain=((None, f"{_SYSTEM}\n{_QUESTION}{_CODE_ANSWERS}[System]\n{_PLEASE}\n\n### Response:"),),
    with_reference=((None, f"{_SYSTEM}\n{_QUESTION}{_REFERENCE}{_CODE_ANSWERS}[System]\n{_PLEASE}\n\n### Response:"),),
    delimiters=(*_BLOCKS, "### Response:"),
)

JUDGELM_PAPER = PairTemplate(
    id="judgelm-paper",
    plain=((None, f"{_SYSTEM}\n\n{_QUESTION}{_PAPER_ANSWERS}[System]\n{_PLEASE}\n\n"),),
    with_reference=((None, f"{_SYSTEM}\n\n{_QUESTION}{_REFERENCE}{_PAPER_ANSWERS}[System]\n{_BASED}\n\n"),),
    delimiters=_BLOCKS,
)

JUDGELM_CHAT = PairTemplate(
    id="judgelm-chat",
    plain=(("system", _SYSTEM), ("user", f"{_QUESTION}{_PAPER_ANSWERS}[System]\n{_PLEASE}")),
    with_reference=(("system", _SYSTEM), ("user", f"{_QUESTION}{_REFERENCE}{_PAPER_ANSWERS}[System]\n{_BASED}")),
    delimiters=_BLOCKS,
)

JUDGELM_COMPACT = PairTemplate(
    id="judgelm-compact",
    plain=((None, "[Q] {question}\n[1] {answer_1}\n[2] {answer_2}\n[S]"),),
    with_reference=((None, "[Q] {question}\n[R] {reference}\n[1] {answer_1}\n[2] {answer_2}\n[S]"),),
    delimiters=("[Q]", "[R]", "[1]", "[2]", "[S]"),
)
