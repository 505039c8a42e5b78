"""Render a run as a single self-contained HTML file.

Questions, answers, and replies are untrusted. Jinja escapes them, and a content security policy allows only the file's
own script, identified by its hash.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from judgelm.records import Judgment, Label, Sample, failure_name
from judgelm.reports import pairs, plots, wording
from judgelm.reports.parts import list_parts, parts_of
from judgelm.studies.claim import WinRateClaim, claim_sentences
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.result import StudyResult
from judgelm.studies.sentences import format_percents
from judgelm.studies.style_control import ControlledAgreement

MAX_GROUPS = 60
_FOLDER = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_FACTS = ("model", "mode", "template", "engine")
_NAMES = ("judge", "id", "name", "gguf", "engine", "path")
_SPEEDS = (
    ("Speed", (("samples_per_s", "samples/s"),)),
    ("Tokens", (("tokens_per_s", "tokens/s"), ("prompt_tokens_per_s", "prompt tokens/s"))),
    ("Judging time", (("seconds", "s"), ("judge_s", "s"))),
    ("Model load time", (("load_s", "s"),)),
)


def render_report(
    evaluation: Evaluation,
    *,
    judgments: Mapping[str, Judgment],
    samples: Mapping[str, Sample] | None = None,
    labels: Mapping[str, Label],
    manifest: Mapping[str, object],
    title: str,
    control: ControlledAgreement | None = None,
    claim: WinRateClaim | str | None = None,
    comparison: StudyResult | None = None,
    judges: Mapping[str, object] | None = None,
) -> str:
    """Render an evaluation as a single self-contained, deterministic HTML document.

    Args:
        evaluation: results for these judgments and labels.
        judgments: keyed by sample id.
        samples: if not set, the list shows only replies and labels.
        labels: keyed by sample id.
        manifest: the run's `OUT.run.json`; any key may be missing.
        title: plain text.
        control: agreement controlled for style.
        claim: win rate between two models, or why it is missing.
        comparison: result of `compare_judges` for this run and another judge's run.
        judges: first table of `comparison`, from `page_table`.
    """
    listed = pairs.list_pairs(evaluation, judgments, samples or {}, labels)
    return render_page(
        "report.html.j2",
        script="tables.js",
        title=title,
        evaluation=evaluation,
        headline=wording.headline(evaluation),
        manifest=manifest,
        manifest_json=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        facts=facts(manifest),
        throughput=throughput(manifest),
        sessions=sessions(manifest),
        label_names=plots.LABEL_NAMES,
        # the SVG does not contain user text
        score_figure=None if evaluation.scores is None else Markup(plots.score_figure(evaluation.scores)),
        groups=[
            {"name": name, "rows": rows[:MAX_GROUPS], "left_out": max(0, len(rows) - MAX_GROUPS)}
            for name, rows in evaluation.groups.items()
        ],
        examples=pairs.failure_examples(evaluation, judgments),
        listed=listed,
        pairs_csv=base64.b64encode(pairs.pairs_csv(listed).encode(errors="replace")).decode(),
        comparison=comparison,
        judges=judges,
        has_samples=samples is not None,
        control=control,
        claim=claim,
        claim_sentences=claim_sentences(claim) if isinstance(claim, WinRateClaim) else [],
    )


def render_page(name: str, *, script: str = "", styles: Sequence[str] = ("report.css",), **content: object) -> str:
    """Render a template from this package as a self-contained page.

    `script` is the file name of the only script allowed to run.
    """
    code = _own_text(script) if script else Markup("")
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    policy = f"{_POLICY}; script-src 'sha256-{digest}'" if script else _POLICY
    style = Markup("").join(map(_own_text, styles))
    page = _environment().get_template(name).render(policy=policy, style=style, script=code, **content)
    return page.encode("utf-8", errors="replace").decode("utf-8")  # files cannot contain lone surrogates


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": wording.percent,
        "points": wording.points,
        "bounds": format_percents,
        "number": wording.number_text,
        "scores": pairs.score_text,
        "clipped": pairs.clipped,
        "reply_words": pairs.reply_words,
    }
    environment.globals |= {
        "kinds": pairs.KINDS,
        "max_listed": pairs.MAX_LISTED,
        "failure_name": failure_name,
        "failure_names": wording.FAILURE_NAMES,
        "winner_names": wording.WINNER_NAMES,
        "rule_names": RULE_NAMES,
    }
    return environment


def _own_text(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))


def threshold_of(manifest: Mapping[str, object]) -> float:
    """Return the threshold of the mode for P(yes), or 0.5 if the mode has none."""
    threshold = look_up(manifest.get("mode"), "threshold")
    return float(threshold) if isinstance(threshold, int | float) else 0.5


def facts(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the model, mode, template, and engine, if they are recorded."""
    # sessions contain engine statistics
    lasting = {key: value for key, value in manifest.items() if key != "sessions"}
    names = ((key, _name(look_up(lasting, key))) for key in _FACTS)
    return [(key, name) for key, name in names if name is not None]


def throughput(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the speed of the last session, or `not recorded`."""
    rows = []
    for name, keys in _SPEEDS:
        values = [wording.number_text(look_up(manifest, key), unit) for key, unit in keys]
        rows.append((name, next((value for value in values if value != "not recorded"), "not recorded")))
    return rows


def sessions(manifest: Mapping[str, object]) -> int:
    """Return the number of sessions, or 0 if it is not recorded."""
    recorded = manifest.get("sessions")
    return len(recorded) if isinstance(recorded, Sequence) and not isinstance(recorded, str) else 0


def look_up(part: object, key: str) -> object:
    """Return the value of a key from nested objects and the last session, or None if it is missing."""
    if isinstance(part, Mapping):
        if key in part:
            return part[key]
        inner: Sequence[object] = list(part.values())
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        inner = part[::-1]
    else:
        return None
    values = (look_up(child, key) for child in inner)
    return next((value for value in values if value is not None), None)


def _name(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    return value if isinstance(value, str) else None


def render_verdicts(
    judgments: Mapping[str, Judgment],
    *,
    samples: Mapping[str, Sample],
    labels: Mapping[str, Label],
    manifest: Mapping[str, object],
    title: str,
    summary: Sequence[str],
) -> str:
    """Render verdicts as a single self-contained, deterministic HTML document.

    Samples, labels, and keys of the manifest may be missing. `summary` is a list of sentences about the run. Judgments
    with parts are shown in the text of the answers.
    """
    threshold = threshold_of(manifest)
    with_parts = [judgment for judgment in judgments.values() if parts_of(judgment)]
    shown = [list_parts(each, samples.get(each.sample_id), threshold) for each in with_parts[: pairs.MAX_LISTED]]
    return render_page(
        "verdicts.html.j2",
        script="tables.js",
        title=title,
        summary=summary,
        facts=facts(manifest),
        manifest_json=json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
        listed=pairs.list_verdicts({} if with_parts else judgments, samples, labels),
        parts=shown,
        threshold=threshold,
        has_passages=any(each.passage for judgment in with_parts for each in judgment.shown),
        total=len(with_parts or judgments),
    )
