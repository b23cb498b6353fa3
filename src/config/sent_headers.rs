//! Lists the headers sent to a server, for `mcpvisor servers headers`. Values are masked.

use super::describe::shown_url;
use super::{Config, ServerState};
use crate::downstream::{CredentialsChoice, TransportSettings};
use crate::masking::MASK;
use crate::transport::HttpSettings;

impl Config {
    /// Headers of requests to a server, one per line.
    ///
    /// # Errors
    ///
    /// Returns why there is nothing to show.
    pub fn headers_to(&self, server: &str) -> Result<String, String> {
        let mut entries = self.servers.iter();
        let found = entries.find(|entry| entry.name.as_str() == server || entry.id() == server);
        let Some(entry) = found else {
            return Err(format!("the configuration has no server `{server}`"));
        };
        match &entry.state {
            ServerState::Disabled => Err(format!("server `{server}` is disabled")),
            ServerState::Misconfigured(why) => {
                Err(format!("server `{server}` is misconfigured: {why}"))
            }
            ServerState::Ready(settings) => match &settings.transport {
                TransportSettings::Stdio(_) => Err(format!(
                    "server `{server}` is a program, which receives no headers"
                )),
                TransportSettings::Http(http) => Ok(shown(http, settings.credentials)),
            },
        }
    }
}

fn shown(http: &HttpSettings, credentials: CredentialsChoice) -> String {
    let own = |name: &str| {
        let mut names = http.headers.iter().map(|(name, _)| name);
        names.any(|other| other.eq_ignore_ascii_case(name))
    };
    let mut lines = vec![
        format!("POST {}", shown_url(&http.url)),
        "Accept: application/json, text/event-stream".to_owned(),
        "Content-Type: application/json".to_owned(),
    ];
    if !own("user-agent") {
        lines.push(concat!("User-Agent: mcpvisor/", env!("CARGO_PKG_VERSION")).to_owned());
    }
    let configured = http.headers.iter();
    lines.extend(configured.map(|(name, _)| format!("{name}: {MASK}  (`headers`)")));
    if !http.has_authorization() {
        let whose = match credentials {
            CredentialsChoice::Shared => "once the gateway has signed in",
            CredentialsChoice::User => "of the calling user, once signed in",
        };
        lines.push(format!("Authorization: Bearer {MASK}  ({whose})"));
    }
    let forwarded = http.forward_headers.iter();
    lines.extend(forwarded.map(|header| {
        let (from, to) = (&header.from, &header.to);
        format!("{to}: {MASK}  (`{from}` of the client, on its calls)")
    }));
    let of_user = http.user_headers.iter();
    lines.extend(
        of_user.map(|(name, claim)| {
            format!("{name}: {MASK}  (`{claim}` of the caller, on each call)")
        }),
    );
    lines.push("Mcp-…: protocol headers of each request".to_owned());
    lines.join("\n") + "\n"
}
