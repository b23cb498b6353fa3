//! Shows pins to operators, and carries out their approvals.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::{
    ModelText, PinKind, PinMode, PinState, PinnedDefinitions, ServerPart, definition_diff,
};
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::publisher::pin_views::{ApprovedPin, ListedDefinition, ListedState, PinDetail, PinView};
use crate::publisher::publisher_core::{DispatcherInput, PublisherCore};
use crate::publisher::server_parts::ServerParts;
use crate::telemetry::rfc3339;

/// The currently listed definitions by kind and name, without duplicates.
type Listed<'p> = BTreeMap<(PinKind, &'p str), Vec<ModelText<'p>>>;

impl PublisherCore {
    /// The pins of all servers, and the unapproved texts. There can be thousands of short-lived
    /// resources, so only changed ones are listed.
    pub(super) fn pin_views(&self) -> Vec<PinView> {
        let state = self.state();
        let pinned = state.parts.pins().pinned();
        let of_server = |server| {
            let parts: Vec<_> = state.parts.all_of(server).cloned().collect();
            let texts = texts_of(&pinned, server, &parts);
            let seen = texts.iter();
            let seen = seen.map(|(key, listed)| pin_view(&state.parts, server, *key, listed));
            let is_shown =
                |pin: &PinView| pin.kind != PinKind::Resource || pin.state == ListedState::Changed;
            seen.filter(is_shown).collect::<Vec<_>>()
        };
        pinned.servers().flat_map(of_server).collect()
    }

    /// One pin with its definitions and their diff.
    pub(super) fn pin_view(
        &self,
        server: &ServerName,
        (kind, name): (PinKind, &str),
    ) -> Result<PinDetail, Failure> {
        let state = self.state();
        let pinned = state.parts.pins().pinned();
        let parts: Vec<_> = state.parts.all_of(server).cloned().collect();
        let texts = texts_of(&pinned, server, &parts);
        let listed = texts
            .get(&(kind, name))
            .ok_or_else(|| unknown(server, kind, name))?;
        let view = pin_view(&state.parts, server, (kind, name), listed);
        let approved = pinned.approved(server, kind, name);
        let newest = approved.first().map(|pin| pin.text.clone());
        let definitions = listed.iter().map(|listed| {
            let text = listed.definition();
            ListedDefinition {
                digest: listed.digest().to_string(),
                state: pinned.state(server, *listed),
                hidden: listed.hidden().map(|hidden| hidden.to_string()),
                diff: newest.as_ref().map(|newest| definition_diff(newest, &text)),
                definition: text.parse().unwrap_or_default(),
            }
        });
        let approved = approved.iter().map(|pin| ApprovedPin {
            digest: pin.digest.to_string(),
            approved_at: rfc3339(pin.approved_at),
            definition: pin.text.parse().unwrap_or_default(),
        });
        Ok(PinDetail {
            pin: view,
            listed: definitions.collect(),
            approved: approved.collect(),
        })
    }

    /// Approves what a server lists under a name, or everything that it lists; if a digest is
    /// given, only that definition. Returns the names of which something was approved.
    pub(super) fn approve(
        &self,
        server: &ServerName,
        of: Option<(PinKind, &str)>,
        digest: Option<&str>,
    ) -> Result<Vec<String>, Failure> {
        let state = self.state();
        let parts: Vec<_> = state.parts.all_of(server).cloned().collect();
        let pinned = state.parts.pins().pinned();
        let texts = texts_of(&pinned, server, &parts);
        if let Some((kind, name)) = of
            && !texts.contains_key(&(kind, name))
        {
            return Err(unknown(server, kind, name));
        }
        let wanted = texts
            .iter()
            .filter(|(key, _)| of.is_none_or(|of| **key == of));
        let texts = wanted.flat_map(|(_, listed)| listed.iter().copied());
        let texts: Vec<ModelText<'_>> = texts
            .filter(|text| digest.is_none_or(|it| it == text.digest().to_string()))
            .collect();
        if digest.is_some() && texts.is_empty() {
            let message =
                format!("server `{server}` no longer lists this definition; review it again");
            let failure = Failure::new(ErrorKind::PreconditionFailed, message);
            return Err(failure.server(server.as_str()));
        }
        let mut approved = Vec::new();
        state.parts.pins().change(|pinned, now| {
            for text in texts {
                let found = pinned.state(server, text);
                if matches!(found, Some(PinState::Changed | PinState::New)) {
                    pinned.approve(server, text, now);
                    approved.push(text.name().to_owned());
                }
            }
            !approved.is_empty()
        });
        approved.dedup();
        if !approved.is_empty() {
            self.arrange_views(&state);
            drop(state);
            if !self.inbox.put(DispatcherInput::Arranged) {
                log::error!("event queue is full; the approval is applied with the next change");
            }
        }
        Ok(approved)
    }
}

/// The texts of a server with pins: pinned ones, and all that any client sees.
fn texts_of<'p>(
    pinned: &'p PinnedDefinitions,
    server: &ServerName,
    parts: &'p [Arc<ServerPart>],
) -> Listed<'p> {
    let Some(pins) = pinned.server(server) else {
        return Listed::new();
    };
    let names = pins
        .iter()
        .flat_map(|(kind, pins)| pins.keys().map(|name| (*kind, name.as_str())));
    let mut texts: Listed<'p> = names.map(|key| (key, Vec::new())).collect();
    for text in parts.iter().flat_map(|part| part.model_texts()) {
        let listed = texts.entry((text.kind(), text.name())).or_default();
        if !listed.iter().any(|one| one.digest() == text.digest()) {
            listed.push(text);
        }
    }
    texts
}

fn pin_view(
    parts: &ServerParts,
    server: &ServerName,
    (kind, name): (PinKind, &str),
    listed: &[ModelText<'_>],
) -> PinView {
    let pinned = parts.pins().pinned();
    let mode = parts.pin_mode(server);
    let mut states = listed.iter().filter_map(|text| pinned.state(server, *text));
    let other = states.find(|state| *state != PinState::Pinned);
    let state = match other {
        Some(state) => state.into(),
        None if listed.is_empty() => ListedState::Unlisted,
        None => ListedState::Pinned,
    };
    let newest = pinned.approved(server, kind, name).first();
    let hidden = listed.iter().find_map(|text| text.hidden());
    PinView {
        server: server.to_string(),
        kind,
        name: name.to_owned(),
        tool: (kind == PinKind::Tool).then(|| name.to_owned()),
        mode,
        state,
        suspended: mode == PinMode::Block && other.is_some(),
        hidden: hidden.map(|hidden| hidden.to_string()),
        approved_at: newest.map(|pin| rfc3339(pin.approved_at)),
    }
}

fn unknown(server: &ServerName, kind: PinKind, name: &str) -> Failure {
    let name: String = name.chars().take(200).collect();
    let kind = kind.as_str();
    let message = format!(
        "server `{server}` has no pin of a {kind} `{name}`; `mcpvisor pins` lists what is pinned"
    );
    Failure::new(ErrorKind::NotFound, message).server(server.as_str())
}
