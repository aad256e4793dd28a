#!/bin/sh
# The shells that `completion` has scripts for. Where one is missing and this is root on Debian or Ubuntu, it is installed
# with apt-get. Elsewhere its absence is an error.
set -eu
missing=
for program in fish zsh; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "shells: not installed:$missing. On Debian or Ubuntu: sudo apt-get install$missing" >&2
    exit 1
fi

echo "shells: apt-get install$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Retries=3 update -qq >&2
# shellcheck disable=SC2086 # one word for each package
apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends $missing >&2
