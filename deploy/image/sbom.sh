#!/bin/sh
# The image's SBOM in CycloneDX, in the build stage: Debian's packages by debsbom, Python's by cyclonedx-py, the interpreter
# where it is neither's by collect.py, merged under the image's name. The same contents give the same SBOM.
#
#   sbom.sh NOTES ENVIRONMENT PYPROJECT NAME VERSION OUT      OUT ends in .cdx.json, as debsbom writes it
#
# What else is in an image stands as another NOTES/*.cdx.json.
set -eu
notes=$1 environment=$2 pyproject=$3 name=$4 version=$5 out=$6
tools/bin/cyclonedx-py environment --output-reproducible --pyproject "$pyproject" -o "$notes/python.cdx.json" "$environment/bin/python3"
serial=$(cat "$notes/packages" "$notes"/*.cdx.json | sha256sum \
    | sed -E 's/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*/\1-\2-8\3-8\4-\5/') # version 8 of RFC 9562: of one's own making
tools/bin/debsbom generate --from-pkglist -t cdx --cdx-schema-version 1.6 -o "$notes/debian" <"$notes/packages"
mkdir -p "$(dirname "$out")"
tools/bin/debsbom merge -t cdx --cdx-schema-version 1.6 --omit-roots --cdx-serialnumber "$serial" \
    --timestamp "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" --distro-name "$name" --distro-version "$version" \
    -o "${out%.cdx.json}" "$notes"/*.cdx.json
