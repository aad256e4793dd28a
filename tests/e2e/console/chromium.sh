#!/bin/sh
# A browser for the console's tests: Chromium. Where it is missing and this is root on Debian or Ubuntu, it is installed
# with apt-get, together with what it needs. Elsewhere its absence is an error.
set -eu

for program in chromium chromium-browser google-chrome; do
    command -v "$program" >/dev/null && exit 0
done

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "console: chromium is not installed. On Debian or Ubuntu: sudo apt-get install chromium" >&2
    exit 1
fi

echo "console: apt-get install chromium" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Retries=3 update -qq >&2
apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends chromium fonts-dejavu-core >&2
