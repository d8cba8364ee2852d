#!/bin/sh
# Installs coding agents from npm, each in a folder of its own under .clients/: nothing of theirs is in this
# repository or in its environment. What is there already is left alone.
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
        *) echo "clients: there is no client $1" >&2; exit 1 ;;
    esac
}

[ $# -gt 0 ] || set -- claude codex gemini opencode qwen
command -v npm >/dev/null 2>&1 || { echo "clients: npm is missing; install Node 20 or newer" >&2; exit 1; }
for name in "$@"; do
    package=$(package_of "$name")
    home=".clients/$name"
    [ -e "$home/node_modules/.bin/$name" ] && continue
    echo "Installing $package in $home"
    mkdir -p "$home"
    npm install --silent --no-audit --no-fund --prefix "$home" "$package"
done
