#!/bin/sh
# A library that shifts the clock of a process: libfaketime. Where it is missing and this is root on Debian or Ubuntu, it is
# installed with apt-get. Elsewhere its absence is an error.
set -eu

for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1; do
    [ -e "$library" ] && exit 0
done

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "faults: libfaketime is not installed. On Debian or Ubuntu: sudo apt-get install libfaketime" >&2
    exit 1
fi

echo "faults: apt-get install libfaketime" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Retries=3 update -qq >&2
apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends libfaketime >&2
