"""The cards of judges by name."""

import re

import pytest

from judgelm.errors import ConfigError
from judgelm.judges.cards import card_names, default_card, judge_card
from judgelm.prompts.catalog import get_template


@pytest.mark.parametrize("name", card_names())
def test_a_card_is_whole(name):
    card = judge_card(name)
    assert card.name == name
    assert get_template(card.template).id == card.template
    assert re.fullmatch("[0-9a-f]{64}", card.base.wheel_sha256)
    assert re.fullmatch("[0-9a-f]{64}", card.base.gguf_sha256)


def test_the_default_is_one_judge():
    assert default_card().name == "small-judge"
    assert [name for name in card_names() if judge_card(name).default] == ["small-judge"]


def test_a_name_without_a_card_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"judge 'smal-judge' does not exist; did you mean small-judge\?"):
        judge_card("smal-judge")
