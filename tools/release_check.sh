#!/bin/sh
# A dry run of a release: builds both files, checks them, installs the wheel alone, writes the bill of materials.
#
#     sh tools/release_check.sh VENV    (an environment with requirements/release.txt)
set -eu

bin=$1/bin
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
largest=1400000  # bytes of the wheel: nearly all of them are source, so more means that something else got in

rm -rf dist
"$bin/python" -m hatchling build
"$bin/twine" check --strict dist/*
size=$(wc -c < "$(ls dist/*.whl)")
echo "the wheel has $size bytes"
[ "$size" -lt "$largest" ] || { echo "it must have fewer than $largest" >&2; exit 1; }

# What is in the sdist must be enough to build the same wheel.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar -xzf dist/*.tar.gz -C "$folder"
(cd "$folder"/lamina-* && "$root/$bin/python" -m hatchling build -t wheel -d "$folder/again" >/dev/null)
"$bin/python" -m zipfile --list dist/*.whl | awk 'NR > 1 { print $1, $NF }' | sort > "$folder/one"
"$bin/python" -m zipfile --list "$folder"/again/*.whl | awk 'NR > 1 { print $1, $NF }' | sort > "$folder/two"
cmp "$folder/one" "$folder/two" || { echo "the sdist builds another wheel" >&2; exit 1; }

"$bin/cyclonedx-py" requirements requirements/user.txt --of JSON --output-reproducible \
    -o dist/lamina-sbom.cdx.json
"$bin/python" -c 'import json; print(len(json.load(open("dist/lamina-sbom.cdx.json"))["components"]), "components in the SBOM")'
"$bin/hadolint" deploy/Dockerfile
"$bin/python" -m tools.man > dist/lamina.1
sh tools/base_install.sh "$bin/python"
echo "dist/ is ready: $(ls dist | tr '\n' ' ')"
