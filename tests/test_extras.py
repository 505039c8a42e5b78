"""The command that installs an extra works where the user stands, and nothing names a project of the index."""

import re
from pathlib import Path

import pytest

from judgelm.package import extra_of, install_hint, missing_packages

ROOT = Path(__file__).parents[1]
FOLDERS = [".ci", ".github", "benchmarks", "configs", "data_tools", "docs", "examples"]
FOLDERS += ["judgelm", "serve", "tests", "train"]
FROM_THE_INDEX = re.compile(
    r"judgelm\\?\["  # judgelm with extras
    r"|(?:pip|pipx|uv|poetry|conda|pdm)\b.*\b(?:install|add|download)\b(?: +-\S+)* +['\"]?judgelm(?![\w./-])"
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution `judgeling` with these requirements; its site-packages."""

    def install(*requires):
        info = tmp_path / "judgeling-1.0.dist-info"
        info.mkdir()
        extras = sorted({line.split("extra == ")[1].strip('"') for line in requires if "extra == " in line})
        lines = [f"Requires-Dist: {line}" for line in requires] + [f"Provides-Extra: {extra}" for extra in extras]
        info.joinpath("METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", "Name: judgeling", "Version: 1", *lines])
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        return tmp_path

    return install


def make_clone(folder, *, constraints=True, name="judgelm"):
    folder.mkdir(exist_ok=True)
    folder.joinpath("pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    if constraints:
        folder.joinpath("constraints.txt").touch()
    return folder


def test_in_a_clone_the_clone_is_installed(tmp_path, monkeypatch):
    clone = make_clone(tmp_path / "clone")
    monkeypatch.chdir(clone)
    assert install_hint("train", root=clone) == 'pip install -e ".[train]" -c constraints.txt'
    (clone / "constraints.txt").unlink()
    assert install_hint("train", root=clone) == 'pip install -e ".[train]"'


def test_from_elsewhere_the_clone_is_named_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clone = make_clone(tmp_path / "a clone")
    expected = f"pip install -e '{clone}[vllm]' -c '{clone}/constraints.txt'"
    assert install_hint("vllm", root=clone) == expected


def test_without_a_clone_the_packages_are_named(installed):
    site = installed(
        "base>=1", 'trl<1.17,>=1.16; extra == "train"', 'plain; extra == "train"', 'docs[python]>=2; extra == "train"',
        'elsewhere; sys_platform == "nowhere" and extra == "train"', 'other; extra == "serve"',
    )  # fmt: skip
    hint = install_hint("train", distribution="judgeling", root=site)
    # neither the base's package nor another system's
    assert hint == "pip install 'trl>=1.16,<1.17' plain 'docs[python]>=2'"


def test_an_extra_of_other_extras_names_their_packages(installed):
    site = installed(
        'scipy>=1.12; extra == "report"', 'judgeling[report]; extra == "studies"', 'pandas; extra == "studies"'
    )
    assert install_hint("studies", distribution="judgeling", root=site) == "pip install 'scipy>=1.12' pandas"


def test_a_missing_module_leads_to_the_first_extra_that_lists_it_itself(installed):
    installed('scikit-learn; extra == "report"', 'judgeling[report]; extra == "studies"', "base")
    extras = [extra_of(module, "judgeling") for module in ("sklearn.metrics", "base", "elsewhere")]
    assert extras == ["report", None, None]
    assert extra_of("sklearn", "never-installed") is None


def test_another_packages_pyproject_in_site_packages_is_no_clone(installed):
    site = make_clone(installed('trl; extra == "train"'), name="careless")
    assert install_hint("train", distribution="judgeling", root=site) == "pip install trl"


def test_missing_packages_are_installed_alone_with_their_declared_versions(installed, tmp_path):
    site = installed(
        'pytest>=1; extra == "train"', 'absent-one<3,>=2; extra == "train"', 'absent-two; extra == "train"'
    )
    used = ["pytest", "absent-one", "undeclared"]
    message = missing_packages("train", used, distribution="judgeling", root=site)
    assert message == "absent-one, undeclared not installed; run: pip install 'absent-one>=2,<3' undeclared"
    assert missing_packages("train", ["pytest"], distribution="judgeling", root=site) == ""
    assert missing_packages("train", ["absent_two"], distribution="never-installed", root=site).endswith("absent_two")


@pytest.mark.parametrize("extra", ["train", "missing"])
def test_what_was_never_installed_is_installed_from_a_clone(tmp_path, extra):
    hint = install_hint(extra, distribution="never-installed", root=tmp_path)
    assert hint == f'pip install -e ".[{extra}]" in a clone of judgelm'


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("pip install 'judgelm[vllm]'", True),
        ("uv pip install --quiet judgelm==1", True),
        ('pipx install "judgelm"', True),
        ("cd ~/judgelm && pip install '.[vllm]'", False),
        ("pip install . # judgelm", False),
    ],
)
def test_an_installation_from_the_index_is_seen_and_one_from_a_clone_is_none(text, seen):
    assert bool(FROM_THE_INDEX.search(text)) == seen


def test_nothing_installs_judgelm_from_the_index():
    """No text file of the repository, since anyone could register the name."""
    own_files = [path for path in ROOT.iterdir() if path.is_file()]
    own_files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    findings = []
    for path in own_files:
        if path == ROOT / "pyproject.toml":
            continue  # its extras name each other, which pip resolves to the same installation
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except ValueError:
            continue  # not text
        places = (f"{path.relative_to(ROOT)}:{number}: {line}" for number, line in enumerate(lines, 1))
        findings += [place for place in places if path != Path(__file__) and FROM_THE_INDEX.search(place)]
    assert findings == []
