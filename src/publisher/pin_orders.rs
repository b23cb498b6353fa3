//! Pins as operators see and approve them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::catalog::{Item, ItemKind, PinMode, PinState, ServerPart, definition, definition_diff};
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::publisher::publisher_core::{DispatcherInput, PublisherCore};
use crate::publisher::server_parts::ServerParts;
use crate::telemetry::rfc3339;

/// The definitions of one tool as they are listed now, each once.
type Listed = Vec<(Arc<ServerPart>, usize)>;

impl PublisherCore {
    /// The pins of all servers, and the tools that are not approved, a JSON object each.
    pub(super) fn pin_views(&self) -> Vec<Value> {
        let state = self.state();
        let pinned = state.parts.pins().pinned();
        let servers = pinned.servers();
        let of_server = |server| {
            let parts = &state.parts;
            tools_of(parts, server)
                .into_iter()
                .map(move |(tool, listed)| pin_view(parts, server, &tool, &listed))
        };
        servers.flat_map(of_server).collect()
    }

    /// One pin with its definitions and their difference, as JSON.
    pub(super) fn pin_view(&self, server: &ServerName, tool: &str) -> Result<Value, Failure> {
        let state = self.state();
        let tools = tools_of(&state.parts, server);
        let listed = tools.get(tool).ok_or_else(|| unknown(server, tool))?;
        let mut view = pin_view(&state.parts, server, tool, listed);
        let pinned = state.parts.pins().pinned();
        let approved = pinned.server(server).and_then(|pins| pins.get(tool));
        let approved = approved.map_or(&[][..], |pins| pins);
        let newest = approved.first().map(|pin| pin.text.clone());
        let definitions = listed.iter().map(item).map(|item| {
            let text = definition(item.raw());
            json!({
                "digest": item.definition_digest(),
                "state": pinned.state(server, item),
                "hidden": item.hidden().map(ToString::to_string),
                "diff": newest.as_ref().map(|newest| definition_diff(newest, &text)),
                "definition": text.parse::<Value>().unwrap_or_default(),
            })
        });
        view["listed"] = definitions.collect();
        let approved = approved.iter().map(|pin| {
            json!({
                "digest": pin.digest,
                "approvedAt": rfc3339(pin.approved_at),
                "definition": pin.text.parse::<Value>().unwrap_or_default(),
            })
        });
        view["approved"] = approved.collect();
        Ok(view)
    }

    /// Approves what is listed of a tool, or of all tools of a server; with a digest only that
    /// definition. Returns the names of the tools of which something was approved.
    pub(super) fn approve(
        &self,
        server: &ServerName,
        tool: Option<&str>,
        digest: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let state = self.state();
        let tools = tools_of(&state.parts, server);
        if let Some(tool) = tool
            && !tools.contains_key(tool)
        {
            return Err(unknown(server, tool));
        }
        let wanted = |name: &String| tool.is_none_or(|tool| *name == tool);
        let items = tools.iter().filter(|(name, _)| wanted(name));
        let items = items.flat_map(|(_, listed)| listed.iter().map(item));
        let items: Vec<&Item> = items
            .filter(|item| digest.is_none_or(|it| it == item.definition_digest().to_string()))
            .collect();
        if digest.is_some() && items.is_empty() {
            let message = format!(
                "server `{server}` does not list this definition any more; look at it again"
            );
            let failure = Failure::new(ErrorKind::PreconditionFailed, message);
            return Err(failure.server(server.as_str()));
        }
        let mut approved = Vec::new();
        state.parts.pins().change(|pinned, now| {
            for item in items {
                if matches!(
                    pinned.state(server, item),
                    Some(PinState::Changed | PinState::New)
                ) {
                    pinned.approve(server, item, now);
                    approved.push(item.native().to_owned());
                }
            }
            !approved.is_empty()
        });
        approved.dedup();
        if !approved.is_empty() {
            self.arrange_views(&state);
            drop(state);
            if !self.inbox.put(DispatcherInput::Arranged) {
                log::error!("an approval waits for the next change: too many events wait");
            }
        }
        Ok(approved)
    }
}

fn item((part, place): &(Arc<ServerPart>, usize)) -> &Item {
    &part.items(ItemKind::Tools)[*place]
}

/// The tools of a server with pins, by the names that it gives them: those that are pinned, and
/// those that it lists to anybody.
fn tools_of(parts: &ServerParts, server: &ServerName) -> BTreeMap<String, Listed> {
    let pinned = parts.pins().pinned();
    let Some(pins) = pinned.server(server) else {
        return BTreeMap::new();
    };
    let mut tools: BTreeMap<String, Listed> =
        pins.keys().map(|name| (name.clone(), Vec::new())).collect();
    for part in parts.all_of(server) {
        for (place, tool) in part.items(ItemKind::Tools).iter().enumerate() {
            let listed = tools.entry(tool.native().to_owned()).or_default();
            let digest = tool.definition_digest();
            if !listed
                .iter()
                .any(|one| item(one).definition_digest() == digest)
            {
                listed.push((part.clone(), place));
            }
        }
    }
    tools
}

fn pin_view(parts: &ServerParts, server: &ServerName, tool: &str, listed: &Listed) -> Value {
    let pinned = parts.pins().pinned();
    let mode = parts.pin_mode(server);
    let states = listed.iter().map(item);
    let mut states = states.filter_map(|item| pinned.state(server, item));
    let other = states.find(|state| *state != PinState::Pinned);
    let state = match other {
        Some(state) => json!(state),
        None if listed.is_empty() => json!("unlisted"),
        None => json!(PinState::Pinned),
    };
    let approved = pinned.server(server).and_then(|pins| pins.get(tool));
    let newest = approved.and_then(|pins| pins.first());
    let hidden = listed.iter().find_map(|one| item(one).hidden());
    json!({
        "server": server,
        "tool": tool,
        "mode": mode,
        "state": state,
        "suspended": mode == PinMode::Block && other.is_some(),
        "hidden": hidden.map(ToString::to_string),
        "approvedAt": newest.map(|pin| rfc3339(pin.approved_at)),
    })
}

fn unknown(server: &ServerName, tool: &str) -> Failure {
    let tool: String = tool.chars().take(200).collect();
    let message = format!(
        "server `{server}` has no pin of a tool `{tool}`; `mcpvisor pins` lists those that there \
         are"
    );
    Failure::new(ErrorKind::NotFound, message).server(server.as_str())
}
