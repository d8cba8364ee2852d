#!/bin/sh
# Pins the newest versions of all requirements, with hashes for every platform and no index address.
#
#     sh tools/lock.sh VENV
set -eu

uv="$1/bin/uv"
"$uv" --version >/dev/null 2>&1 || uv=uv
export UV_PYTHON_DOWNLOADS=never

pin() {
    output=$1
    shift
    "$uv" pip compile --quiet --upgrade --generate-hashes --universal --python-version "${newer:-3.11}" \
        --no-emit-index-url --custom-compile-command 'make lock' -o "$output" "$@"
}

pin requirements/uv.txt requirements/uv.in
pin requirements/dev.txt pyproject.toml requirements/dev.in
pin requirements/user.txt pyproject.toml requirements/user.in
pin requirements/image.txt pyproject.toml requirements/image.in \
    --extra run --extra postgres --extra encryption --extra otel
pin requirements/scale.txt pyproject.toml requirements/scale.in
pin requirements/suites.txt pyproject.toml requirements/suites.in
pin requirements/release.txt pyproject.toml requirements/release.in
pin requirements/matrix.txt pyproject.toml requirements/matrix.in
newer=3.12 pin requirements/claude.txt --no-deps requirements/claude.in
for pins in requirements/peers/*.in; do pin "${pins%.in}.txt" "$pins"; done
for pins in requirements/adapters/*.in; do
    pin "${pins%.in}.txt" pyproject.toml --extra "$(basename "$pins" .in)" "$pins"
done
