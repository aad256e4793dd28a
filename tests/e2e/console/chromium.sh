#!/bin/sh
# A browser for the console's tests: Chromium, or Chrome.
for program in chromium chromium-browser google-chrome; do
    command -v "$program" >/dev/null && exit 0
done
exec sh "$(dirname "$0")/../../../deploy/programs.sh" chromium=chromium,fonts-dejavu-core
