#!/usr/bin/env bash
# Suites of the Python SDK and of FastMCP, with the gateway between their clients and servers.
# A test that passes without the gateway and fails with it has to be in `expected`, with a reason.
# It needs Python 3.11 or later and the network for packages; what is installed is kept in the
# target directory.
#
#   tests/suites/run.sh              the Python SDK over Streamable HTTP: two minutes
#   tests/suites/run.sh all          the Python SDK over every transport: ten minutes
#   tests/suites/run.sh NAME [WORDS] `python-sdk` or `fastmcp`; options of pytest, such as `-k WORD`.
#                                    With SUITE_SHARING=session each client has its own process
#   tests/suites/run.sh typescript-sdk [WORDS]
#                                    the TypeScript SDK 2, whose packages have no suite: its sources come
#                                    with git, or from a checkout that TYPESCRIPT_SDK names; options of
#                                    vitest, such as `-t WORD`. It needs Node 20 and half an hour
set -euo pipefail

cd "$(dirname "$0")/../.."
here=$PWD/tests/suites
cache=$(realpath -m "${CARGO_TARGET_DIR:-target}")/suites
mkdir -p "$cache"
# The servers of a suite come and go a thousand times, and the sandbox is tested elsewhere.
export MCPVISOR_SANDBOX_LEVEL=off

# Without it, Python looks for certificates on the disk, which a suite takes for a call that blocks.
if [ -z "${SSL_CERT_FILE:-}" ] && [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
fi

trap 'echo "tests/suites did NOT run to its end: see above; packages need the network" >&2' ERR

# install NAME PACKAGE VERSION: an environment with the package, and its source with the suite.
install() {
  local name=$1 package=$2 version=$3 place=$cache/$1
  if cmp -s "$here/requirements/$name.txt" "$place/installed"; then
    return
  fi
  rm -rf "$place"
  python3 -m venv "$place/python"
  local pip=("$place/python/bin/pip" --quiet --disable-pip-version-check)
  "${pip[@]}" install --no-deps -r "$here/requirements/$name.txt"
  "${pip[@]}" download --no-deps --no-binary "$package" --dest "$place" "$package==$version"
  mkdir "$place/source"
  tar --extract --file "$place/$package-$version.tar.gz" --directory "$place/source" --strip-components 1
  cp "$here/requirements/$name.txt" "$place/installed"
}

# tests_of NAME PLUGIN RESULTS OPTION...: runs tests of a suite through the gateway.
tests_of() {
  local name=$1 plugin=$2 results=$3
  shift 3
  # Failed tests are the comparison's matter.
  (
    cd "$cache/$name/source"
    MCPVISOR=$program PYTHONPATH=$here SUITE_RESULTS=$results \
      "$cache/$name/python/bin/python" -m pytest -p "$plugin" -p results -p no:cacheprovider \
      -o log_cli=false -W ignore::ResourceWarning --quiet --quiet --no-summary --color=no --timeout 60 "$@" > "$results.output" 2>&1
  ) || true
}

# suite NAME PLUGIN OPTION...: runs a suite, runs once more what differs, and compares.
suite() {
  local name=$1 plugin=$2
  shift 2
  local results=$cache/$name/results.jsonl again=$cache/$name/again.jsonl
  local compare=(python3 "$here/compare.py" "$here/expected/$name.txt" "$results")
  rm -f "$results" "$again"
  tests_of "$name" "$plugin" "$results" "$@"
  # A test whose wait of five seconds was too short on a busy machine passes the second time.
  local new
  mapfile -t new < <("${compare[@]}" | sed '/^$/d')
  if [ ${#new[@]} -gt 0 ] && [ ${#new[@]} -le 20 ]; then
    tests_of "$name" "$plugin" "$again" "${new[@]}"
  fi
  "${compare[@]}" "$again" || wrong=yes
}

python_sdk() {
  install python-sdk mcp 2.3.0
  suite python-sdk python_sdk tests/interaction "$@"
}

fastmcp() {
  install fastmcp fastmcp 4.2.3
  # What needs credentials, other programs or a network of its own has no client in memory.
  suite fastmcp fastmcp_suite --continue-on-collection-errors \
    -m "not integration and not client_process and not subprocess_heavy and not conformance and not pbt" \
    --ignore tests/server/auth --ignore tests/cli --ignore tests/scripts --ignore tests/docs \
    --ignore tests/downstream --ignore tests/utilities/openapi tests "$@"
}

# The sources of the TypeScript SDK, with our helpers between its clients and its servers.
typescript_sources() {
  local place=$cache/typescript-sdk commit=3924de99df834302d89f5997a1b64ca268282284
  local helpers=$place/source/test/e2e/helpers
  if [ "$(cat "$place/installed" 2> /dev/null)" != $commit ]; then
    rm -rf "$place"
    git clone --quiet --no-checkout "${TYPESCRIPT_SDK:-https://github.com/modelcontextprotocol/typescript-sdk}" "$place/source"
    git -C "$place/source" checkout --quiet $commit
    (cd "$place/source" && npx --yes pnpm@10.26.1 install --silent --frozen-lockfile --ignore-scripts --filter "@modelcontextprotocol/test-e2e...")
    mv "$helpers/index.ts" "$helpers/direct.ts"
    # The limit of a test; through the gateway each begins with a server that is added to it.
    sed -i 's/15_000/60_000/' "$helpers/verifies.ts"
    echo $commit > "$place/installed"
  fi
  cp "$here/typescript/wire.ts" "$helpers/index.ts"
  cp "$here/typescript/gateway.config.js" "$place/source/test/e2e/gateway.config.js"
}

typescript_sdk() {
  typescript_sources
  local place=$cache/typescript-sdk
  local results=$place/results.jsonl again=$place/again.jsonl
  local compare=(python3 "$here/compare.py" "$here/expected/typescript-sdk.txt" "$results")
  rm -f "$results" "$again" "$place/wired"
  (
    cd "$place/source/test/e2e"
    mapfile -t files < <(grep --recursive --files-with-matches 'wire(' scenarios)
    MCPVISOR=$program SUITE_HERE=$here/typescript SUITE_RELAY=$here/relay.py SUITE_RESULTS=$results SUITE_WIRED=$place/wired \
      node "$place/source/node_modules/vitest/vitest.mjs" run --config gateway.config.js "${files[@]}" "$@" > "$results.output" 2>&1
  ) || true
  touch "$again"
  "${compare[@]}" "$again" || wrong=yes
}

. tests/program.sh
wrong=no
part=${1:-part}
shift || true
case $part in
  part) python_sdk -k "streamable-http-2025 or streamable-http-2026" ;;
  all) python_sdk ;;
  python-sdk) python_sdk "$@" ;;
  fastmcp) fastmcp "$@" ;;
  typescript-sdk) typescript_sdk "$@" ;;
  *)
    echo "there is no suite $part: python-sdk, fastmcp, typescript-sdk, or all" >&2
    exit 2
    ;;
esac
trap - ERR
[ $wrong = no ]
