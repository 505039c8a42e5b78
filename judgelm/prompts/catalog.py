"""All templates by id."""

from judgelm.errors import not_found
from judgelm.prompts.judgelm import JUDGELM_CHAT, JUDGELM_COMPACT, JUDGELM_PAPER, JUDGELM_V1
from judgelm.prompts.reasoned import REASONED_CHAT, REASONED_COMPACT
from judgelm.prompts.template import Template

TEMPLATES = {
    template.id: template
    for template in (JUDGELM_V1, JUDGELM_PAPER, JUDGELM_CHAT, JUDGELM_COMPACT, REASONED_CHAT, REASONED_COMPACT)
}


def get_template(template_id: str) -> Template:
    """The template of that id.

    Raises:
        ConfigError: not found; the message lists the available ones.

    Example:
        >>> from judgelm.records import Sample
        >>> sample = Sample(id="1", question="What is 2 + 2?", answers=("4", "5"))
        >>> prompt = get_template("judgelm-v1").render(sample, (0, 1), None)
        >>> [(span.kind, span.text) for span in prompt.spans if span.kind != "template"]
        [('question', 'What is 2 + 2?'), ('answer', '4'), ('answer', '5')]
    """
    if template_id not in TEMPLATES:
        raise not_found("template", template_id, TEMPLATES)
    return TEMPLATES[template_id]
