"""WMT side by side: the judge's agreement with single translators, beside theirs with each other."""

from collections.abc import Sequence

from judgelm.metrics.agreement import human_agreement
from judgelm.metrics.resampling import Resampling
from judgelm.records import Label
from judgelm.studies.benchmark.joined import JoinedJudgment
from judgelm.studies.benchmark.orders import AuthorsReport
from judgelm.studies.pair_labels import label_of
from judgelm.studies.result import Row, columns, table
from judgelm.studies.sentences import format_share


def translators_report(joined: Sequence[JoinedJudgment], resampling: Resampling) -> AuthorsReport | None:
    """Agreements for each language pair; None where no pair was judged that two translators had a verdict on."""
    judged = [member for member in joined if member.judgment.winner is not None and len(member.label.votes) > 1]
    rows: list[Row] = []
    findings: list[str] = []
    for languages in dict.fromkeys(member.subset for member in judged):
        members = [member for member in judged if member.subset == languages]
        agreement = human_agreement(
            [label_of(member.judgment.winner) for member in members if member.judgment.winner is not None],
            [_votes(member.label) for member in members],
            [member.cluster for member in members],
            resampling,
        )
        rows.append(
            (languages, len(members), agreement.judge_human, agreement.human_human, agreement.difference,
             agreement.fleiss_kappa)
        )  # fmt: skip
        findings.append(
            f"{languages}: the judge agrees with a translator on {format_share(agreement.judge_human)} of the pairs, "
            f"two translators with each other on {format_share(agreement.human_human)}."
        )
    if not rows:
        return None
    people = table(
        rows,
        columns("text", languages="Languages"),
        columns("count", pairs="Pairs"),
        columns("share", judge="Judge and a translator", people="Two translators", difference="Difference"),
        columns("number", fleiss_kappa="Fleiss' kappa of the translators"),
        name="translators",
        title="Agreement with single translators",
        source="google/wmt-mqm-human-evaluation, generalMT2023/",
        note="Over first better, second better and tie. Pairs that the judge failed on are left out here.",
    )
    return AuthorsReport(people, tuple(findings))


def _votes(label: Label) -> list[int]:
    return [label_of(vote) for vote in label.votes]
