#!/usr/bin/env bash
# Builds the packages of a release into target/package, with checksums.
#
#   contrib/package.sh [FORMAT...]     tar deb rpm static image sbom; by default all of them
#
# TARGET names another platform than this one, for tar, deb and rpm; its linker has to be there.
# PROFILE=smoke builds quickly, to try the packages. buildah makes the image; cargo-deb,
# cargo-generate-rpm and cargo-cyclonedx are installed below target/tools where they are missing.
set -euo pipefail

cd "$(dirname "$0")/.."
formats=("$@")
if [ ${#formats[@]} = 0 ]; then
  formats=(tar deb rpm static image sbom)
fi
host=$(rustc -vV | sed -n 's/^host: //p')
target=${TARGET:-$host}
elsewhere=(${TARGET:+--target "$TARGET"})
profile=${PROFILE:-release}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
built=${CARGO_TARGET_DIR:-target}
out=$built/package
tools=$built/tools
export PATH=$tools/bin:$PATH
mkdir -p "$out"

# tool NAME VERSION: installs a program of cargo's if it is missing.
tool() {
  if ! command -v "$1" > /dev/null; then
    cargo install --quiet --locked --root "$tools" --target-dir "$tools/target" "$1@$2"
  fi
}

# The addresses that the program sets at each start take a thirtieth of the room; glibc can read them so
# since 2.36, which the packages need. A build from source runs with older ones, too.
packed=()
if [[ $target == *-linux-gnu ]]; then
  packed=(-C link-arg=-Wl,-z,pack-relative-relocs)
fi

build() {
  cargo rustc --locked --profile "$profile" "${elsewhere[@]}" --bin mcpvisor -- "${packed[@]}"
  binary=$built/${TARGET:+$TARGET/}$profile/mcpvisor
}

# shell_files PROGRAM: completions and man pages, which packages install, into target/shell. A program
# for another platform cannot print them: then one for this platform does.
shell_files() {
  local program=$1
  if [ "$target" != "$host" ]; then
    cargo build --locked --profile "$profile"
    program=$built/$profile/mcpvisor
  fi
  rm -rf target/shell
  "$program" man target/shell/man
  for shell in bash zsh fish; do
    "$program" completions "$shell" > "target/shell/mcpvisor.$shell"
  done
}

# The same program without any library, also not the C library. Only its last part is built again.
build_static() {
  cargo rustc --locked --profile "$profile" "${elsewhere[@]}" --bin mcpvisor -- -C target-feature=+crt-static
  static=$built/static/mcpvisor
  install -D -m 755 "$built/${TARGET:+$TARGET/}$profile/mcpvisor" "$static"
}

# archive NAME BINARY: the program with what belongs to it, as one directory.
archive() {
  local name=mcpvisor-$version-$1 directory
  directory=$(mktemp -d)
  shell_files "$2"
  install -D -m 755 "$2" "$directory/$name/mcpvisor"
  install -m 644 README.md CHANGELOG.md LICENSE config.toml "$directory/$name/"
  install -D -m 644 -t "$directory/$name/completions" target/shell/mcpvisor.*
  install -D -m 644 -t "$directory/$name/man" target/shell/man/*
  install -D -m 644 -t "$directory/$name/systemd" contrib/mcpvisor.service contrib/mcpvisor.socket
  tar --sort=name --owner=0 --group=0 --numeric-owner -C "$directory" -czf "$out/$name.tar.gz" "$name"
  rm -r "$directory"
}

deb() {
  local compression=()
  if [ "$profile" != release ]; then
    compression=(--fast)
  fi
  tool cargo-deb 3.8.0
  build
  shell_files "$binary"
  # Debian wants a list of its own.
  printf 'mcpvisor (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version" \
    "$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' Cargo.toml)" \
    "$(date --utc --rfc-email --date="@${SOURCE_DATE_EPOCH:-$(date +%s)}")" > target/shell/changelog
  cargo deb --locked --no-build --no-strip "${elsewhere[@]}" --profile "$profile" --output "$out" \
    "${compression[@]}"
}

rpm() {
  tool cargo-generate-rpm 0.21.1
  build
  shell_files "$binary"
  cargo generate-rpm "${elsewhere[@]}" --profile "$profile" --output "$out"
}

# Nothing but the program and what TLS needs: for servers over HTTP.
image() {
  build_static
  local container
  container=$(buildah from scratch)
  buildah copy --quiet --chmod 755 "$container" "$static" /mcpvisor
  buildah copy --quiet --chown 65532:65532 --chmod 700 "$container" "$(mktemp -d)" /data
  buildah config --entrypoint '["/mcpvisor"]' --cmd serve --port 12006 --user 65532:65532 \
    --env MCPVISOR_DATA=/data --volume /data --label "org.opencontainers.image.version=$version" \
    --label org.opencontainers.image.licenses=Apache-2.0 "$container"
  rm -f "$out/mcpvisor-$version-image.tar"
  buildah commit --quiet --rm "$container" "oci-archive:$out/mcpvisor-$version-image.tar:mcpvisor:$version"
}

sbom() {
  tool cargo-cyclonedx 0.5.9
  cargo cyclonedx --quiet --format json --target "$target" --override-filename "mcpvisor-$version.cdx"
  mv "mcpvisor-$version.cdx.json" "$out/"
}

for format in "${formats[@]}"; do
  printf '\n--- %s\n' "$format"
  case $format in
    tar)
      build
      archive "$target" "$binary"
      ;;
    static)
      build_static
      archive "${target%-gnu}-static" "$static"
      ;;
    deb | rpm | image | sbom) "$format" ;;
    *)
      echo "there is no format $format: tar, deb, rpm, static, image, sbom" >&2
      exit 1
      ;;
  esac
done

cd "$out"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs sha256sum > SHA256SUMS
cat SHA256SUMS
