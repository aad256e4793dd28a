#!/bin/sh
# Moves finished event files to where the pipeline reads them: whole, and each once.
#
# A finished file never changes and its name has the sidecar's, so it is moved as it is, compressed as it is. What is killed
# between the copy and the removal is found there already by the next turn, and only removed. Files that begin with a
# dot are being written and stay.
#
#   EVENTS       the folder that events.path names
#   DESTINATION  as rclone writes it: remote:bucket/path. The remote comes from RCLONE_CONFIG_<REMOTE>_… variables
#   EVERY        seconds between two turns
set -u
: "${EVENTS:=/var/lib/pulsar-ingress-proxy/events}" "${EVERY:=60}"
: "${DESTINATION:?say where to, as in store:my-bucket/pulsar-ingress/events}"

ship() {
	rclone move "$EVENTS" "$DESTINATION" --include '/[^.]*.jsonl' --include '/[^.]*.jsonl.gz' \
		--immutable --no-traverse --log-level NOTICE
}

# At the end one turn more, for what the sidecar finished last: this container ends after it.
ending=
pause=
trap 'ending=yes; [ -z "$pause" ] || kill "$pause" 2>/dev/null' TERM INT
while [ -z "$ending" ]; do
	ship || echo "not everything was moved; what is left is tried again in $EVERY s" >&2
	sleep "$EVERY" &
	pause=$!
	[ -n "$ending" ] || wait "$pause"
	kill "$pause" 2>/dev/null
	pause=
done
ship
