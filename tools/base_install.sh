#!/bin/sh
# Builds the wheel, installs it alone into an empty environment, and uses it: what `pip install lamina` gives.
#
#     sh tools/base_install.sh [PYTHON]
set -eu

python=${1:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet wheel --no-deps --wheel-dir "$folder" "$root"
"$folder/venv/bin/pip" --quiet install "$folder"/lamina-*.whl
cd "$folder"  # away from the checkout: only what the wheel holds can be imported
"$folder/venv/bin/pip" list --format=freeze
"$folder/venv/bin/lamina" --version
"$folder/venv/bin/lamina" demo --once
"$folder/venv/bin/python" - <<'CODE'
import lamina

request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]}
assert lamina.fit_request(request).request is request, "a request that fits is passed on as it is"
missing = [name for name in lamina.__all__ if not hasattr(lamina, name)]
assert not missing, f"not importable without extras: {missing}"
CODE
echo "the wheel works without extras"
