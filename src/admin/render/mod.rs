//! Text output for operators: status, servers, logs and crashes. Pure.

mod cluster_text;
mod crash_text;
mod history_text;
mod log_text;
mod pin_text;
mod schema_view;
mod screen;
mod server_table;
mod status_tree;
mod tool_text;
mod trouble;

pub use crash_text::crash_text;
pub use history_text::{call_lines, record_lines};
pub use log_text::log_lines;
pub use pin_text::{pin_table, pin_text};
pub use schema_view::SchemaView;
pub use screen::{Screen, Window};
pub use server_table::server_table;
pub(in crate::admin) use status_tree::{group_line, pressure_text, sandbox_text};
pub use status_tree::{notice_lines, server_details, tree};
pub use tool_text::{ListedTool, tool_table, tool_text};
pub use trouble::{ServerTrouble, troubles};
pub(in crate::admin) use trouble::{Trouble, attempts, breaker_text, reason};

/// A duration in its two largest units, such as `2h 3m`.
fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => "<1s".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_two_largest_units() {
        let table = [
            (0, "<1s"),
            (999, "<1s"),
            (1500, "1s"),
            (61_000, "1m 1s"),
            (7_260_000, "2h 1m"),
            (90_000_000, "1d 1h"),
        ];
        for (millis, expected) in table {
            assert_eq!(duration(millis), expected);
        }
    }
}
