#!/bin/sh
# The image's SBOM in CycloneDX, in the build stage: Debian's packages by debsbom, Python's by cyclonedx-py, the interpreter
# where it is neither's by collect.py, merged under the image's name. The same contents give the same SBOM.
#
#   sbom.sh NOTES ENVIRONMENT PYPROJECT VERSION OUT      OUT ends in .cdx.json, as debsbom writes it
set -eu
notes=$1 environment=$2 pyproject=$3 version=$4 out=$5
tools/bin/cyclonedx-py environment --output-reproducible --pyproject "$pyproject" -o "$notes/python.cdx.json" "$environment/bin/python3"
tools/bin/debsbom generate --from-pkglist -t cdx --cdx-schema-version 1.6 -o "$notes/debian" <"$notes/packages"
serial=$(cat "$notes/packages" "$notes/python.cdx.json" "$notes/interpreter.cdx.json" | sha256sum \
    | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/') # version 8 of RFC 9562: of one's own making
mkdir -p "$(dirname "$out")"
tools/bin/debsbom merge -t cdx --cdx-schema-version 1.6 --omit-roots --cdx-serialnumber "$serial" \
    --timestamp "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" --distro-name pulsar-ingress-proxy --distro-version "$version" \
    -o "${out%.cdx.json}" "$notes/debian.cdx.json" "$notes/interpreter.cdx.json" "$notes/python.cdx.json"
