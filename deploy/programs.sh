#!/bin/sh
# Installs programs that a target of the Makefile needs from the system. Where one is missing and this is root on Debian or
# Ubuntu, apt-get installs it, and no service is started. Elsewhere its absence is an error.
#
#   programs.sh PROGRAM[=PACKAGE[,PACKAGE]...]...      the package is called like the program if none is given
set -eu
PATH=$PATH:/usr/sbin:/usr/local/sbin

missing='' packages=''
for entry in "$@"; do
    command -v "${entry%%=*}" >/dev/null && continue
    missing="$missing ${entry%%=*}"
    packages="$packages $(echo "${entry#*=}" | tr , ' ')"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "programs: not installed:$missing. On Debian or Ubuntu: sudo apt-get install$packages" >&2
    exit 1
fi

echo "programs: apt-get install$packages" >&2
policy=/usr/sbin/policy-rc.d # 101: the packages may not start their services
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Retries=3 update -qq >&2
# shellcheck disable=SC2086 # one word for each package
apt-get -o Acquire::Retries=3 install -qq -y --no-install-recommends $packages >&2
