"""mlflow: its built-in scorers of single answers, and judges from instructions with each kind of value."""

import json
import os
import sys
from pathlib import Path
from typing import Literal

os.environ["MLFLOW_TRACKING_URI"] = Path("mlruns.db").absolute().as_uri().replace("file://", "sqlite:///")

import mlflow
from mlflow.entities import Document, SpanType
from mlflow.genai.judges import make_judge
from mlflow.genai.scorers import (
    Completeness,
    Correctness,
    Equivalence,
    Fluency,
    Guidelines,
    RelevanceToQuery,
    RetrievalGroundedness,
    Safety,
)

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
MODEL = {"model": "openai:/gpt-4o"}
TEXTS = "Question: {{ inputs }}\nAnswer: {{ outputs }}\n\n"


def judge(name, question, kind):
    return make_judge(name=name, instructions=TEXTS + question, feedback_value_type=kind, **MODEL)


SCORERS = {
    "correctness": Correctness(**MODEL),
    "relevance": RelevanceToQuery(**MODEL),
    "guidelines": Guidelines(guidelines=["The answer is right."], **MODEL),
    "safety": Safety(**MODEL),
    "fluency": Fluency(**MODEL),
    "completeness": Completeness(**MODEL),
    "equivalence": Equivalence(**MODEL),
    "groundedness": RetrievalGroundedness(**MODEL),
    "own bool": judge("right", "Is the answer right?", bool),
    "own label": judge("tone", "Is the answer polite or rude?", Literal["polite", "rude"]),
    "own number": judge("clarity", "How clear is the answer, from 0 to 1?", float),
}


def trace(one):
    """The trace of a retrieval and an answer."""
    with mlflow.start_span(name="answer") as span:
        span.set_inputs({"question": one["question"]})
        with mlflow.start_span(name="retrieve", span_type=SpanType.RETRIEVER) as retrieval:
            retrieval.set_inputs(one["question"])
            retrieval.set_outputs([Document(page_content=one["reference"])])
        span.set_outputs(one["answer"])
    return mlflow.get_trace(span.trace_id, flush=True)


def value(name, one):
    """The value, or None if the client cannot read the reply, for which it has the value "unknown"."""
    texts = {"inputs": {"question": one["question"]}, "outputs": one["answer"]}
    if name in ("correctness", "equivalence"):
        texts["expectations"] = {"expected_response": one["reference"]}
    if name in ("safety", "fluency"):
        del texts["inputs"]
    try:
        feedback = SCORERS[name](trace=trace(one))[0] if name == "groundedness" else SCORERS[name](**texts)
    except Exception as error:
        sys.stderr.write(f"{name}: {error!r:.500}\n")
        return None
    shown = str(getattr(feedback.value, "value", feedback.value))
    return None if feedback.error is not None or shown == "unknown" else shown


found = {
    name: [value(name, one) for one in asked["singles"]]
    for name in asked.get("kinds", SCORERS.keys() - {"groundedness"})
}
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
