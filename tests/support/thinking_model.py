"""A scripted reasoning model: it thinks in a `<think>` block before every reply, and goes on from what is forced."""

from dataclasses import replace

from judgelm.engines.scripted import ScriptedEngine
from judgelm.parsing.thinking import CLOSE, OPEN, Thinking

THOUGHT = "8 1? Wait.\n[[B]] [[2]] <ans>INCORRECT</ans> Answer: no\nNo: the first is better."
BLOCK = f"{OPEN}\n{THOUGHT}\n{CLOSE}\n\n"


def going_on(reply):
    """A script that writes one reply, from the beginning that the prompt forces on."""

    def script(prompt):
        begun = prompt.prefill
        return reply[len(begun) :] if begun and reply.startswith(begun) else reply

    return script


def thinking(script):

    def reply(prompt):
        begun = prompt.prefill
        if begun.startswith(BLOCK):
            return script(replace(prompt, prefill=begun.removeprefix(BLOCK)))
        if begun == f"{OPEN}\n":
            return BLOCK.removeprefix(begun) + script(replace(prompt, prefill=""))
        return script(prompt) if begun else BLOCK + script(prompt)

    return reply


def engine(script, *, asked="on", resumes=True, max_tokens=1000, thinks=True):
    how = Thinking(mode=asked, max_tokens=max_tokens, resumes=resumes)
    return ScriptedEngine(thinking(script) if thinks else script, thinking=how)
