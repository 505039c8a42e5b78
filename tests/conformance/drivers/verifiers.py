"""verifiers: its tasks score rollouts with the judge plugin `judgelm`, as a task's configuration names it."""

import asyncio
import json
import sys
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage
from verifiers.v1.utils.loaders import load_judge

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


class Data(vf.TaskData):
    answer: str = ""


def rollout(item):
    """A trace with one reply, and its task."""
    data = Data(idx=0, prompt=item["question"], answer=item["answer"])
    question = MessageNode(parent=None, message=UserMessage(content=item["question"]), sampled=False)
    reply = MessageNode(parent=0, message=AssistantMessage(content=item["response"]), sampled=True)
    agent = vf.AgentInfo(config=vf.AgentConfig())
    return data, vf.Trace(agent=agent, task=vf.TraceTask(type="Task", data=data), nodes=[question, reply])


async def score(options):
    """The rewards of all rollouts at once, and what the traces recorded."""
    config = vf.TaskConfig.model_validate({"judges": [{"id": "judgelm", "base_url": asked["base_url"]} | options]})
    judge, rollouts = load_judge(config.judges[0]), [rollout(item) for item in asked["items"]]
    try:
        rewards = await asyncio.gather(*(judge.score(data, trace) for data, trace in rollouts))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"rewards": rewards, "recorded": [trace.info["judge_calls"][0] for _, trace in rollouts]}


async def main():
    """Score with each configuration."""
    found = {name: await score(options) for name, options in asked["rewards"].items()}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


asyncio.run(main())
