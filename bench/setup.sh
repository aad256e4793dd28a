#!/bin/sh
# The programs that the benchmark needs from the system.
exec sh "$(dirname "$0")/../deploy/programs.sh" nginx=nginx-light haproxy wrk
