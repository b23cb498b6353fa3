//! Numbers with their words.

/// A number and its word: `1 server`, `2 servers`.
pub fn counted(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {more}"),
    }
}
