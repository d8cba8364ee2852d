#!/bin/sh
# A dry run of a release: builds both files, checks them, installs the wheel alone, writes the bill of materials.
#
#     sh tools/release_check.sh VENV    (an environment with requirements/release.txt)
set -eu

bin=$1/bin
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
largest=1600000  # bytes of the wheel
largest_rest=80000  # bytes of what is neither Python nor about the package: pages, styles, lists of models

rm -rf dist
"$bin/python" -m hatchling build
"$bin/twine" check --strict dist/*
size=$(wc -c < "$(ls dist/*.whl)")
echo "the wheel has $size bytes"
[ "$size" -lt "$largest" ] || { echo "it must have fewer than $largest" >&2; exit 1; }
rest=$("$bin/python" -c 'import sys, zipfile; print(sum(
    file.compress_size for file in zipfile.ZipFile(sys.argv[1]).infolist()
    if not file.filename.endswith(".py") and ".dist-info/" not in file.filename))' dist/*.whl)
echo "$rest of them are not Python"
[ "$rest" -lt "$largest_rest" ] || { echo "they must be fewer than $largest_rest" >&2; exit 1; }

# What is in the sdist must be enough to build the same wheel.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar -xzf dist/*.tar.gz -C "$folder"
(cd "$folder"/lamina_context-* && "$root/$bin/python" -m hatchling build -t wheel -d "$folder/again" >/dev/null)
"$bin/python" -m zipfile --list dist/*.whl | awk 'NR > 1 { print $1, $NF }' | sort > "$folder/one"
"$bin/python" -m zipfile --list "$folder"/again/*.whl | awk 'NR > 1 { print $1, $NF }' | sort > "$folder/two"
cmp "$folder/one" "$folder/two" || { echo "the sdist builds another wheel" >&2; exit 1; }

"$bin/cyclonedx-py" requirements requirements/user.txt --of JSON --output-reproducible \
    -o dist/lamina-sbom.cdx.json
"$bin/cyclonedx-py" requirements requirements/image.txt --of JSON --output-reproducible \
    -o dist/lamina-gateway-image-sbom.cdx.json
"$bin/python" -c 'import json; print(len(json.load(open("dist/lamina-sbom.cdx.json"))["components"]), "components in the SBOM")'
"$bin/hadolint" deploy/Dockerfile
"$bin/python" -m tools.cli_help --man > dist/lamina.1
"$bin/python" -m tools.newcomer --python "$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
echo "dist/ is ready: $(ls dist | tr '\n' ' ')"
