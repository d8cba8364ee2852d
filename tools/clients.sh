#!/bin/sh
# Installs coding agents from npm and PyPI, each in a folder of its own under .clients/: nothing of theirs is in
# this repository or in its environment. What is there already is left alone. A client that cannot be installed
# is named, and the others go on.
#
#     sh tools/clients.sh [NAME...]    (all of them unless told)
set -eu

package_of() {
    case $1 in
        claude) echo @anthropic-ai/claude-code ;;
        codex) echo @openai/codex ;;
        gemini) echo @google/gemini-cli ;;
        opencode) echo opencode-ai ;;
        qwen) echo @qwen-code/qwen-code@0.15.10 ;;
        aider) echo aider-chat ;;
        *) echo "clients: there is no client $1" >&2; exit 1 ;;
    esac
}

install_from_pypi() {
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet "$2"
}

install_from_npm() {
    command -v npm >/dev/null 2>&1 || { echo "clients: npm is missing; install Node 20 or newer" >&2; exit 1; }
    mkdir -p "$1"
    npm install --loglevel error --no-audit --no-fund --prefix "$1" "$2"
}

[ $# -gt 0 ] || set -- claude codex gemini opencode qwen aider
for name in "$@"; do
    package=$(package_of "$name")
    home=".clients/$name"
    [ -e "$home/node_modules/.bin/$name" ] || [ -e "$home/bin/$name" ] && continue
    echo "Installing $package in $home"
    case $name in
        aider) install=install_from_pypi ;;
        *) install=install_from_npm ;;
    esac
    "$install" "$home" "$package" || echo "clients: $package cannot be installed here; it is left out" >&2
done
