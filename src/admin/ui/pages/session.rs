//! `/ui/sessions/HANDLE`: one session with its open streams, servers, and time line.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::calls::{duration, outcome};
use super::sessions::{age, client, unknown};
use crate::admin::history::history_page;
use crate::admin::status::{ServerStatus, Status};
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, text};
use crate::history::{CallPage, RecordedCall};
use crate::protocol::Failure;
use crate::sessions::{SessionDetail, SessionList};
use crate::telemetry::unix_millis;

/// Maximum calls in a time line; the page of calls has older ones.
const CALLS: &str = "50";

/// Maximum subscriptions that are shown.
const SUBSCRIPTIONS_MAX: usize = 100;

/// If an actor started this much later than its session, in milliseconds, it was rebuilt.
const REBUILT_AFTER_MS: u64 = 1000;

/// # Errors
///
/// Returns an error when no such session exists.
pub(super) async fn page(view: &View<'_>, handle: &str) -> Result<Page, Failure> {
    let sessions = SessionList::of(&view.operator.state.sessions);
    let found = sessions.detail(handle).await;
    let detail = found.ok_or_else(unknown)?;
    let recorded_as = detail.session.recorded_as.as_str();
    let query = [("session", recorded_as), ("limit", CALLS)];
    // The page is useful even if no calls were recorded.
    let calls = history_page(&view.operator.state.history, query).await.ok();
    let status = view.operator.status();
    let end = Button::new(&format!("/ui/sessions/{handle}/end"), "End it")
        .danger()
        .asks()
        .show();
    let page = Page::new(Section::Sessions, "Session").fixed(html! {
        p .crumb { a href="/ui/sessions" { "Sessions" } }
        header .heading { h1 { (client(&detail.session)) } div .actions { (end) } }
    });
    Ok(page
        .live("session", facts(&detail))
        .live("open", open(&detail))
        .live("servers", servers(&detail, calls.as_ref(), &status))
        .live("timeline", time_line(&detail, calls.as_ref(), &status)))
}

fn facts(detail: &SessionDetail) -> Markup {
    let session = &detail.session;
    html! {
        div .card {
            dl .facts {
                dt { "Handle" } dd { (text::code(&session.handle)) }
                dt { "In history and log" } dd { (text::code(&session.recorded_as)) }
                dt { "Revision" } dd { (session.revision.as_str()) }
                @if !session.principal.is_empty() { dt { "Principal" } dd { (text::line(&session.principal)) } }
                dt { "Open for" } dd { (age(session)) }
                dt { "Last heard" } dd { (text::age(session.idle_seconds.saturating_mul(1000))) " ago" }
                dt { "Streams" } dd { (session.streams) }
                @if detail.now.is_none() {
                    dt { "State" } dd { "idle: restored from its record when its client returns" }
                }
            }
        }
    }
}

fn open(detail: &SessionDetail) -> Markup {
    let calls = detail.now.as_ref().map_or(&[][..], |now| &now.calls);
    let subscriptions = &detail.subscriptions;
    html! {
        @if !calls.is_empty() {
            h2 { "Calls in flight" }
            ul .rows.card {
                @for call in calls {
                    li .row {
                        p .grow { (text::code(&call.item)) " " span .hint { (text::line(&call.method)) } }
                        a href=(format!("/ui/servers/{}", call.server)) { (text::line(&call.server)) }
                        span .hint {
                            @match call.server_revision { Some(it) => { "revision " (it.as_str()) } None => "not sent yet" }
                        }
                    }
                }
            }
        }
        @if !subscriptions.is_empty() {
            h2 { "Subscriptions" }
            ul .rows.card {
                @for (uri, server) in subscriptions.iter().take(SUBSCRIPTIONS_MAX) {
                    li .row {
                        p .grow { (text::code(uri)) }
                        a href=(format!("/ui/servers/{server}")) { (text::line(server)) }
                    }
                }
            }
            @if subscriptions.len() > SUBSCRIPTIONS_MAX {
                p .hint.after { (subscriptions.len() - SUBSCRIPTIONS_MAX) " more" }
            }
        }
    }
}

