"""The template and scale by which a judge is prompted, and where they come from."""

from dataclasses import dataclass

from judgelm.judges.released import ReleasedJudge
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, check_card

DEFAULT_TEMPLATE = "judgelm-v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFormat:
    """The template and scale of a judge, and their source: its card, an option, or the default.

    `never_explained` is True where the card states that no training row had a reason. `reply_tokens` is the room for a
    reply that reasons first: that of the training, else half of the judge's window; None where neither is known.
    """

    template: str
    scale: tuple[float, float]
    step: float
    source: str
    never_explained: bool = False
    reply_tokens: int | None = None


def judge_format(
    card: Card | ReleasedJudge | None, template: str | None, *, location: str, ignore_card: bool
) -> JudgeFormat:
    """The template and scale of a judge; `location` names the model in errors.

    Raises:
        CardError: the model's card names another template, or other bytes of it.
        ConfigError: no such template.
    """
    chosen = get_template(template or (card.template if card else "") or DEFAULT_TEMPLATE)
    if isinstance(card, ReleasedJudge):
        return JudgeFormat(template=chosen.id, scale=card.scale, step=1, source="option" if template else "card")
    if card is None:
        return JudgeFormat(template=chosen.id, scale=(1, 10), step=1, source="option" if template else "default")
    if not ignore_card:
        check_card(card, template=chosen.id, template_sha=chosen.sha, location=location)
    source = "option" if ignore_card and template else "card"
    return JudgeFormat(
        template=chosen.id,
        scale=card.scale,
        step=card.step,
        source=source,
        never_explained=card.training.get("rows_with_reason") == 0,
        reply_tokens=card.training.get("max_completion_length") or (card.window and card.window // 2),
    )
