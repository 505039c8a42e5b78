"""A rubric of ragas with five levels, and a judge behind `judgelm serve`: each answer from 1 to 5.

export OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=unused
python examples/integrations/with_ragas.py
"""

import json
import os
from pathlib import Path

os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")

from langchain_openai import ChatOpenAI
from ragas import EvaluationDataset, SingleTurnSample, evaluate
from ragas.llms import LangchainLLMWrapper
from ragas.metrics import RubricsScore

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text(encoding="utf-8").splitlines()]
LEVELS = {
    "score1_description": "The response is wrong.",
    "score2_description": "The response is mostly wrong.",
    "score3_description": "The response is partly right.",
    "score4_description": "The response is right but for details.",
    "score5_description": "The response is right.",
}
metric = RubricsScore(rubrics=LEVELS, llm=LangchainLLMWrapper(ChatOpenAI(model="gpt-4o")))
samples = [
    SingleTurnSample(user_input=row["question"], response=row["answer"], reference=row["reference"]) for row in ROWS
]
scores = evaluate(EvaluationDataset(samples), metrics=[metric], show_progress=False).scores
for row, score in zip(ROWS, scores, strict=True):
    print(f"{row['id']}\t{score[metric.name]}")
