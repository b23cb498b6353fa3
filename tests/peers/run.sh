#!/usr/bin/env bash
# Programs on other SDKs, in front of the gateway and behind it: the Python SDK 1 and 2, and rmcp
# 0.10, the last that speaks HTTP+SSE. Every client with every server. It needs Python 3.10 or
# later, cargo and the network for packages; what is built is kept in the target directory.
#
#   tests/peers/run.sh [WORDS]     only the pairs whose name contains WORDS
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}

for version in 1.30.0 2.3.0; do
  environment=$target/peers/mcp-$version
  if [ ! -e "$environment/ready" ]; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "mcp==$version"
    touch "$environment/ready"
  fi
done
cargo build --quiet --locked --manifest-path tests/peers/rmcp-0.10/Cargo.toml \
  --target-dir "$target/peers"
. tests/program.sh

python3 tests/peers/documented_programs.py "$target"
exec python3 tests/peers/pairs.py "$target" "${1:-}"
