#!/bin/sh
# What it takes to build and run the image without a Docker daemon; with one, nothing.
set -eu
docker info >/dev/null 2>&1 && exit 0
sh "$(dirname "$0")/../programs.sh" buildah debootstrap runc || {
    echo "image: no Docker daemon answers; with one, these programs are not needed" >&2
    exit 1
}
