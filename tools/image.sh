#!/bin/sh
# Builds the gateway's container from base images that are pinned by digest, and writes the digests of all images of
# deploy/compose.yaml into deploy/.env, which Docker Compose reads. Needs Docker and its registry.
#
#     sh tools/image.sh [TAG]    (lamina-gateway:0.1.0 unless told)
set -eu

tag=${1:-lamina-gateway:0.1.0}
cd "$(dirname "$0")/.."

pin() {
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1")
    case $digest in
        sha256:*) echo "$1@$digest" ;;
        *) echo "image: the registry names no digest for $1" >&2; exit 1 ;;
    esac
}

# The images are named once: the defaults of the compose file.
name_of() {
    sed -n "s/.*\${$1:-\([^}]*\)}.*/\1/p" deploy/compose.yaml
}

python=$(pin "$(name_of PYTHON_IMAGE)")
postgres=$(pin "$(name_of POSTGRES_IMAGE)")
haproxy=$(pin "$(name_of HAPROXY_IMAGE)")
docker build --file deploy/Dockerfile --build-arg "PYTHON_IMAGE=$python" --tag "$tag" .
cat > deploy/.env <<END
LAMINA_IMAGE=$tag
PYTHON_IMAGE=$python
POSTGRES_IMAGE=$postgres
HAPROXY_IMAGE=$haproxy
END
echo "built $tag; deploy/.env has the digests"
