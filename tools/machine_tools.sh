#!/bin/sh
# Installs what some tests need of the machine: Chromium and PgBouncer from Debian's packages, and pgvector where the
# one of the test server is compiled for newer processors. What cannot be installed is said; its tests are then left out.
#
#     sh tools/machine_tools.sh VENV
set -u

venv=$1

install_package() {
    root=""
    [ "$(id -u)" -eq 0 ] || root="sudo -n"
    # A new machine has no lists of packages.
    $root apt-get install -y --quiet --no-install-recommends "$1" >/dev/null 2>&1 \
        || { $root apt-get update --quiet && $root apt-get install -y --quiet --no-install-recommends "$1"; } >/dev/null 2>&1 \
        || echo "$1 is not installed; tests that need it are left out"
}

# Any browser of this family will do (tests/browser/browser.py). Without one the pages are opened as files alone.
for browser in chromium chromium-browser google-chrome microsoft-edge none; do
    command -v "$browser" >/dev/null 2>&1 && break
done
[ "$browser" != none ] || install_package chromium
command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] || install_package pgbouncer

# A processor without an instruction of the extension ends the server: see tests/servers/postgres.py.
"$venv/bin/python" - <<'PYTHON' && exit 0
import sys
from tests.servers.postgres import carried, pgvector_fault
fault = pgvector_fault(carried()[0])
print(fault or "pgvector works here")
sys.exit(bool(fault))
PYTHON

server=$("$venv/bin/python" -c 'from tests.servers.postgres import carried; print(carried()[0].parent)')
control="$server/share/postgresql/extension/vector.control"
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$control")
source=${PGVECTOR_SOURCE:-build/pgvector}
[ -d "$source" ] || git clone --quiet --depth 1 --branch "v$version" https://github.com/pgvector/pgvector "$source" \
    || { echo "pgvector $version could not be fetched; tests that need it are left out"; exit 0; }
# The flags of the server's own compiler may be unknown to this one, so they are given anew.
make -s -C "$source" OPTFLAGS="" CFLAGS="-O2 -fPIC" PG_CONFIG="$server/bin/pg_config" vector.so \
    || { echo "pgvector $version could not be compiled; tests that need it are left out"; exit 0; }
# Not written over: the file may be a link into an installer's cache.
cp --remove-destination "$source/vector.so" "$server/lib/postgresql/vector.so"
echo "pgvector $version was compiled for this processor"
