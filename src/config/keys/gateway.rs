//! `[gateway]`.

use std::path::PathBuf;
use std::time::Duration;

use super::policy::effect;
use super::view::expose;
use crate::catalog::PinMode;
use crate::config::Config;
use crate::config::address::{self, ListenAddress};
use crate::config::checks::{
    DIRECTORY, ENDPOINT, HOST, NETWORK, ORIGIN, directory, endpoint, host, is_at_least, network,
    origin,
};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{
    ChoiceKind, RangeKind, choice, count, duration, flag, optional, size,
};
use crate::config::declaration::texts::{text, texts};
use crate::config::section::Section;
use crate::config::units::{DAY, HOUR, MIB, MILLI, MINUTE, SECOND};
use crate::downstream::ServerLimits;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, JSON lines otherwise.
    #[default]
    Auto,
    Human,
    Json,
}

fn log_format() -> ChoiceKind<LogFormat> {
    choice(&[
        ("auto", LogFormat::Auto),
        ("human", LogFormat::Human),
        ("json", LogFormat::Json),
    ])
}

// A server may set these again.

pub(super) fn pin_tools() -> ChoiceKind<PinMode> {
    choice(&[
        ("off", PinMode::Off),
        ("warn", PinMode::Warn),
        ("block", PinMode::Block),
    ])
}

pub(super) fn request_timeout() -> RangeKind<Duration> {
    duration(100 * MILLI..=DAY)
}

pub(super) fn start_timeout() -> RangeKind<Duration> {
    duration(10 * MILLI..=DAY)
}

pub(super) fn request_timeout_max() -> RangeKind<Duration> {
    duration(100 * MILLI..=7 * DAY)
}

pub(super) fn queue_while_restarting() -> RangeKind<Duration> {
    duration(Duration::ZERO..=10 * MINUTE)
}

keys! {
    /// How clients reach the gateway, and settings that apply to all servers.
    GatewayTable for Config, check {
        /// Address and port, or a Unix socket that only this user can open, whose clients are known
        /// by their user's number (`unix:/path`). Overridden by a socket passed by systemd, MCPVISOR_LISTEN, or PORT
        /// (with HOST).
        listen in listen: text(address::LISTEN_MUST_BE, address::listen_address), NeedsRestart;
        /// Allow a public address or `allowed_hosts` without authentication ([auth]).
        allow_unauthenticated: flag();
        /// Path of the MCP endpoint; it is also served at "/".
        endpoint in front.endpoint: text(ENDPOINT, endpoint), NeedsRestart;
        /// Serve clients of revision 2024-11-05 (HTTP+SSE) at "/sse" and "/messages".
        legacy_sse in front.legacy_sse: flag();
        /// Serve all clients without sessions (docs/deploy.md), like `--stateless`.
        stateless in front.stateless: flag();
        /// Origins of web pages that may call the gateway; "*" matches any port or part of the
        /// host.
        allowed_origins in front.allowed_origins: texts(ORIGIN, origin);
        /// Accepted `Host` headers. A loopback address also accepts loopback names; any other
        /// address accepts every host if this is empty.
        allowed_hosts in front.allowed_hosts: texts(HOST, host);
        /// Addresses or networks of proxies whose `X-Forwarded-For` names the client, for shares,
        /// limits and the log of denials.
        trusted_proxies in front.trusted_proxies: texts(NETWORK, network).such_as("[\"10.0.0.0/8\"]");
        /// A call that is silent for longer is answered as an SSE stream.
        sse_after in front.sse_after: duration(10 * MILLI..=10 * MINUTE);
        /// Interval of the comments that keep idle streams open.
        sse_comment_every in front.sse_comment_every: duration(SECOND..=10 * MINUTE);
        /// How long calls of an HTTP+SSE client with a broken stream wait for it to reconnect.
        sse_reconnect_within in front.sse_reconnect_within: duration(SECOND..=10 * MINUTE);
        /// How long the first list waits for servers that were never listed.
        first_list_wait in session.first_list_wait: duration(Duration::ZERO..=10 * MINUTE);
        /// Upper bound of that wait, for lists that depend on the client, and for kinds of servers
        /// (launchers such as npx; other programs; http) that took longer before.
        first_list_wait_max in session.first_list_wait_max: duration(Duration::ZERO..=10 * MINUTE);
        /// Timeout of a call; progress restarts it.
        request_timeout in every_server.limits.request_timeout: request_timeout();
        /// Timeout of a call regardless of progress.
        request_timeout_max in every_server.limits.request_timeout_max: request_timeout_max();
        /// Time until a program first reads or writes; npx, uvx and docker download first.
        start_timeout in every_server.limits.start_timeout: start_timeout();
        /// How long a call waits for a server that is restarting; "0s" fails it immediately.
        queue_while_restarting in every_server.limits.queue_while_restarting:
            queue_while_restarting();
        /// Time for the gateway to stop: it drains calls, then stops servers.
        shutdown_grace: duration(100 * MILLI..=HOUR);
        /// At the start, time for processes left by a killed gateway to exit before they are
        /// killed.
        orphan_grace: duration(Duration::ZERO..=MINUTE), NeedsRestart;
        /// Directory of the persistent state. Default: MCPVISOR_DATA in the environment, else
        /// ".mcpvisor".
        data_dir in data_dir_key:
            optional(text(DIRECTORY, directory), "\"${MCPVISOR_DATA:-.mcpvisor}\""), NeedsRestart;
        /// Worker threads. Default: the number of CPUs.
        workers in workers_key: optional(count(1..=1024), "4"), NeedsRestart;
        /// Programs that start at the same time; others queue. Default: twice the number of CPUs.
        starts_at_once: optional(count(1..=1000), "8"), NeedsRestart;
        /// Idle time after which a client's connection is closed.
        keep_alive in front.keep_alive: duration(SECOND..=HOUR), NeedsRestart;
        /// Time to receive a request's head.
        head_timeout in front.head_timeout: duration(100 * MILLI..=10 * MINUTE), NeedsRestart;
        /// Time to receive a request's body. A client that reads nothing of an answer for this long
        /// is disconnected.
        body_timeout in front.body_timeout: duration(100 * MILLI..=HOUR);
        /// Client connections per worker. Default: 25,000, or fewer if the open-file limit is
        /// lower.
        connections_max in front.connections_max:
            optional(count(1..=1_000_000), "25000"), NeedsRestart;
        /// Longest public name of a tool or prompt; a longer one is cut and ends in a hash.
        name_max in catalog.name_max: count(16..=128);
        /// Items per page of a list.
        page_items in catalog.page_items: count(1..=100_000);
        /// Length of the servers' merged instructions.
        instructions_max in catalog.instructions_max: size(0..=MIB);
        /// Report changes of what models read of a server ("warn"), or also withhold them
        /// ("block"), until you approve them (docs/pins.md).
        pin_tools in every_server.names.pins: pin_tools();
        /// Effect when no policy's condition holds ([policies.NAME]).
        policy_default in policies.default: effect();
        /// Let clients read the status of the gateway and its servers in the resource
        /// "mcpvisor://tree".
        tree_resource in catalog.tree_resource: flag();
        /// Tools that the main endpoint lists; see [views.NAME].
        expose in catalog.expose: expose();
        /// Apply changes of this file automatically; otherwise send SIGHUP.
        watch: flag(), NeedsRestart;
        /// Format of the log on stderr; "auto" is human on a terminal, otherwise JSON.
        log: log_format(), NeedsRestart;
    }
}

