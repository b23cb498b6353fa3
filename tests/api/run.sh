#!/usr/bin/env bash
# Asks a running gateway all that its /openapi.json describes, with odd values, and fails if an answer
# is not as described (schemathesis from PyPI). It needs Python 3.10 or later, and the network for
# packages at the first time; they are kept in the target directory.
#
#   tests/api/run.sh [EXAMPLES]      examples of each endpoint, 20 unless said
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/schemathesis
version=4.32.5
examples=${1:-20}

# Nothing is left out when the registry cannot be reached.
trap 'echo "tests/api did NOT run to its end: see above" >&2' ERR

if [ ! -e "$venv/$version" ]; then
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
  touch "$venv/$version"
fi

. tests/gateway.sh
start_gateway <<END
[gateway]
listen = "127.0.0.1:0"
data_dir = "$here/data"

[history]
file = true

[servers.files]
command = "$program"
args = ["example-server"]
END

# A server that is away is 502 to 504, and 500 is a bug. What is valid may be refused for what no schema
# says, such as an `If-Match` of another content.
cat > "$here/schemathesis.toml" <<END
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 502, 503, 504]

[checks.negative_data_rejection]
expected-statuses = ["4xx", 502, 503, 504]
END
cd "$here"
# The events do not end, so that no answer to them can be held against anything.
"$venv/bin/schemathesis" --config-file schemathesis.toml run "http://$address/openapi.json" \
  --header "X-Session-Token: $(cat "$here/data/api-token")" \
  --exclude-path /api/events \
  --phases examples,coverage,fuzzing --max-examples "$examples" --seed 1 --workers 1 \
  --checks all --exclude-checks positive_data_acceptance \
  --request-timeout 20 --warnings off
