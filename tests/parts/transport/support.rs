//! Shared by the tests: an event sink that can be awaited, and looks at processes.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use mcpvisor::protocol::{Envelope, Outcome};
use mcpvisor::transport::{EventSink, LinkEvent, ProcessOwner, SignInPlace};
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

/// Nothing in a test takes longer, on however slow a machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A data directory and a run of their own.
pub(crate) fn instance() -> ProcessOwner {
    ProcessOwner::new(Uuid::new_v4(), Uuid::new_v4())
}

/// The reports of a link.
pub(crate) struct Events(mpsc::UnboundedReceiver<LinkEvent>);

pub(crate) fn sink() -> (EventSink, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let sink: EventSink = Rc::new(move |event| {
        let _ = sender.send(event);
    });
    (sink, Events(receiver))
}

impl Events {
    /// The next event, as a short text.
    pub(crate) async fn next(&mut self) -> String {
        let event = timeout(DEADLINE, self.0.recv()).await;
        let event = event.expect("an event in time");
        event.map_or_else(|| "nothing".to_owned(), |event| describe(&event))
    }

    /// The next event, if it comes in this time.
    pub(crate) async fn next_within(&mut self, limit: Duration) -> Option<String> {
        timeout(limit, self.next()).await.ok()
    }

    /// How the link ends, whatever comes before; for a child that must get CPU time to end.
    pub(crate) async fn end_within(&mut self, limit: Duration) -> String {
        let end = async {
            loop {
                match self.0.recv().await {
                    Some(event @ LinkEvent::Closed(_)) => return describe(&event),
                    Some(_) => {}
                    None => return "nothing".to_owned(),
                }
            }
        };
        timeout(limit, end).await.expect("an end in time")
    }

    /// The events up to and with the link's end.
    pub(crate) async fn until_the_end(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await;
            let last = event.starts_with("closed") || event == "nothing";
            events.push(event);
            if last {
                return events;
            }
        }
    }

    /// Waits for a notification of the server that says `name`, skipping others.
    pub(crate) async fn params_name(&mut self) -> String {
        loop {
            let event = timeout(DEADLINE, self.0.recv()).await;
            let event = event.expect("an event in time").expect("a link");
            if let LinkEvent::Received { envelope, .. } = &event
                && let Envelope::Notification(notification) = envelope
            {
                let name = notification.member(notification.params.name.as_ref());
                if let Some(name) = name {
                    return String::from_utf8(name.to_vec()).unwrap();
                }
            }
        }
    }

    pub(crate) fn is_silent(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

fn describe(event: &LinkEvent) -> String {
    match event {
        LinkEvent::Received { call, envelope } => {
            let call = call.map(|call| format!(" of {call}")).unwrap_or_default();
            match envelope {
                Envelope::Request(request) => {
                    format!("request{call} {:?} {}", request.id, request.method)
                }
                Envelope::Notification(notification) => {
                    format!("notification{call} {}", notification.method)
                }
                Envelope::Response(response) => {
                    let id = response.id.as_ref().map(|id| id.as_str()).unwrap_or("-");
                    match &response.outcome {
                        Outcome::Result(result) if result.as_str().len() < 100 => {
                            format!("result{call} {id} {}", result.as_str())
                        }
                        Outcome::Result(result) => {
                            format!("result{call} {id} of {} bytes", result.as_str().len())
                        }
                        Outcome::Error(error) => format!("error{call} {id} {}", error.as_str()),
                    }
                }
            }
        }
        LinkEvent::Failed { call, error } => format!("failed {call}: {error:#}"),
        LinkEvent::SessionGone { call, refusal } if refusal.may_have_run => {
            format!("session in doubt {call:?}: {:#}", refusal.error)
        }
        LinkEvent::SessionGone { call, .. } => format!("session gone {call:?}"),
        LinkEvent::SignIn(SignInPlace::Page(url)) => format!("sign in at {url}"),
        LinkEvent::SignIn(SignInPlace::Gateway) => "sign in through the gateway".to_owned(),
        LinkEvent::SignIn(SignInPlace::Client) => "sign in at the gateway".to_owned(),
        LinkEvent::Closed(ending) => format!("closed: {ending:#}"),
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat"));
    let state = stat.ok().and_then(|stat| {
        let after_name = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.trim().to_owned());
        after_name.and_then(|rest| rest.chars().next())
    });
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Whether a process works in this folder.
pub(crate) fn is_anybody_in(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut places = processes.filter_map(|process| process.path().join("cwd").read_link().ok());
    places.any(|place| place == folder)
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = timeout(DEADLINE, wait).await;
    assert!(in_time.is_ok(), "not in time: {what}");
}

/// Runs a test on an arbiter of its own.
pub(crate) fn run(test: impl Future<Output = ()>) {
    actix_rt::System::new().block_on(test);
}
