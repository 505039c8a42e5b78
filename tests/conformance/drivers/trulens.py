"""TruLens: its provider for OpenAI's API scores answers against their context."""

import json
import sys
from pathlib import Path

from trulens.core.feedback.feedback import GroundednessConfigs
from trulens.providers.openai import OpenAI

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
provider = OpenAI(model_engine="gpt-4o", base_url=asked["base_url"], api_key="none")
WHOLE = GroundednessConfigs(use_sent_tokenize=False, filter_trivial_statements=False)
KINDS = {
    "groundedness": lambda one: provider.groundedness_measure_with_cot_reasons(
        source=one["reference"], statement=one["answer"], groundedness_configs=WHOLE
    ),
    "context relevance": lambda one: provider.context_relevance_with_cot_reasons(one["question"], one["reference"]),
    "relevance": lambda one: provider.relevance_with_cot_reasons(one["question"], one["answer"]),
}


def value(name, one):
    """The score, or None if the client cannot read a reply."""
    try:
        score, _ = KINDS[name](one)
    except Exception as error:
        sys.stderr.write(f"{name}: {error!r:.500}\n")
        return None
    return score if 0 <= score <= 1 else None


found = {name: [value(name, one) for one in asked["singles"]] for name in asked["kinds"]}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
