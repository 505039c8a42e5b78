"""The records that all packages share: frozen, slotted, and free of behaviour.

A mode sends a `Request` about a `Sample` to an engine, gets a `Completion`, and concludes a `Judgment`. A `Label` is
the conclusion of somebody else (a human, a teacher). Their forms in files: `judgelm.runs.run_files` (judgments) and
`judgelm.data.sources.registry` (samples and labels).
"""

from judgelm.records.judgments import (
    FailureCode,
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairDistribution,
    PairVerdict,
    RankingVerdict,
    Scores,
    SelfAnswer,
    Shown,
    TextHashes,
    Unparsed,
    Verdict,
    failure_name,
)
from judgelm.records.requests import (
    MAX_SEED,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    Completion,
    FinishReason,
    Prompt,
    Request,
    Role,
    Sampling,
    Span,
    SpanKind,
    ThinkingMode,
    Truncation,
)
from judgelm.records.samples import Label, Sample, Winner

__all__ = [
    "MAX_SEED",
    "MAX_TEMPERATURE",
    "MAX_TOKENS",
    "Completion",
    "FailureCode",
    "FinishReason",
    "GradeDistribution",
    "GradeVerdict",
    "Judgment",
    "Label",
    "LabelVerdict",
    "PairDistribution",
    "PairVerdict",
    "Prompt",
    "RankingVerdict",
    "Request",
    "Role",
    "Sample",
    "Sampling",
    "Scores",
    "SelfAnswer",
    "Shown",
    "Span",
    "SpanKind",
    "TextHashes",
    "ThinkingMode",
    "Truncation",
    "Unparsed",
    "Verdict",
    "Winner",
    "failure_name",
]
