"""The changelog's section of the version that a tag names.

Ends with 1 where tag, version and changelog disagree.

python .github/release_notes.py v0.1.0 > notes.md
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def release_notes(tag: str, root: Path) -> str:
    """The body of the section `## [X.Y.Z] - YYYY-MM-DD`.

    Raises:
        ValueError: the tag differs from `judgelm/package.py`, or its section of CHANGELOG.md is missing or empty.
    """
    version_file = root / "judgelm/package.py"
    version = re.search(r'^VERSION = "([^"]+)"', version_file.read_text(encoding="utf-8"), re.M)
    if version is None or tag != f"v{version[1]}":
        stated = version[1] if version else "none"
        raise ValueError(f"tag {tag}: judgelm/package.py has {stated}; tag a commit with this version")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## \[{re.escape(version[1])}\] - \d{{4}}-\d\d-\d\d$"
    section = re.search(rf"{heading}\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", text, re.M | re.S)
    if section is None or not section[1].strip():
        raise ValueError(
            f"CHANGELOG.md: no entries below a heading '## [{version[1]}] - YYYY-MM-DD'; "
            "rename the section 'Unreleased' and open a new one above it"
        )
    return section[1].strip() + "\n"


def main() -> int:
    """Print the notes; return 0, or 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="vX.Y.Z")
    try:
        sys.stdout.write(release_notes(parser.parse_args().tag, ROOT))
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
