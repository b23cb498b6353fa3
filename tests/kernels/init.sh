#!/bin/busybox sh
# The first process of the test's kernel.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up

service=/sys/fs/cgroup/service
echo '+memory +cpu +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir $service
# As systemd marks it.
setfattr -n user.delegate -v 1 $service

failed=0

# check NAME COMMAND...: tries a command for two minutes.
check() {
  name=$1
  shift
  for _ in $(seq 240); do
    if "$@" > /tmp/output 2>&1; then
      echo "ok $name"
      return
    fi
    sleep 0.5
  done
  echo "FAILED $name"
  sed 's/^/    /' /tmp/output | tail -n 20
  failed=1
}

start() {
  sh -c "echo 0 > $service/cgroup.procs; exec mcpvisor serve --config /etc/config.toml" > /tmp/log 2>&1 &
  gateway=$!
}

sleepers() {
  ps | grep '[s]leep 7777' | wc -l
}

has_sleepers() {
  [ "$(sleepers)" -gt 10 ]
}

no_sleepers() {
  [ "$(sleepers)" = 0 ]
}

calls_work() {
  mcpvisor --config /etc/config.toml tools call calm__echo message=hello | grep hello
}

hog_ended_at_its_limit() {
  mcpvisor --config /etc/config.toml status --json | grep 'at its limit `memory = 256MiB`'
}

bomb_is_limited() {
  # The count of refused forks, and how many processes there are.
  grep -q 'max [1-9]' $service/servers-$gateway/child-*/pids.events && [ "$(sleepers)" -lt 40 ]
}

groups_are_gone() {
  [ "$(ls -d $service/servers-*/child-* 2> /dev/null | wc -l)" = 0 ]
}

pressure_is_shown() {
  mcpvisor --config /etc/config.toml servers show busy | grep 'waited [0-9]* % of the last minute for CPU'
}

every_group_is_used() {
  ! grep -l 'populated 0' $service/servers-$gateway/child-*/cgroup.events
}

doctor_says_so() {
  mcpvisor --config /etc/config.toml doctor | grep 'process tree of each server is in a group'
}

start
check 'calls of a neighbour work at first' calls_work
check 'doctor finds the control groups' doctor_says_so
check 'a fork bomb runs' has_sleepers
check 'a fork bomb is limited' bomb_is_limited
check 'a tree that takes all memory is ended, with the reason' hog_ended_at_its_limit
check 'calls of a neighbour work beside them' calls_work
check 'a tree at its share of the processor shows that it waits' pressure_is_shown
check 'a program that does not exist leaves no group' every_group_is_used
kill -TERM $gateway
wait $gateway
check 'a gateway that stops leaves no process' no_sleepers
check 'and no group' groups_are_gone
[ $failed = 0 ] && echo 'ALL OK' || tail -n 30 /tmp/log
poweroff -f
