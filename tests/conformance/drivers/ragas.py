"""ragas: an aspect critic, a score by simple criteria, a score by a rubric, and a discrete metric of the user's own."""

import asyncio
import json
import sys
from pathlib import Path

import openai
from langchain_openai import ChatOpenAI
from ragas.dataset_schema import SingleTurnSample
from ragas.llms import LangchainLLMWrapper, llm_factory
from ragas.metrics import AspectCritic, DiscreteMetric, RubricsScore, SimpleCriteriaScore

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
llm = LangchainLLMWrapper(ChatOpenAI(model="known", base_url=asked["base_url"], api_key="none"))
METRICS = {
    "aspect": AspectCritic(name="correct", definition="Is the response factually correct?", llm=llm),
    "simple": SimpleCriteriaScore(name="similar", definition="Score 0 to 5 by similarity to the reference", llm=llm),
    "rubrics": RubricsScore(rubrics={f"score{level}_description": f"level {level}" for level in range(1, 6)}, llm=llm),
}


async def score(metric):
    samples = [
        SingleTurnSample(user_input=one["question"], response=one["answer"], reference=one["reference"])
        for one in asked["singles"]
    ]
    return [await metric.single_turn_ascore(sample) for sample in samples]


found = {name: asyncio.run(score(metric)) for name, metric in METRICS.items()}
PROMPT = "Question: {question}\nResponse: {answer}\nReference: {reference}\n\nIs it right? Answer with pass or fail."
discrete = DiscreteMetric(name="right", prompt=PROMPT, allowed_values=["pass", "fail"])
own = llm_factory("gpt-4o", client=openai.OpenAI(base_url=asked["base_url"], api_key="none"))
found["discrete"] = [discrete.score(llm=own, **one).value for one in asked["singles"]]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
