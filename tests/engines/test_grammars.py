"""Which grammars can be used, and which replies follow them."""

import json

import pytest

from judgelm.engines import grammars
from judgelm.engines.grammars import check_grammar, follows
from judgelm.errors import GrammarError
from judgelm.records import Grammar


def schema(**keywords):
    return Grammar("json_schema", json.dumps(keywords))


def regex(text):
    return Grammar("regex", text)


def chain(length):
    """Nested schemas, written as references so that the text is not nested."""
    links = {str(i): {"properties": {"a": {"$ref": f"#/$defs/{i + 1}"}}} for i in range(length)}
    return schema(**{"$defs": links | {str(length): {"type": "string"}}, "$ref": "#/$defs/0"})


UNUSABLE = {
    "unclosed": (regex("(a"), "unclosed"),
    "look-ahead": (regex("(?=a)b"), "look-around"),
    "back reference": (regex(r"(a)\1"), "backreferences"),
    "empty class": (regex(r"[^\s\S]"), "no text"),
    "many repeats": (regex("a{100000}"), "100,000"),
    "countless repeats": (regex("a{" + "9" * 1000 + "}"), "repeats"),
    "nested groups": (regex("(" * 1000 + "a" + ")" * 1000), "nested"),
    "surrogate": (regex("\ud800"), "surrogates"),
    "long": (regex("a" * 65537), "65,537"),
    "not JSON": (Grammar("json_schema", "{"), "invalid"),
    "a list": (Grammar("json_schema", "[1]"), "object"),
    "deep text": (Grammar("json_schema", "[" * 60000), "nested"),
    "type": (schema(type="strng"), "strng"),
    "empty enum": (schema(enum=[]), "empty"),
    "contradiction": (schema(type="integer", minimum=5, maximum=3), "minimum"),
    "unsupported keyword": (schema(type="array", uniqueItems=True), "uniqueItems"),
    "ignored keyword": (schema(**{"not": {"type": "null"}, "x-guidance": {"lenient": True}}), "not"),
    "missing definition": (schema(**{"$ref": "#/$defs/x"}), "does not exist"),
    "remote definition": (schema(**{"$ref": "http://example.com/x"}), "example.com"),
    "endless reference": (schema(**{"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}), "no text"),
    "invalid pattern": (schema(type="string", pattern="(a"), "unclosed"),
    "items that fill the memory": (schema(type="array", items={}, maxItems=10**9), "1,000,000,000"),
    "references that overflow the stack": (chain(900), "memory"),
    "slow schema": (schema(allOf=[{"type": "string", "pattern": f".*{i}.*"} for i in range(900)]), "2 s"),
}


@pytest.mark.parametrize(("grammar", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_grammars_are_rejected(grammar, words):
    with pytest.raises(GrammarError, match=words) as caught:
        check_grammar(grammar)
    assert len(str(caught.value)) < 300


TREE = {"type": "object", "properties": {"left": {"$ref": "#"}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (regex("A|B"), ["A", "B"], ["", "C", "AB", "A "]),
        (regex(r"\d"), ["1"], ["\u0663"]),
        (regex("^ab$"), ["ab"], ["^ab$"]),
        (regex(" A"), [" A", "A"], ["B"]),
        (regex("(a{1,1000}){1,1000}"), ["aaa"], ["b"]),
        (regex("(x+x+)+y"), ["x" * 500 + "y"], ["x" * 500]),
        (schema(enum=["日本", '"q"', "é"]), ['"日本"', '"\\"q\\""', '"é"'], ["日本", '"e"']),
        (
            schema(type="object", properties={'a"b\\c': {"type": "integer"}}, required=['a"b\\c']),
            ['{"a\\"b\\\\c": 1}', '{\n  "a\\"b\\\\c": 1\n}'],
            ['{"a": 1}', "{}"],
        ),
        (schema(**TREE), ['{"left": {"left": {}}}'], ['{"right": {}}']),
        (schema(type="string", maxLength=10**9), ['"x"'], ["x"]),
        (schema(), ["1", "[{}]"], ["{", "x"]),
    ],
)
def test_replies_follow_their_grammar(grammar, right, wrong):
    assert [text for text in right if not follows(grammar, text)] == []
    assert [text for text in wrong if follows(grammar, text)] == []


def test_beginnings_follow_a_grammar_if_the_whole_text_is_not_required():
    pair = regex("(yes|né) [0-9]+")
    assert follows(pair, "yes 1", whole=False)
    assert follows(pair, "n\ufffd", whole=False)
    assert not follows(pair, "no", whole=False)


def test_results_are_cached(monkeypatch):
    check_grammar(regex("cached[0-9]"))
    monkeypatch.setattr(grammars.subprocess, "run", None)
    check_grammar(regex("cached[0-9]"))
