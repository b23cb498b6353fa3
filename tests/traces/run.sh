#!/usr/bin/env bash
# Checks the spans and metrics of running gateways at collectors that are made of the official definitions of
# OTLP (opentelemetry-proto from PyPI), over HTTP and gRPC, and `/metrics` by Prometheus' own parser. It needs Python 3.10 or later, and the network for
# packages at the first time; they are kept in the target directory.
#
#   tests/traces/run.sh
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/opentelemetry
packages=(opentelemetry-proto==1.45.2 grpcio==1.76.0 prometheus-client==0.23.1)

# A check that did not run is no success.
trap 'echo "tests/traces did NOT run to its end: see above" >&2' ERR

if [ "$(cat "$venv/packages" 2> /dev/null)" != "${packages[*]}" ]; then
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
  echo "${packages[*]}" > "$venv/packages"
fi

. tests/program.sh
PYTHONPATH=tests/traces "$venv/bin/python" tests/traces/check.py "$program"
