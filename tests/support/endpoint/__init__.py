"""A real HTTP endpoint on this machine that speaks OpenAI's API, and can misbehave in every way that servers do."""
