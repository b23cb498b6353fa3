//! Formats numbers with a noun.

/// A number with its noun: `1 server`, `2 servers`.
pub fn counted(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {more}"),
    }
}
