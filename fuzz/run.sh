#!/usr/bin/env bash
# The fuzz targets, guided by coverage, on any toolchain: the flags below are what cargo-fuzz passes
# but for the sanitizers, which need a nightly one. It needs a C++ compiler for libFuzzer.
#
#   fuzz/run.sh [SECONDS [TARGET...]]     by default a minute of each target; 0 only builds them
#
# It starts from `fuzz/corpus`. Inputs that reached something new are kept in the target directory
# for the next time, and so is one that fails; its path is printed. `MINIMIZE=1` writes the smallest
# inputs that reach the same as all of them into `fuzz/corpus`.
set -euo pipefail

cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=("${@:2}")
if [ ${#targets[@]} = 0 ]; then
  targets=(envelope event_stream sealed front uri_template config)
fi
directory=${CARGO_TARGET_DIR:-target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')

coverage=(
  -Cpasses=sancov-module
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
)
# With a target named, the flags are not for build scripts and macros.
RUSTFLAGS="--cfg fuzzing ${coverage[*]}" cargo build --quiet --release --locked \
  --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$directory"
if [ "$seconds" = 0 ]; then
  exit
fi

for target in "${targets[@]}"; do
  printf '\n%s for %s s\n' "$target" "$seconds"
  mkdir -p "$directory/corpus/$target" "$directory/failed"
  options=(-max_total_time="$seconds" -max_len=65536 -timeout=10 -print_final_stats=1 -verbosity=0)
  options+=(-print_funcs=0)
  if [ -e "fuzz/words/$target" ]; then
    options+=(-dict="fuzz/words/$target")
  fi
  program=$directory/$host/release/$target
  "$program" "${options[@]}" -artifact_prefix="$directory/failed/$target-" \
    "$directory/corpus/$target" "fuzz/corpus/$target"
  if [ "${MINIMIZE:-0}" = 1 ]; then
    mkdir -p "$directory/least/$target"
    rm -f "$directory/least/$target"/*
    # Few and small ones: the corpus is part of the repository.
    "$program" -set_cover_merge=1 -use_counters=0 -max_len=512 -verbosity=0 "$directory/least/$target" \
      "$directory/corpus/$target" "fuzz/corpus/$target"
    rm -rf "fuzz/corpus/$target"
    cp -r "$directory/least/$target" "fuzz/corpus/$target"
  fi
done
