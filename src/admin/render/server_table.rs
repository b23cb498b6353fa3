//! Renders the servers as a table, one per line.

use super::screen::{Screen, padded, width};
use super::trouble::{Trouble, by_trouble, reason};
use crate::admin::status::{ServerStatus, Status};
use crate::telemetry::Style;

const HEAD: [&str; 6] = ["NAME", "STATE", "TRANSPORT", "TOOLS", "IN FLIGHT", "REASON"];

/// Space between two columns.
const GAP: &str = "  ";

/// The table, with servers in trouble first.
pub fn server_table(status: &Status, screen: &Screen) -> String {
    let servers = by_trouble(status);
    let rows: Vec<[String; 6]> = servers.iter().map(|server| row(server)).collect();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].as_str());
        width(cells.chain([HEAD[column]]))
    });
    let line = |cells: [&str; 6], style: Style| {
        let mut line = String::new();
        let mut used = 0;
        for (column, width) in widths.iter().enumerate() {
            let cell = padded(cells[column], *width) + GAP;
            used += width + GAP.len();
            line.push_str(&match column {
                1 => screen.painted(style, &cell),
                _ => cell,
            });
        }
        line.push_str(&screen.cut(cells[5], used));
        format!("{}\n", line.trim_end())
    };
    let mut text = line(HEAD, Style::Bold);
    for (row, server) in rows.iter().zip(servers) {
        let style = Trouble::of(server).style();
        text.push_str(&line(row.each_ref().map(String::as_str), style));
    }
    text
}

fn row(server: &ServerStatus) -> [String; 6] {
    let connection = server.connection.as_ref();
    [
        server.name.clone(),
        server.state.clone(),
        connection.map_or("-".to_owned(), |it| it.transport.to_string()),
        server.item_count("tools").to_string(),
        connection.map_or(0, |it| it.in_flight).to_string(),
        reason(server),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_server() {
        let up = json!({
            "name": "files", "state": "up", "items": {"tools": 11},
            "connection": {"transport": "stdio", "in_flight": 2},
        });
        let disabled = json!({"name": "a-long-name", "state": "disabled", "items": {}});
        let down = json!({
            "name": "git", "state": "backoff", "items": {},
            "connection": {"transport": "http", "in_flight": 0, "shared": {
                "next_attempt_ms": 3000, "last_exit": "failed: http://127.0.0.1:9/mcp: refused",
            }},
        });
        let status = json!({"servers": [up, disabled, down]});
        let status: Status = serde_json::from_value(status).unwrap();
        let expected = "\
NAME         STATE     TRANSPORT  TOOLS  IN FLIGHT  REASON
git          backoff   http       0      0          next attempt in 3s · http://127.0.0.1:9/mcp: refused
files        up        stdio      11     2
a-long-name  disabled  -          0      0
";
        assert_eq!(server_table(&status, &Screen::default()), expected);
        let narrow = Screen {
            columns: Some(72),
            ..Screen::default()
        };
        let cut = server_table(&status, &narrow);
        assert!(cut.contains("  next attempt in 3s…\n"), "{cut}");
    }
}
