#!/usr/bin/env bash
# Public servers and clients from npm and PyPI, with the gateway between them. It needs Python 3.10
# or later, Node with npm, git and the network for packages; what is installed is kept in the
# target directory.
#
#   tests/real/run.sh [servers | public | clients | crowd | search | logins | cold]...
#
# REAL_COLD=1 adds `cold`: thirty servers of npx, which download for minutes. `public` compares four servers
# of public.txt with and without a sandbox, and all of them with REAL_PUBLIC=all, which takes half an hour.
set -euo pipefail

cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
here=tests/real
cache=$target/real
mkdir -p "$cache"

# Nothing is left out when a registry cannot be reached.
trap 'echo "tests/real did NOT run to its end: see above; packages need the network" >&2' ERR

# installed NAME FILE...: whether the files are those that NAME was installed from.
installed() {
  local name=$1
  shift
  cat "$@" | cmp -s - "$cache/$name/installed"
}

# A program of some packages needs a newer Node than distributions have.
install_node() {
  local version=24.21.0
  if [ ! -e "$cache/node/$version" ]; then
    npm install --loglevel error --no-save --prefix "$cache/node" "node@$version"
    touch "$cache/node/$version"
  fi
}

install_npm() {
  if ! installed npm $here/package-lock.json; then
    mkdir -p "$cache/npm"
    cp $here/package.json $here/package-lock.json $here/.npmrc "$cache/npm"
    npm ci --loglevel error --ignore-scripts --prefix "$cache/npm"
    cp $here/package-lock.json "$cache/npm/installed"
  fi
  # Beside the packages that they import.
  mkdir -p "$cache/npm/clients"
  cp $here/clients/*.mjs "$cache/npm/clients"
}

install_python() {
  local name=$1
  if ! installed "$name" "$here/requirements/$name.txt"; then
    rm -rf "${cache:?}/$name"
    python3 -m venv "$cache/$name"
    "$cache/$name/bin/pip" install --quiet --disable-pip-version-check \
      --no-deps -r "$here/requirements/$name.txt"
    cp "$here/requirements/$name.txt" "$cache/$name/installed"
  fi
}

# Most of the time is waiting for the registries.
jobs=()
install_node & jobs+=($!)
install_npm & jobs+=($!)
for name in servers sdk-1 sdk-2 uv; do
  install_python $name & jobs+=($!)
done
for job in "${jobs[@]}"; do
  wait "$job"
done

. tests/program.sh

parts=("$@")
if [ ${#parts[@]} = 0 ]; then
  parts=(servers public clients crowd search logins)
  if [ "${REAL_COLD:-}" = 1 ]; then
    parts+=(cold)
  fi
fi
trap - ERR
exec python3 $here/real.py "$target" "${parts[@]}"
