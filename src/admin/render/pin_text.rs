//! Pins, for operators.

use serde_json::Value;

use super::screen::{padded, width};
use crate::catalog::PinKind;
use crate::telemetry::{one_line, printable};

/// One line for each pin, those that need a look first.
pub fn pin_table(pins: &Value) -> String {
    let pins = pins.as_array().map_or(&[][..], Vec::as_slice);
    if pins.is_empty() {
        return "nothing is pinned; `pin_tools` in the configuration pins what servers say\n"
            .to_owned();
    }
    let mut pins: Vec<&Value> = pins.iter().collect();
    pins.sort_by_key(|pin| !needs_look(pin));
    let column = |name: &str| -> Vec<String> {
        let cells = pins.iter();
        cells.map(|pin| word(&pin[name])).collect()
    };
    let (servers, kinds, names) = (column("server"), column("kind"), column("name"));
    let wide = |cells: &[String]| width(cells.iter().map(String::as_str));
    let widths = (wide(&servers), wide(&kinds), wide(&names));
    let mut text = String::new();
    for (((pin, server), kind), name) in pins.iter().zip(&servers).zip(&kinds).zip(&names) {
        let server = padded(server, widths.0);
        let kind = padded(kind, widths.1);
        let name = padded(name, widths.2);
        text.push_str(&format!("{server}  {kind}  {name}  {}\n", state(pin)));
    }
    text
}

/// One pin with what changed, and how to approve it.
pub fn pin_text(pin: &Value) -> String {
    let [server, kind, name] = ["server", "kind", "name"].map(|member| word(&pin[member]));
    let option = PinKind::named(&kind).map_or_else(String::new, PinKind::option);
    let mut text = format!("{kind} `{name}` of `{server}`: {}\n", state(pin));
    if let Some(at) = pin["approvedAt"].as_str() {
        text.push_str(&format!("approved last at {}\n", one_line(at)));
    }
    let listed = pin["listed"].as_array().map_or(&[][..], Vec::as_slice);
    for definition in listed {
        let (digest, state) = (word(&definition["digest"]), word(&definition["state"]));
        text.push_str(&format!("\ndefinition {digest}, {state}\n"));
        if let Some(hidden) = definition["hidden"].as_str() {
            text.push_str(&format!("it has {}\n", one_line(hidden)));
        }
        let diff = definition["diff"].as_str();
        let shown = match diff {
            Some(diff) => diff.to_owned(),
            None => format!("{:#}\n", definition["definition"]),
        };
        text.push_str(&printable(&shown));
        if state != "pinned" {
            text.push_str(&format!(
                "to approve it: mcpvisor pins approve {server} {name}{option} --digest={digest}\n"
            ));
        }
    }
    text
}

fn needs_look(pin: &Value) -> bool {
    matches!(pin["state"].as_str(), Some("changed" | "new")) || pin["hidden"].is_string()
}

fn state(pin: &Value) -> String {
    let mut state = word(&pin["state"]);
    if pin["suspended"] == true {
        state.push_str(", suspended");
    }
    if let Some(hidden) = pin["hidden"].as_str() {
        state.push_str(&format!(", {}", one_line(hidden)));
    }
    state
}

fn word(value: &Value) -> String {
    one_line(value.as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pin(tool: &str, state: &str, hidden: Option<&str>) -> Value {
        json!({
            "server": "files", "kind": "tool", "name": tool, "state": state, "hidden": hidden,
            "suspended": state == "changed", "approvedAt": "2026-01-01T00:00:00.000Z",
        })
    }

    #[test]
    fn what_needs_a_look_is_listed_first() {
        assert!(pin_table(&json!([])).contains("pin_tools"));
        let pins = json!([
            pin("a", "pinned", None),
            pin("b\u{1b}", "changed", None),
            pin("c", "pinned", Some("1 hidden character (U+200B)")),
        ]);
        let expected = "files  tool  b\\u{1b}  changed, suspended\n\
                        files  tool  c        pinned, 1 hidden character (U+200B)\n\
                        files  tool  a        pinned\n";
        assert_eq!(pin_table(&pins), expected);
    }

    #[test]
    fn a_pin_shows_its_difference_and_how_to_approve_it() {
        let mut changed = pin("a", "changed", None);
        changed["listed"] = json!([{
            "digest": "D", "state": "changed", "hidden": null,
            "diff": "  {\n- x\n+ y\u{1b}\n", "definition": {},
        }]);
        let expected = "tool `a` of `files`: changed, suspended\n\
                        approved last at 2026-01-01T00:00:00.000Z\n\n\
                        definition D, changed\n  {\n- x\n+ y\\u{1b}\n\
                        to approve it: mcpvisor pins approve files a --digest=D\n";
        assert_eq!(pin_text(&changed), expected);
    }
}
