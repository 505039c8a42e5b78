"""An engine that ends its process, or does not agree with the next one, when it is told to: for workers."""

import os
import time

from judgelm.engines.catalog import ENGINES
from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import EngineError, ModelError
from tests.support.writing_engine import WritingEngine

WORDS = " ".join(f"word{number}" for number in range(60))


class FragileEngine(ScriptedEngine):
    """Scripted, one request at a time."""

    def __init__(self, model):
        super().__init__({"*": "8 6\n"})
        if model == "absent":
            raise ModelError("absent: no such folder")
        self._version = os.getpid() if model == "differs" else 1

    def submit(self, requests):
        self.waiting.extend(requests)

    def collect(self, timeout_s):
        time.sleep(0.01)
        if not self.waiting:
            return []
        request = self.waiting.popleft()
        text = "".join(span.text for span in request.prompt.spans)
        if "poison" in text:
            os._exit(1)
        if "breaks" in text:
            raise EngineError("a kernel failed")
        return [self.answer(request)]

    def describe(self):
        return super().describe() | {"versions": {"fragile": self._version}}

    def stats(self):
        return {"retries": {"timeout": 1}}


class WritingWorker(WritingEngine):
    """Writes sixty words in two seconds and counts those that wait for them; the model `differs` writes its process."""

    def __init__(self, model):
        super().__init__({"*": f"{os.getpid()} {WORDS}" if model == "differs" else WORDS})

    def stats(self):
        return {"waiting": len(self.waiting)}

    def describe(self):
        return {"engine": "writing", "model": {"sha": "0"}}


def install():
    ENGINES["fragile"] = lambda options: FragileEngine(options.model)
    ENGINES["writing"] = lambda options: WritingWorker(options.model)
