"""A scripted engine that writes a word at each look, as a model does, and says how far it is."""

import time

from judgelm.engines.scripted import ScriptedEngine

_WORD_S = 0.03


class WritingEngine(ScriptedEngine):
    """Collects a request when its reply is written; `pause` holds all of them where they are."""

    def __init__(self, script, **options):
        super().__init__(script, **options)
        self.pause = False
        self._words = {}

    def collect(self, timeout_s):
        time.sleep(min(timeout_s, _WORD_S))
        done = []
        for request in list(self.waiting):
            completion = self.answer(request)
            words = completion.texts[0].split(" ") if completion.texts else []
            written = self._words.get(request.key, 0)
            if written < len(words):
                self._words[request.key] = written + (not self.pause)
                continue
            self._words.pop(request.key, None)
            self.waiting.remove(request)
            done.append(completion)
        return done

    def progress(self, keys):
        keys = set(keys)
        waiting = [request for request in self.waiting if request.key in keys]
        words = {request.key: self.answer(request).texts[0].split(" ") for request in waiting}
        return {key: " ".join(each[: self._words.get(key, 0)]) for key, each in words.items()}
