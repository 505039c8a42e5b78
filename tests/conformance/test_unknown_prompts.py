"""Real clients read every reply to a prompt that no dialect recognises, if they send a schema or force a call."""

import math

import pytest

from benchmarks.unknown_clients import KINDS, texts

pytestmark = pytest.mark.conformance

REPLIES = 20
FORMS = [
    pytest.param(client, kinds, id=f"{client}-{form}")
    for client, forms in KINDS.items()
    for form, kinds in forms.items()
    if form in ("schema", "tool")
]


@pytest.mark.parametrize(("name", "kinds"), FORMS)
def test_a_client_reads_each_reply_to_its_schema(client, answering_server, name, kinds):
    found = client(name, base_url=answering_server, kinds=kinds, **texts(math.ceil(REPLIES / len(kinds))))
    assert sum(map(len, found.values())) >= REPLIES
    assert {kind: values.count(None) for kind, values in found.items()} == dict.fromkeys(kinds, 0)
