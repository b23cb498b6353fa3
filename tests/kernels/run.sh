#!/usr/bin/env bash
# Boots a Linux kernel in QEMU, and tests there what no container shows: control groups that limit
# and kill the process trees of servers. It needs Debian or Ubuntu, and as root it installs what is
# missing. The processor is emulated, so any machine will do; a boot takes half a minute.
#
#   tests/kernels/run.sh            the kernel of Debian's package `linux-image-cloud-amd64`
#   KERNEL=FILE tests/kernels/run.sh  another kernel for x86_64
set -euo pipefail

cd "$(dirname "$0")/../.."
here=$PWD/tests/kernels
. tests/program.sh
cache=$(realpath -m "${CARGO_TARGET_DIR:-target}")/kernels
mkdir -p "$cache"

needed=(qemu-system-x86 cpio attr busybox-static)
if ! dpkg --status "${needed[@]}" > /dev/null 2>&1; then
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet --no-install-recommends "${needed[@]}" > /dev/null
fi

kernel_of_debian() {
  local package
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
  if [ ! -e "$cache/$package" ]; then
    (
      cd "$(mktemp -d)"
      apt-get download --quiet --quiet "$package" 2> /dev/null
      dpkg --extract ./*.deb unpacked
      mv unpacked/boot/vmlinuz-* "$cache/$package"
      rm -rf "$PWD"
    )
  fi
  echo "$cache/$package"
}
kernel=${KERNEL:-$(kernel_of_debian)}

# A root directory with the gateway, BusyBox, and the libraries that they load.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,data}
cp /bin/busybox "$root/bin/"
cp "$program" "$root/bin/mcpvisor"
cp "$(command -v setfattr)" "$root/bin/"
ldd "$program" "$(command -v setfattr)" | grep --only-matching '/[^ ]*' | grep -v ':$' | sort -u \
  | xargs cp --parents --dereference --target-directory "$root"
install -m 755 "$here/init.sh" "$root/init"
cp "$here/config.toml" "$root/etc/config.toml"
(cd "$root" && find . | cpio --create --format newc --quiet) > "$cache/root.cpio"

output=$cache/output
timeout 600 qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 2048 -nographic -no-reboot \
  -kernel "$kernel" -initrd "$cache/root.cpio" -append 'console=ttyS0 quiet loglevel=2 panic=-1' < /dev/null > "$output" 2>&1 || true
grep --text -E '^(ok|FAILED|    )' "$output" || tail -n 40 "$output"
grep --text --quiet '^ALL OK' "$output"
