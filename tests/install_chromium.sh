#!/usr/bin/env bash
# Headless Chromium for the browser tests, from the distribution's packages; does nothing if it is installed.
set -euo pipefail
command -v chromium >/dev/null && exit 0
run=""; [ "$(id -u)" -eq 0 ] || run=sudo
$run apt-get update -qq
$run apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
