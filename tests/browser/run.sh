#!/usr/bin/env bash
# The dashboard in real browsers: Debian's Chromium and Firefox, driven by playwright-core, with axe-core
# on each page in both themes; and TypeScript's check of the script in it. It needs Node with npm, the
# browsers, and the network for packages at the first time; they are kept in the target directory.
#
#   tests/browser/run.sh             SHOTS=DIRECTORY keeps a picture of each page in each browser
#   SCALE=1 tests/browser/run.sh     the second test with many more servers, sessions and calls
set -Eeuo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
cache=$target/browser
here=tests/browser

# Nothing is left out when the registry cannot be reached.
trap 'echo "tests/browser did NOT run to its end: see above" >&2' ERR

# install PROGRAM PACKAGE: installs the package if the program is missing.
install() {
  if command -v "$1" > /dev/null; then
    return
  fi
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$2"
}
install "${CHROMIUM:=chromium}" chromium
install "${FIREFOX:=firefox-esr}" firefox-esr

if ! cmp -s $here/package-lock.json "$cache/installed"; then
  mkdir -p "$cache"
  cp $here/package.json $here/package-lock.json $here/.npmrc "$cache"
  npm ci --loglevel error --ignore-scripts --prefix "$cache"
  cp $here/package-lock.json "$cache/installed"
fi

"$cache/node_modules/.bin/tsc" -p $here/tsconfig.json

. tests/program.sh
# Beside the packages that it imports.
cp $here/*.mjs "$cache"
MCPVISOR=$program
CHROMIUM=$(command -v "$CHROMIUM")
FIREFOX=$(command -v "$FIREFOX")
export MCPVISOR CHROMIUM FIREFOX
node "$cache/dashboard.mjs" chromium
node "$cache/dashboard.mjs" firefox
node "$cache/scale.mjs"
