#!/usr/bin/env bash
# Three replicas with one engine behind nginx, which chooses one of them for each request: sessions through any
# replica, kill -9 and SIGTERM under load, an engine that goes away, and one that fails over. It needs Debian's
# `redis-server` and `nginx`, and Python 3.10 or later.
#
#   tests/cluster/run.sh [CHECK...]
set -euo pipefail

cd "$(dirname "$0")/../.."
# A check that did not run is no success.
trap 'echo "tests/cluster did NOT run to its end: see above" >&2' ERR
export PATH=$PATH:/usr/sbin

. tests/program.sh
python3 tests/cluster/check.py "$program" "$@"
