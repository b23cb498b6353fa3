#!/usr/bin/env bash
# Suites of the Python SDK and of FastMCP, with the gateway between their clients and servers.
# A test that passes without the gateway and fails with it has to be in `expected`, with a reason.
# It needs Python 3.11 or later and the network for packages; what is installed is kept in the
# target directory.
#
#   tests/suites/run.sh              the Python SDK over Streamable HTTP: two minutes
#   tests/suites/run.sh all          the Python SDK over every transport: ten minutes
#   tests/suites/run.sh NAME [WORDS] `python-sdk` or `fastmcp`; options of pytest, such as `-k WORD`.
#                                    The differences of FastMCP are not all listed yet
set -euo pipefail

cd "$(dirname "$0")/../.."
here=$PWD/tests/suites
cache=$(realpath -m "${CARGO_TARGET_DIR:-target}")/suites
mkdir -p "$cache"

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

. tests/program.sh
wrong=no
part=${1:-part}
shift || true
case $part in
  part) python_sdk -k "streamable-http-2025 or streamable-http-2026" ;;
  all) python_sdk ;;
  python-sdk) python_sdk "$@" ;;
  fastmcp) fastmcp "$@" ;;
  *)
    echo "there is no suite $part: python-sdk, fastmcp, or all" >&2
    exit 2
    ;;
esac
trap - ERR
[ $wrong = no ]
