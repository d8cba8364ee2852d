#!/bin/sh
# Installs what some tests need of the machine: Chromium and PgBouncer from Debian's packages. What cannot be installed is
# said; its tests are then left out.
#
#     sh tools/machine_tools.sh
set -u

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
