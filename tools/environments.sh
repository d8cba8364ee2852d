#!/bin/sh
# Makes one virtual environment for each file of pinned requirements in requirements/KIND/, under .KIND/: the
# libraries that the lab compares with (peers), or the frameworks that have an adapter (adapters). What is
# there and up to date is left alone; nothing is built from source, and no version is installed that is not
# pinned by hash.
#
#     sh tools/environments.sh VENV KIND [NAME...]    (all of them unless told)
set -eu

venv=$1
kind=$2
shift 2
uv="$venv/bin/uv"
"$uv" --version >/dev/null 2>&1 || uv=uv
export UV_PYTHON_DOWNLOADS=never

install() {
    name=$1
    home=".$kind/$name"
    pins="requirements/$kind/$name.txt"
    [ -f "$pins" ] || { echo "make: no requirements/$kind/$name.txt" >&2; exit 1; }
    [ "$home/.installed" -nt "$pins" ] && return
    echo "Installing $name in $home"
    "$uv" venv --quiet --clear --python "$venv/bin/python" "$home"
    "$uv" pip install --quiet --python "$home/bin/python" --require-hashes --no-build --compile-bytecode -r "$pins"
    touch "$home/.installed"
}

if [ $# -eq 0 ]; then
    for pins in "requirements/$kind"/*.txt; do
        set -- "$@" "$(basename "$pins" .txt)"
    done
fi
for name in "$@"; do
    install "$name"
done
