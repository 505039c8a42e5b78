#!/usr/bin/env bash
# Install each distribution of a folder into an empty environment, with pip and (if available) uv, and judge a pair with
# it outside the checkout:  tests/packaging/install_distributions.sh dist [PYTHON]
# The base has no torch. pip uses its own settings for the index; uv ignores them and reads UV_EXTRA_INDEX_URL and
# UV_FIND_LINKS.
set -euo pipefail

dist=$(realpath "$1") python=${2:-python3}
constraints=$(realpath "$(dirname "$0")/../../constraints.txt")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
printf '{"id": "1", "question": "What is 2 + 2?", "answer_1": "4", "answer_2": "5"}\n' > pairs.jsonl

judge_a_pair() {  # with the programs of an environment
    "$1/bin/judgelm" --version
    "$1/bin/judgelm-batch" pairs.jsonl -o "$1.jsonl" --engine scripted --model "8 6" --quiet
    "$1/bin/python" -c "
import json, sys
with open('$1.jsonl') as file:
    [row] = map(json.loads, file)
sys.exit(row['scores'] != [8.0, 6.0])"
    rm -rf "$1"
}

for file in "$dist"/*.whl "$dist"/*.tar.gz; do
    echo "== pip: $(basename "$file")"
    "$python" -m venv with-pip
    with-pip/bin/pip install -qq --no-compile -c "$constraints" "$file"
    judge_a_pair with-pip
done

if command -v uv > /dev/null; then
    file=$(echo "$dist"/*.whl)
    echo "== uv: $(basename "$file")"
    uv venv --quiet --python "$python" with-uv
    # An extra index may have the CPU's build of torch, and older versions of other packages.
    uv pip install --quiet --python with-uv/bin/python --constraint "$constraints" \
        --index-strategy unsafe-best-match "$file"
    judge_a_pair with-uv
fi
