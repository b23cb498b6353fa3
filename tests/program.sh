# Sourced by scripts that test the debug build: `program` is its path.

# There are no examples. `--examples` makes cargo select the features that the tests need as well;
# without it, cargo would compile 74 crates a second time, beside those of `cargo test`.
cargo build --locked --quiet --bin mcpvisor --examples
program=$(realpath "${CARGO_TARGET_DIR:-target}/debug/mcpvisor")
