"""Several judges in one server: adapters on one base, by name."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from judgelm.errors import ConfigError, ModelError
from judgelm.judge import Judge
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serialization import judgment_row
from judgelm.serving.app import create_app
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.judges import adapter_handlers, read_adapters
from judgelm.serving.settings import ServerSettings
from tests.support.served import CHAT, error_of
from tests.support.tiny_judges import TEMPLATE, word_sample

OPTIONS = {"distribution": True, "both_orders": True}
CARD = Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha, scale=(1, 9))


@pytest.fixture(scope="module")
def adapters(tiny_adapters, tmp_path_factory):
    """A folder with two adapters that have cards, `kind` with scores of 1 to 9 and `safe` with 1 to 5."""
    folder = tmp_path_factory.mktemp("adapters")
    for name, source, scale in zip(("kind", "safe"), tiny_adapters, ((1, 9), (1, 5)), strict=True):
        shutil.copytree(source, folder / name)
        write_card(folder / name, Card(template=TEMPLATE, template_sha=CARD.template_sha, scale=scale))
    return folder


@pytest.fixture(scope="module")
def base(tiny_judge, tmp_path_factory):
    """A model that is no judge itself."""
    folder = shutil.copytree(tiny_judge, tmp_path_factory.mktemp("base") / "base")
    (folder / "judge.json").unlink()
    return folder


@contextmanager
def serving(base, adapters, names, **settings):
    """A client of a server with these adapters."""
    chosen = {name: str(adapters / name) for name in names}
    with Judge(str(base), dtype="float32", adapters=tuple(chosen.values())) as judge:
        worker = EngineWorker(judge.engine)
        try:
            handler = JudgeHandler(judge, worker)
            app = create_app(handler, ServerSettings(model="base", **settings), adapter_handlers(handler, chosen))
            with TestClient(app, base_url="http://localhost") as client:
                yield client
        finally:
            worker.close()


@pytest.fixture(scope="module")
def two(base, adapters):
    with serving(base, adapters, ("kind", "safe")) as client:
        yield client


def row(seed):
    sample = word_sample(seed)
    return {"question": sample.question, "answer_1": sample.answers[0], "answer_2": sample.answers[1]}


def judged(client, name, seeds=range(6)):
    reply = client.post("/v1/judge", json={"judge": name, "options": OPTIONS, "samples": [row(seed) for seed in seeds]})
    assert reply.status_code == 200, reply.text
    return [compared(judgment) for judgment in reply.json()["judgments"]]


def compared(judgment):
    failure = judgment["failure"] and judgment["failure"]["code"]
    chance = judgment.get("probability")
    return judgment["verdict"], judgment["scores"], failure, None if chance is None else pytest.approx(chance, abs=1e-4)


def compared_row(judgment):
    return compared(json.loads(json.dumps(judgment_row(judgment))))


def alone(base, adapter, seeds=range(6)):
    """The same judgments by the adapter alone."""
    with Judge(str(base), adapter=str(adapter), dtype="float32") as judge:
        rows = [row(seed) for seed in seeds]
        made = [judge.compare(each["question"], each["answer_1"], each["answer_2"], distribution=True) for each in rows]
    return [compared_row(judgment) for judgment in made]


def test_each_name_is_answered_as_by_its_adapter_alone(two, tiny_judge, adapters):
    with ThreadPoolExecutor(4) as threads:  # all at once, so that passes hold tokens of both
        asked = [(name, threads.submit(judged, two, name)) for name in ("kind", "safe", "kind", "safe")]
        answered = [(name, future.result()) for name, future in asked]
    expected = {name: alone(tiny_judge, adapters / name) for name in ("kind", "safe")}
    assert all(judgments == expected[name] for name, judgments in answered)
    assert expected["kind"] != expected["safe"]


def test_models_show_each_judges_card_and_the_base_alone_where_it_is_a_judge(two, tiny_judge, adapters):
    models = two.get("/v1/models").json()["data"]
    shown = [(model["id"], model["judge"]["scale"], model["judge"]["base"]) for model in models]
    assert shown == [("kind", [1, 9], "base"), ("safe", [1, 5], "base")]
    assert models[0]["judge"]["template"] == TEMPLATE
    assert two.get("/v1/models/safe").json()["judge"]["mode"] == "pair"
    with serving(tiny_judge, adapters, ("kind",)) as client:
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["base", "kind"]
        assert judged(client, None) == judged(client, "base") != judged(client, "kind")


def test_an_unknown_name_is_refused_and_none_is_the_first(two):
    reply = two.post(CHAT, json={"model": "gpt-4", "messages": [{"role": "user", "content": "hello"}]})
    assert (reply.status_code, "'gpt-4' not found; available: kind, safe" in error_of(reply)["message"]) == (404, True)
    assert two.post("/v1/judge", json=row(1) | {"judge": 5}).status_code == 400
    assert judged(two, None) == judged(two, "kind")


def test_metrics_name_the_judge(two):
    judged(two, "safe")
    text = two.get("/metrics").text
    for metric in ('judge="safe",route="/v1/judge",status="200"', 'judgelm_prompt_tokens_total{judge="safe"}'):
        assert metric in text


def test_a_judge_shares_its_engine_with_adapters_alone(tiny_judge, adapters, tiny_adapters, tmp_path):
    with pytest.raises(ConfigError, match="does not support adapters"):
        Judge("8 6", engine="scripted", adapters=(str(adapters / "kind"),))
    with Judge(str(tiny_judge), dtype="float32") as judge:
        with pytest.raises(ModelError, match=r"judge\.json not found"):
            judge.with_adapter(str(tiny_adapters[0]))
        shutil.copytree(adapters / "kind", tmp_path / "thinks")
        write_card(tmp_path / "thinks", Card(template=TEMPLATE, template_sha=CARD.template_sha, thinking="on"))
        with pytest.raises(ModelError, match="trained with thinking on"):
            judge.with_adapter(str(tmp_path / "thinks"))
        kind, pair = judge.with_adapter(str(adapters / "kind")), row(2)
        direct = kind.compare(pair["question"], pair["answer_1"], pair["answer_2"], distribution=True)
        kind.close()  # not the engine's owner
        assert judge.compare(pair["question"], pair["answer_1"], pair["answer_2"]).failure is None
        assert kind.engine.describe()["model"]["adapter"] == str(adapters / "kind")
    assert [compared_row(direct)] == alone(tiny_judge, adapters / "kind", [2])


@pytest.mark.parametrize("option", ["kind", "=adapter", "kind=", "kind=a kind=b"])
def test_options_of_judges(option):
    with pytest.raises(ConfigError, match="--judge"):
        read_adapters(option.split())
    assert read_adapters(["kind=a", "safe=b=c"]) == {"kind": "a", "safe": "b=c"}
