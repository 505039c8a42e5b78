"""instructor: a verdict as a pydantic model, by a demanded call, by JSON schema, by JSON, and by JSON in Markdown."""

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


def winner(client, one):
    """The winner, or None if the client cannot read the reply."""
    text = (
        f"Ticket: {one['question']}\n\nReply A:\n{one['first']}\n\nReply B:\n{one['second']}\n\nWhich reply is better?"
    )
    try:
        verdict = client.chat.completions.create(
            model="gpt-4", response_model=Verdict, max_retries=0, messages=[{"role": "user", "content": text}]
        )
        return verdict.winner
    except Exception as error:
        sys.stderr.write(f"{error!r}\n")
        return None


found = {}
for name in asked.get("kinds", ("TOOLS", "JSON_SCHEMA")):
    client = instructor.from_openai(openai.OpenAI(max_retries=0), mode=instructor.Mode[name])
    found[name] = [winner(client, one) for one in asked["pairs"]]
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
