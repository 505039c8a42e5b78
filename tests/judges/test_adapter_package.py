"""Where the small judge's adapter is installed from."""

import pytest

from judgelm.errors import ModelError
from judgelm.judges.adapter_package import install_package
from judgelm.judges.cards import judge_card


def test_without_the_distribution_in_the_index_the_error_names_the_folder_of_a_clone(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    way_out = (
        r"pip failed: .*; in a clone of judgelm's repository run: .*install small-judge --from examples/small_judge$"
    )
    with pytest.raises(ModelError, match=way_out):
        install_package(judge_card("small-judge"), "judgelm-small-judge==99.0")
