"""The openai package: a chat, several replies, log-probabilities, a stream, a plain completion, the list of models."""

import json
import sys
from pathlib import Path

import openai

asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
client = openai.OpenAI(base_url=asked["base_url"], api_key="none")


def chat(prompt, **more):
    return client.chat.completions.create(model="known", messages=[{"role": "user", "content": prompt}], **more)


found = {"models": [one.id for one in client.models.list()], "texts": [], "several": [], "streamed": [], "plain": []}
for prompt in asked["prompts"]:
    reply = chat(prompt, temperature=0.7)
    assert reply.usage.total_tokens > 0
    found["texts"].append(reply.choices[0].message.content)
    found["several"].append([one.message.content for one in chat(prompt, n=3).choices])
    pieces = [one.choices[0].delta.content or "" for one in chat(prompt, stream=True) if one.choices]
    found["streamed"].append("".join(pieces))
    found["plain"].append(client.completions.create(model="known", prompt=prompt).choices[0].text)
try:
    chat("Hello, who are you?")
except openai.BadRequestError as error:
    found["refused"] = error.code
Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
