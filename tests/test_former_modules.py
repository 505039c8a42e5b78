"""Modules and classes that the documentation of version 0.1 named can still be imported."""

from importlib import import_module

import pytest

from judgelm.former_names import FORMER_MODULES, FORMER_SYMBOLS
from judgelm.runs.run_files import read_judgments


@pytest.mark.parametrize(("former", "current"), FORMER_MODULES.items())
def test_a_former_module_has_the_attributes_of_todays(former, current):
    today = import_module(current)
    name = next(name for name, value in vars(today).items() if getattr(value, "__module__", "") == current)
    with pytest.warns(DeprecationWarning, match=f"{former}.{name} is now {current}.{name}"):
        assert getattr(import_module(former), name) is getattr(today, name)


@pytest.mark.parametrize(("former", "current"), FORMER_SYMBOLS.items())
def test_a_former_symbol_is_todays(former, current):
    module, _, name = former.rpartition(".")
    container, _, symbol = current.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{former} is now {current}"):
        assert getattr(import_module(module), name) is getattr(import_module(container), symbol)


def test_a_script_of_version_0_1_imports_what_it_did():
    with pytest.warns(DeprecationWarning, match="read_judgments"):
        from judgelm.runfile import read_judgments as former_read_judgments
    assert former_read_judgments is read_judgments


def test_other_names_are_errors():
    with pytest.raises(ImportError, match="nothing"):
        from judgelm.runfile import nothing  # noqa: F401
    with pytest.raises(ImportError, match="nothing"):
        from judgelm.records import nothing as also_nothing  # noqa: F401
