"""A page of verdicts for a run over pairs that has no labels to be compared with."""

import json
from collections.abc import Mapping, Sequence

from judgelm.records import Judgment, Label, Sample
from judgelm.reports.html import facts, render_page
from judgelm.reports.pairs import list_verdicts


def render_verdicts(
    judgments: Mapping[str, Judgment],
    *,
    samples: Mapping[str, Sample],
    labels: Mapping[str, Label],
    manifest: Mapping[str, object],
    title: str,
    summary: Sequence[str],
) -> str:
    """The verdicts as one self-contained HTML document; the same input gives the same text.

    Args:
        judgments: of pairs, by sample id.
        samples: by id; those that are missing are shown without question and answers.
        labels: by sample id; may be empty.
        manifest: the run's `OUT.run.json` as a dict; any key may be absent.
        title: plain text.
        summary: sentences on the run.
    """
    return render_page(
        "verdicts.html.j2",
        script="tables.js",
        title=title,
        summary=summary,
        facts=facts(manifest),
        manifest_json=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        listed=list_verdicts(judgments, samples, labels),
        total=len(judgments),
    )