/// The servers that the session's calls and subscriptions lead to.
fn servers(detail: &SessionDetail, calls: Option<&CallPage>, status: &Status) -> Markup {
    let recorded = calls.into_iter().flat_map(|calls| &calls.entries);
    let recorded = recorded.filter_map(|call| call.server_id.as_deref());
    let open = detail.now.iter().flat_map(|now| &now.calls);
    let open = open.map(|call| call.server.as_str());
    let subscribed = detail.subscriptions.iter();
    let subscribed = subscribed.map(|(_, server)| server.as_str());
    let used: BTreeSet<&str> = recorded.chain(open).chain(subscribed).collect();
    let is_used = |server: &&ServerStatus| {
        used.contains(server.name.as_str()) || used.contains(server.id.as_str())
    };
    let used: Vec<&ServerStatus> = status.servers.iter().filter(is_used).collect();
    html! {
        @if !used.is_empty() {
            h2 { "Servers in use" }
            ul .rows.card {
                @for server in used { (server_row(detail, server)) }
            }
        }
    }
}

fn server_row(detail: &SessionDetail, server: &ServerStatus) -> Markup {
    let connection = server.connection.as_ref();
    let revision = connection.and_then(|connection| connection.revision);
    let own_name = format!("session {}", detail.session.recorded_as);
    let own = connection.map_or(&[][..], |connection| &connection.own);
    let has_own = own.iter().any(|own| own.owner.starts_with(&own_name));
    html! {
        li .row {
            p .title.grow {
                a href=(format!("/ui/servers/{}", server.name)) { (text::line(&server.name)) }
                (parts::state(server))
                @if has_own { span .hint { "over its own connection" } }
            }
            span .hint {
                @match revision { Some(revision) => { "revision " (revision.as_str()) } None => "not connected" }
            }
        }
    }
}

/// The time line, newest entry first.
fn time_line(detail: &SessionDetail, calls: Option<&CallPage>, status: &Status) -> Markup {
    let entries = calls.map_or(&[][..], |calls| &calls.entries);
    let is_cut = calls.is_some_and(|calls| calls.next.is_some());
    let moments = entries.iter().map(|it| (it.timestamp, call(it)));
    let mut moments: Vec<(u64, Markup)> = moments.collect();
    let from = entries
        .last()
        .filter(|_| is_cut)
        .map_or(0, |it| it.timestamp);
    let others = turns(detail, status, unix_millis());
    // Reversed, so that entries within the same second also appear newest first.
    let others = others.into_iter().rev().filter(|(at, _)| *at >= from);
    moments.extend(others.map(|(at, words)| (at, html! { (words) })));
    moments.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    html! {
        h2 { "Timeline" }
        ol .rows.card {
            @for (at, moment) in &moments {
                li .row { span .hint.nowrap { (text::moment(*at)) } p .grow { (moment) } }
            }
        }
        p .hint.after {
            @match calls {
                None => { "Its calls are not recorded." }
                Some(_) => {
                    a href=(format!("/ui/calls?session={}", detail.session.recorded_as)) { "All its calls" }
                }
            }
        }
    }
}

/// When the session was opened, and what it survived. Rounded to seconds: the times come from two
/// clocks, and an open page should not flicker.
fn turns(detail: &SessionDetail, status: &Status, now: u64) -> Vec<(u64, &'static str)> {
    let mut turns = Vec::new();
    let opened = detail.opened_at;
    turns.extend(opened.map(|opened| (opened, "Opened by the client")));
    let started = status.started_at;
    if opened.is_none_or(|opened| started > opened) {
        turns.push((started, "Kept across a restart of the gateway"));
    }
    let built = detail.now.as_ref();
    let built = built.map(|built| now.saturating_sub(built.built_ms));
    // An actor as old as its session was not rebuilt.
    let is_later = |built: &u64| {
        opened.is_none_or(|opened| opened < started || *built > opened + REBUILT_AFTER_MS)
    };
    turns.extend(built.filter(is_later).map(|built| {
        let words = "Restored from its record when its client returned";
        (built, words)
    }));
    let rounded = |at: u64| at.saturating_add(500) / 1000 * 1000;
    let turns = turns.into_iter();
    turns.map(|(at, words)| (rounded(at), words)).collect()
}

fn call(call: &RecordedCall) -> Markup {
    html! {
        a href=(format!("/ui/calls/{}", call.id)) { (text::line(call.title())) }
        " " span .hint { (text::line(call.server_id.as_deref().unwrap_or_default())) } " "
        (outcome(call)) " " span .hint { (duration(call.duration)) }
    }
}
