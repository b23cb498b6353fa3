#!/usr/bin/env bash
# Both versions of the Python SDK as clients and servers, through the gateway. It needs Python 3.10
# or later, cargo and the network for packages; they are kept in the target directory.
#
#   tests/python/run.sh [WORDS]     only the pairs whose name contains WORDS
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}

for version in 1.30.0 2.3.0; do
  environment=$target/python/mcp-$version
  if [ ! -e "$environment/ready" ]; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "mcp==$version"
    touch "$environment/ready"
  fi
done
cargo build --quiet --locked --bin mcpvisor

exec python3 tests/python/pairs.py "$target" "${1:-}"
