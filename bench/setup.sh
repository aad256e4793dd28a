#!/bin/sh
# The programs that the benchmark needs from the system: nginx, HAProxy and wrk. Where one is missing and this is root
# on Debian or Ubuntu, it is installed with apt-get, and no service is started. Elsewhere its absence is an error.
set -eu
PATH=$PATH:/usr/sbin:/usr/local/sbin

missing= packages=
for entry in nginx=nginx-light haproxy=haproxy wrk=wrk; do
    command -v "${entry%%=*}" >/dev/null && continue
    missing="$missing ${entry%%=*}"
    packages="$packages ${entry##*=}"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "bench: not installed:$missing. On Debian or Ubuntu: sudo apt-get install$packages" >&2
    exit 1
fi

echo "bench: apt-get install$packages" >&2
policy=/usr/sbin/policy-rc.d # 101: the packages may not start their services
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
# shellcheck disable=SC2086 # one word for each package
apt-get install -qq -y --no-install-recommends $packages >&2
