"""Wide files of ratings, as the Play Favorites data is released, into long rows.

A wide row holds a judge's score and the mean human score side by side: `judge,model,gt,dataset,prompt_id,rating,
pred_length`. The file's name is the dimension. Of each completion the human score becomes one long row of its own,
however many judges rated it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from judgelm.data.readers.files import Reject, Row

WIDE_FIELDS = frozenset({"judge", "model", "gt", "prompt_id", "rating"})

_NAMES = {
    "anthropic.claude-v2:1": "Claude v2",
    "anthropic.claude-3-sonnet-20240229-v1:0": "Claude 3 Sonnet",
    "anthropic.claude-3-5-sonnet-20241022-v2:0": "Claude 3.5 Sonnet",
    "gpt-3.5-turbo": "GPT-3.5 Turbo",
    "gpt-4o": "GPT-4o",
    "meta.llama3-1-8b-instruct-v1:0": "Llama 3 8B",
    "meta.llama3-1-70b-instruct-v1:0": "Llama 3 70B",
    "mistral.mistral-7b-instruct-v0:2": "Mistral 7B",
    "mistral.mistral-large-2407-v1:0": "Mistral Large",
}
"""The released identifiers and the paper's names for them; other identifiers stay as they are."""

_TASKS = {"cnn": "summarization", "xsum": "summarization"} | dict.fromkeys(
    ("chatbotarena", "helm-instruct", "mtbench", "stanford"), "open-ended QA"
)
"""The paper's two types of task (section 6.1); the task of another data set is its name."""


@dataclass(slots=True, kw_only=True)
class WideReader:
    """Turns the wide rows of one file into long ones.

    Attributes:
        dimension: of rows that do not name their own.
        extra: columns to hand on; `dataset` is the data set that the prompt is from.
    """

    dimension: str
    extra: tuple[str, ...] = ()
    _human: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def long_rows(self, row: Row) -> Iterator[Row | Reject]:
        """The judge's rating, and the human one where this is the first row of its completion."""
        given = row.data
        if missing := ", ".join(sorted(WIDE_FIELDS - given.keys())):
            yield Reject(row.file, row.line, f"lacks {missing}, which the rows before have", str(given)[:1000])
            return
        data_set = str(given.get("dataset") or "").strip()
        shared = {name: given.get(name) for name in self.extra} | {
            "item": given["prompt_id"],
            "dimension": str(given.get("dimension") or self.dimension),
            "model": display_name(given["model"]),
            "task": _TASKS.get(data_set, data_set),
            "length": given.get("pred_length"),
        }
        key = (str(shared["item"]), str(shared["dimension"]), str(shared["model"]))
        human = str(given["gt"])
        if key not in self._human:
            self._human[key] = human
            yield Row(row.file, row.line, shared | {"judge": "human", "score": given["gt"]})
        elif self._human[key] != human:
            reason = f'"gt" is {human}, but an earlier row of this completion has {self._human[key]}'
            yield Reject(row.file, row.line, reason, str(given)[:1000])
            return
        yield Row(row.file, row.line, shared | {"judge": display_name(given["judge"]), "score": given["rating"]})


def display_name(identifier: object) -> str:
    """The paper's name of a released model identifier; any other identifier unchanged."""
    text = "" if identifier is None else str(identifier).strip()
    return _NAMES.get(text, text)
