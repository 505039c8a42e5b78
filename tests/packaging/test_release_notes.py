"""The changelog's section of a release, by the script that the release workflow runs."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".github/release_notes.py"
CHANGELOG = """# Changelog

## [Unreleased]

### Added
- Not yet.

## [1.2.0] - 2027-01-31

### Added
- A thing.

## [1.1.0] - 2026-12-01

### Fixed
- Another.

[1.1.0]: https://example.org/1.1.0
"""


def notes(folder, tag, *, version="1.2.0", changelog=CHANGELOG):
    (folder / "judgelm").mkdir()
    (folder / "judgelm/package.py").write_text(f'VERSION = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    return runpy.run_path(str(SCRIPT))["release_notes"](tag, folder)


@pytest.mark.parametrize(
    ("version", "section"),
    [("1.2.0", "### Added\n- A thing.\n"), ("1.1.0", "### Fixed\n- Another.\n")],  # the last ends before the links
)
def test_a_versions_section_alone(tmp_path, version, section):
    assert notes(tmp_path, f"v{version}", version=version) == section


@pytest.mark.parametrize(
    ("version", "entries", "message"),
    [
        ("1.2.0", "", r"^tag v1\.3\.0: judgelm/package\.py has 1\.2\.0; "),
        *(
            ("1.3.0", entries, r"no entries below a heading '## \[1\.3\.0\] - YYYY-MM-DD'")
            for entries in ("", "\n## [1.3.0] - soon\n- A thing.\n", "\n## [1.3.0] - 2027-02-01\n\n")
        ),
    ],
)
def test_another_tag_and_a_version_without_entries_are_refused(tmp_path, version, entries, message):
    with pytest.raises(ValueError, match=message):
        notes(tmp_path, "v1.3.0", version=version, changelog=f"# Changelog\n{entries}")
