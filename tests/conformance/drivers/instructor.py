"""instructor: a verdict as a pydantic model, by a demanded call and by JSON schema."""

import json
import sys
from pathlib import Path
from typing import Literal

import instructor
import openai
from pydantic import BaseModel

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


class Verdict(BaseModel):
    """Which reply is better, and why."""

    why: str
    winner: Literal["A", "B", "tie"]


found = {}
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai.OpenAI(), mode=mode)
    found[mode.name] = []
    for one in asked["pairs"]:
        text = (
            f"Ticket: {one['question']}\n\nReply A:\n{one['first']}\n\nReply B:\n{one['second']}\n\n"
            "Which reply is better?"
        )
        verdict = client.chat.completions.create(
            model="gpt-4", response_model=Verdict, max_retries=0, messages=[{"role": "user", "content": text}]
        )
        found[mode.name].append(verdict.winner)
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
