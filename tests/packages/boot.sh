#!/usr/bin/env bash
# Boots the systemd of a root, as the first process of namespaces and of a control group of its own, and
# ends with it. Root only.
#
#   boot.sh ROOT GROUP      GROUP is the directory of a control group, which is made
set -euo pipefail

mkdir "$2"
echo $$ > "$2/cgroup.procs"
# What belongs to the whole machine is mounted without the right to change it.
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child sh -euc '
  cd "$0"
  mount --bind . . && cd "$0"
  mount -t proc proc proc
  mount --bind proc/sys proc/sys && mount -o remount,bind,ro proc/sys
  mount -t sysfs -o ro sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mount -t tmpfs tmpfs dev
  mount -t tmpfs tmpfs run
  for device in null zero full random urandom tty; do
    cp -a "/dev/$device" dev/
  done
  ln -s /proc/self/fd pts/ptmx dev
  mkdir run/old
  pivot_root . run/old
  umount -l run/old
  exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
' "$1"
