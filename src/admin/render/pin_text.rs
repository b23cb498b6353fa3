//! Renders pins for operators.

use super::screen::{padded, width};
use crate::publisher::{ListedState, PinDetail, PinView};
use crate::telemetry::{one_line, printable};

/// One line per pin, with those that need review first.
pub fn pin_table(pins: &[PinView]) -> String {
    if pins.is_empty() {
        return "nothing is pinned; set `pin_tools` in the configuration to pin what servers list\n"
            .to_owned();
    }
    let mut pins: Vec<&PinView> = pins.iter().collect();
    pins.sort_by_key(|pin| !needs_look(pin));
    let column = |cell: fn(&PinView) -> &str| -> Vec<String> {
        let cells = pins.iter();
        cells.map(|pin| one_line(cell(pin))).collect()
    };
    let servers = column(|pin| &pin.server);
    let kinds = column(|pin| pin.kind.as_str());
    let names = column(|pin| &pin.name);
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

/// One pin with its changes, and how to approve them.
pub fn pin_text(PinDetail { pin, listed, .. }: &PinDetail) -> String {
    let (server, name) = (one_line(&pin.server), one_line(&pin.name));
    let (kind, option) = (pin.kind.as_str(), pin.kind.option());
    let mut text = format!("{kind} `{name}` of `{server}`: {}\n", state(pin));
    if let Some(at) = &pin.approved_at {
        text.push_str(&format!("last approved at {}\n", one_line(at)));
    }
    for definition in listed {
        let digest = one_line(&definition.digest);
        let state = definition
            .state
            .map_or("?", |it| ListedState::from(it).as_str());
        text.push_str(&format!("\ndefinition {digest}, {state}\n"));
        if let Some(hidden) = &definition.hidden {
            text.push_str(&format!("it has {}\n", one_line(hidden)));
        }
        let shown = match &definition.diff {
            Some(diff) => diff.clone(),
            None => format!("{:#}\n", definition.definition),
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

fn needs_look(pin: &PinView) -> bool {
    matches!(pin.state, ListedState::Changed | ListedState::New) || pin.hidden.is_some()
}

fn state(pin: &PinView) -> String {
    let mut state = pin.state.as_str().to_owned();
    if pin.suspended {
        state.push_str(", suspended");
    }
    if let Some(hidden) = &pin.hidden {
        state.push_str(&format!(", {}", one_line(hidden)));
    }
    state
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::{PinKind, PinMode, PinState};
    use crate::publisher::ListedDefinition;

    fn pin(tool: &str, state: ListedState, hidden: Option<&str>) -> PinView {
        PinView {
            server: "files".to_owned(),
            kind: PinKind::Tool,
            name: tool.to_owned(),
            tool: Some(tool.to_owned()),
            mode: PinMode::Block,
            state,
            suspended: state == ListedState::Changed,
            hidden: hidden.map(str::to_owned),
            approved_at: Some("2026-01-01T00:00:00.000Z".to_owned()),
        }
    }

    #[test]
    fn what_needs_a_look_is_listed_first() {
        assert!(pin_table(&[]).contains("pin_tools"));
        let pins = [
            pin("a", ListedState::Pinned, None),
            pin("b\u{1b}", ListedState::Changed, None),
            pin(
                "c",
                ListedState::Pinned,
                Some("1 hidden character (U+200B)"),
            ),
        ];
        let expected = "files  tool  b\\u{1b}  changed, suspended\n\
                        files  tool  c        pinned, 1 hidden character (U+200B)\n\
                        files  tool  a        pinned\n";
        assert_eq!(pin_table(&pins), expected);
    }

    #[test]
    fn a_pin_shows_its_difference_and_how_to_approve_it() {
        let changed = PinDetail {
            pin: pin("a", ListedState::Changed, None),
            listed: vec![ListedDefinition {
                digest: "D".to_owned(),
                state: Some(PinState::Changed),
                hidden: None,
                diff: Some("  {\n- x\n+ y\u{1b}\n".to_owned()),
                definition: json!({}),
            }],
            approved: Vec::new(),
        };
        let expected = "tool `a` of `files`: changed, suspended\n\
                        last approved at 2026-01-01T00:00:00.000Z\n\n\
                        definition D, changed\n  {\n- x\n+ y\\u{1b}\n\
                        to approve it: mcpvisor pins approve files a --digest=D\n";
        assert_eq!(pin_text(&changed), expected);
    }
}
