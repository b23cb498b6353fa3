# Sourced by scripts that test a gateway of the debug build: `program` is its path. `here` is a directory
# that is removed when the script ends; the gateway ends then as well.

. tests/program.sh
here=$(mktemp -d)
gateway=
clean_up() {
  if [ -n "$gateway" ]; then
    kill "$gateway" 2> /dev/null && wait "$gateway" || true
  fi
  rm -rf "$here"
}
trap clean_up EXIT

# address_after WORDS: the address that the log has after them.
address_after() {
  sed -n "s|.*$1 http://\(127\.0\.0\.1:[0-9]*\).*|\1|p" "$here/log" | head -n 1
}

# start_gateway < CONFIGURATION: `address` is where it serves, once it is ready.
start_gateway() {
  cat > "$here/config.toml"
  # The shell in the background may create the log only after it is read for the first time.
  : > "$here/log"
  "$program" serve --config "$here/config.toml" 2> "$here/log" &
  gateway=$!
  # Port 0 is any free one; the log says which.
  address=
  for _ in $(seq 100); do
    address=$(address_after serves)
    if [ -n "$address" ] && curl --silent --fail --output /dev/null "http://$address/readyz"; then
      return
    fi
    sleep 0.1
  done
  cat "$here/log" >&2
  return 1
}
