#!/usr/bin/env bash
# Checks `/metrics` of a running gateway, and the dashboard and alert rules of contrib/grafana, with promtool:
# rules and their tests are good, and every metric that they and the dashboard name is served. It needs promtool
# (Debian's package `prometheus`), Python 3 and curl.
#
#   tests/metrics/run.sh
set -euo pipefail

cd "$(dirname "$0")/../.."

# A check that did not run is no success.
trap 'echo "tests/metrics did NOT run to its end: see above" >&2' ERR

promtool check rules contrib/grafana/alerts.yaml
promtool test rules tests/metrics/alerts.yaml

. tests/gateway.sh
start_gateway <<END
[gateway]
listen = "127.0.0.1:0"
data_dir = "$here/data"

[metrics]
listen = "127.0.0.1:0"

[servers.example]
command = "$program"
args = ["example-server"]
END

meta='"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
curl --silent --show-error --fail --output "$here/answer" "http://$address/mcp" \
  --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' \
  --header 'MCP-Protocol-Version: 2026-07-28' \
  --header 'Mcp-Method: tools/call' --header 'Mcp-Name: example__echo' \
  --data '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"example__echo","arguments":{"message":"hello"},'"$meta"'}}'
grep --quiet hello "$here/answer"

metrics=$(address_after 'metrics are at')
curl --silent --show-error --fail "http://$metrics/metrics" > "$here/metrics"
promtool check metrics < "$here/metrics"
grep --quiet 'mcp_server_operation_duration_seconds_count{.*gen_ai_tool_name="example__echo"' "$here/metrics"
python3 tests/metrics/check.py "$here"
