"""A real HTTP endpoint on this machine that speaks OpenAI's API, and can misbehave in every way that servers do.

    with endpoint(TinyBackend(tiny_model)) as server:
        load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": server.base_url}))

`TinyBackend` runs a model, `ScriptedBackend` a written-down distribution. What the server has and takes are attributes
of `Server`; `server.fault` names what goes wrong with the request of a given number (see `first`). `server.kill()`
drops every connection and closes the port, `server.start()` opens the same port again.
"""
