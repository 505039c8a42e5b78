"""The bodies of OpenAI's API: prompts read, choices and errors written, and choices spoilt on purpose."""


def choice(reply, index, *, chat, logprobs):
    content = {"message": {"role": "assistant", "content": reply.text}} if chat else {"text": reply.text}
    return {"index": index, "finish_reason": reply.finish_reason, "logprobs": logprobs, **content}


def logprobs_of(reply, top, *, chat_form):
    ranked = [
        (token, value, sorted(tops.items(), key=lambda entry: -entry[1])[:top]) for token, value, tops in reply.steps
    ]
    if chat_form:
        content = [
            {"token": t, "logprob": v, "top_logprobs": [{"token": a, "logprob": b} for a, b in tops]}
            for t, v, tops in ranked
        ]
        return {"content": content}
    return {
        "tokens": [token for token, _, _ in ranked],
        "token_logprobs": [value for _, value, _ in ranked],
        "top_logprobs": [dict(tops) for _, _, tops in ranked],
    }


def error_body(message, **more):
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | more}


def chat_text(body):
    """The messages in a row."""
    messages = body["messages"]
    if messages[-1]["role"] == "assistant" and not body.get("continue_final_message"):
        messages = messages[:-1]
    return "".join(_content_text(message["content"]) for message in messages)


def _content_text(content):
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def spoil(choices, fault):
    choice = choices[0]
    content = choice.get("message", choice)
    if fault == "types":
        content["content" if "message" in choice else "text"] = 86
    elif fault == "null_text":
        content["content" if "message" in choice else "text"] = None
        choice["finish_reason"] = "stop"
    elif fault == "empty_choices":
        return []
    elif fault == "bad_logprobs":
        choice["logprobs"] = {"tokens": ["8"], "token_logprobs": [], "top_logprobs": []}
    elif fault == "nan_logprobs":
        choice["logprobs"] = {"content": [{"token": "8", "logprob": float("nan"), "top_logprobs": []}]}
    elif fault == "filter":
        choice["finish_reason"] = "content_filter"
    elif fault == "refusal":
        choice["message"] |= {"content": None, "refusal": "I will not judge."}
        choice["finish_reason"] = "stop"
    return choices
