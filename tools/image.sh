#!/bin/sh
# Builds the image of the Containerfile with what is there: tools/image.sh NAME [OPTION…]. Status 3: nothing can build it.
set -eu
cd "$(dirname "$0")/.."
name=$1
shift
for builder in buildah podman docker; do
    if command -v "$builder" > /dev/null && "$builder" info > /dev/null 2>&1; then
        ignore=--ignorefile
        [ "$builder" = docker ] && exec docker build --file Containerfile --tag "$name" "$@" .
        exec "$builder" build "$ignore" .containerignore --file Containerfile --tag "$name" "$@" .
    fi
done
echo "image: neither buildah, podman nor docker works here; install one of them" >&2
exit 3
