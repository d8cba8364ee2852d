#!/bin/sh
# Makes a virtual environment with the pinned requirements and this checkout in it.
# Finds a suitable interpreter by itself, never downloads one, and installs no version that is
# not pinned by hash.
#
#     sh tools/bootstrap.sh VENV [REQUIREMENTS]    (requirements/dev.txt unless told)
set -eu

venv=$1
requirements=${2:-requirements/dev.txt}
export UV_PYTHON_DOWNLOADS=never

fail() {
    echo "make: $1" >&2
    exit 1
}

suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if suits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON cannot be run or is older than 3.11; name another, or leave it out"
    fail "no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3"
}

make_venv() {
    python=$(find_python)
    echo "Creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" && return
    rm -rf "$venv"
    fail "'$python -m venv' failed; on Debian and Ubuntu install python3-venv, or name another: make PYTHON=..."
}

# An installer on the PATH may be a shim that only prints an error, so it is asked for its version.
find_uv() {
    for candidate in "$venv/bin/uv" uv; do
        if "$candidate" --version >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r requirements/uv.txt >&2 || fail "could not install uv; is there a network connection?"
    echo "$venv/bin/uv"
}

suits "$venv/bin/python" || make_venv
uv=$(find_uv)
"$uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$requirements"
# Packages that ask for a newer Python than they need; only pip can be told so. What they need is in dev.txt.
if [ "$requirements" = requirements/dev.txt ]; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
        --ignore-requires-python -r requirements/claude.txt
fi
# The build backend is among the pinned requirements, so nothing else is fetched to build.
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation -e .