/// Checks keys that depend on each other, and applies the environment's overrides.
fn check(config: &mut Config, section: &Section<'_>) {
    let front = &mut config.front;
    // A client CA authenticates clients as well.
    let has_auth = front.auth.is_required() || front.tls.client_ca.is_some();
    let may_be_public = has_auth || config.allow_unauthenticated;
    config.listen = address::listen(section, &config.listen, may_be_public);
    match config.listen.clone() {
        ListenAddress::Tcp(address) => front.listen = address,
        ListenAddress::Unix(socket) if front.tls.is_on() => {
            let message = format!(
                "`gateway.listen` is the socket {}, and `[tls]` is for TCP",
                socket.display()
            );
            section.refuse(&["listen"], message, "remove one of them".to_owned());
        }
        ListenAddress::Unix(socket) => {
            (front.listen, front.socket) = (address::LOOPBACK, Some(socket));
        }
    }
    let is_public = !front.listen.ip().is_loopback();
    if !is_public && !may_be_public && !front.allowed_hosts.is_empty() {
        let message = "`gateway.allowed_hosts` names a host, so others can reach this gateway \
                       through a proxy or a tunnel, and there is no authentication";
        let help = "make an API key with `mcpvisor keys add NAME`, or set `allow_unauthenticated = \
                    true` if the proxy authenticates";
        section.refuse(&["allowed_hosts"], message.to_owned(), help.to_owned());
    }
    if !has_auth && config.allow_unauthenticated && (is_public || !front.allowed_hosts.is_empty()) {
        section.reader.warn(
            "`gateway.allow_unauthenticated` is true and there is no authentication: whoever \
             reaches this gateway may use every server",
        );
    }
    if is_public && config.allow_unauthenticated && front.allowed_hosts.is_empty() {
        section.reader.warn(
            "`gateway.allowed_hosts` is empty, so any `Host` is accepted on a public address; \
             name the hosts that clients use",
        );
    }
    if front.allowed_origins.iter().any(|origin| origin == "*") {
        section.reader.warn(
            "`gateway.allowed_origins` holds `*`: every web page that a user opens may use this \
             gateway",
        );
    }
    if let Some(workers) = config.workers_key {
        front.workers = workers;
    }
    let limits = &mut config.every_server.limits;
    check_timeouts(limits, section);
    // Servers inherit it, and are not to be blamed.
    limits.request_timeout_max = limits.request_timeout_max.max(limits.request_timeout);
    let interpolation = section.reader.interpolation;
    // A variable of this name that is empty counts as unset, as in `${VAR:-default}`.
    let from_environment = || {
        let variable = interpolation.environment.var("MCPVISOR_DATA");
        variable
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let named = config.data_dir_key.clone().or_else(from_environment);
    let data_dir = named.unwrap_or_else(|| PathBuf::from(".mcpvisor"));
    config.data_dir = interpolation.directory.join(data_dir);
}

pub(super) fn check_timeouts(limits: &ServerLimits, section: &Section<'_>) {
    is_at_least(
        section,
        ("request_timeout_max", limits.request_timeout_max),
        ("request_timeout", limits.request_timeout),
        None,
    );
}
