"""The original G-Eval script: four metrics of a summary, one system message each, a bare number wanted.

The prompts stand in files that users change; recognised are the form at the end, the metric with its scale, and the
headings around the texts. The metric of fluency shows no source.

Source: G-Eval, the authors' script (captured requests and replies).
"""

import re

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import ambiguity_note, sample_of
from judgelm.dialects.text import expected_grade, format_number, rescale, results_per_reply

_NAME = "geval"
_HEAD = re.compile(
    r"You will be given (?:one summary written for a news article|a news article)\..*?"
    r"\n\nEvaluation Criteria:\n\n(?P<criterion>.*?)(?=\n\n\nExample:\n)",
    re.DOTALL,
)
_TEXTS = (
    Pattern("\n\n\nExample:\n\n\nSource Text:\n\n{source}\n\nSummary:\n\n{summary}"),
    Pattern("\n\n\nExample:\n\n\nSource Text: \n\n{source}\n\nSummary: \n\n{summary}"),
    Pattern("\n\n\nExample:\n\nSummary:\n\n{summary}"),
)
_FORM = re.compile(r"\n\n\nEvaluation Form \(scores ONLY\):\n\n- (?P<metric>[A-Z][a-z]+)(?: \(\d+-\d+\))?:\s*\Z")


def _recognise(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system")
    form = _FORM.search(texts[0]) if texts else None
    head = _HEAD.match(texts[0]) if texts else None
    if texts is None or form is None or head is None:
        return None
    scale = re.search(rf"{form['metric']} \((\d+)-(\d+)\)", head["criterion"])
    body = texts[0][head.end() : form.start()]
    found = next((split for pattern in _TEXTS if (split := pattern.split(body)) is not None), None)
    if scale is None or found is None:
        return None
    sample = sample_of(found.values.get("source", ""), (found.values["summary"],), criterion=head["criterion"])
    return JudgeTask(
        dialect=_NAME,
        task="grade",
        sample=sample,
        scale=(float(scale[1]), float(scale[2])),
        doubt=ambiguity_note(found),
    )


def _render(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """Bare numbers: the client takes the first one of each reply, decimals too, and averages over the replies."""
    assert case.scale is not None
    scale = case.scale
    each = results_per_reply(asked, finding)
    return Reply(texts=tuple(format_number(rescale(expected_grade(one), scale)) for one in each))


DIALECTS: tuple[Dialect, ...] = (Dialect(name=_NAME, recognise=_recognise, render=_render),)
