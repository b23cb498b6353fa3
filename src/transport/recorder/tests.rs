//! Tests of recordings and their reports.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use super::*;
use crate::protocol::Revision;
use crate::transport::{HttpSession, LinkEvent, OutgoingFrame, SendError};

struct Nowhere;

impl Link for Nowhere {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        if outgoing.call == Some(99) {
            return Err(SendError::Full);
        }
        Ok(())
    }

    fn forget(&self, _: u64) {}

    fn set_revision(&self, _: Revision) {}

    fn set_session(&self, _: HttpSession) {}

    fn http_session(&self) -> Option<HttpSession> {
        None
    }

    fn listen(&self) {}

    fn close(self: Box<Self>, _: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

struct Wired {
    recorder: Recorder,
    link: Box<dyn Link>,
    sink: EventSink,
}

fn wired(settings: RecorderSettings) -> Wired {
    let recorder = Recorder::new(settings);
    let recording = recorder.recording();
    Wired {
        link: recording.link(Box::new(Nowhere)),
        sink: recording.sink(Rc::new(|_| {})),
        recorder,
    }
}

impl Wired {
    fn send(&self, call: u64, frame: &str) {
        let _ = self.link.send(OutgoingFrame::new(
            Some(call),
            Bytes::from(frame.to_owned()),
        ));
    }

    fn receive(&self, frame: &'static str) {
        let envelope = crate::protocol::Envelope::parse(Bytes::from(frame)).unwrap();
        (self.sink)(LinkEvent::Received {
            call: None,
            envelope,
        });
    }

    fn report(&self) -> RecordingReport {
        self.recorder
            .report(Instant::now(), &LiveSecrets::default())
    }
}

fn call(id: u64, padding: usize) -> String {
    let text = "s".repeat(padding);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"x":"{text}"}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn each_message_is_described_without_its_body() {
    let wired = wired(RecorderSettings::default());
    wired.send(1, &call(1, 10));
    tokio::time::advance(Duration::from_millis(70)).await;
    wired.send(2, &call(2, 10_000));
    wired.receive(r#"{"jsonrpc":"2.0","id":1,"result":{"secret":"s"}}"#);
    wired.receive(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"s"}}"#);
    wired.receive(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    wired.send(3, "no JSON");
    wired.send(99, &call(99, 1));
    (wired.sink)(LinkEvent::Closed("boom".to_owned().into()));
    tokio::time::advance(Duration::from_millis(30)).await;
    let told = wired.report();
    let lines: Vec<String> = told
        .messages
        .iter()
        .map(|told| {
            let method = told.method.as_deref().unwrap_or("-");
            let id = told.id.as_deref().unwrap_or("-");
            let kind = serde_json::to_value(told.kind).unwrap();
            let text = told.text.as_deref().unwrap_or("");
            format!(
                "{} {} {kind} {method} {id} {} {text}",
                told.before_ms, told.direction, told.bytes
            )
        })
        .collect();
    let expected = [
        "100 sent \"request\" tools/call 1 99 ",
        "30 sent \"message\" tools/call 2 10089 ",
        "30 received \"result\" - 1 48 ",
        "30 received \"notification\" notifications/message - 72 ",
        "30 received \"request\" roots/list \"q\" 48 ",
        "30 sent \"message\" - 3 7 ",
        "30 received \"closed\" - - 0 boom",
    ];
    assert_eq!(lines, expected);
    let pending: Vec<_> = told.pending.iter().map(|p| (p.call, p.for_ms)).collect();
    assert_eq!(pending, [(2, 30), (3, 30)]);
    assert_eq!(told.pending[0].method, "tools/call");
    assert_eq!(told.pending[0].name.as_deref(), Some("t"));
    assert!(!format!("{told:?}").contains("sss"));
}

#[tokio::test]
async fn bodies_are_cut_and_masked_if_they_are_wanted() {
    let wired = wired(RecorderSettings {
        body_max: 60,
        ..RecorderSettings::default()
    });
    wired.send(
        1,
        r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"k":"hunter22"}}"#,
    );
    wired.receive(r#"{"jsonrpc":"2.0","id":1,"result":{"plain":"hunter22","more":"hunter22"}}"#);
    let secrets = LiveSecrets::of(["hunter22"]);
    let told = wired.recorder.report(Instant::now(), &secrets);
    let texts: Vec<_> = told.messages.into_iter().filter_map(|m| m.text).collect();
    assert_eq!(
        texts,
        [
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"k":"***…"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"plain":"***","more":"#
        ]
    );
}

#[tokio::test]
async fn a_tape_is_bounded_in_messages_and_bytes() {
    let bounded = |messages_max, bytes_max| {
        let wired = wired(RecorderSettings {
            messages_max,
            bytes_max,
            ..RecorderSettings::default()
        });
        for id in 0..100 {
            wired.send(id, &call(id, 1000));
            let frame = Bytes::from("x");
            let entry = RecordedMessage::sent(Instant::now(), None, &frame, 0);
            wired.recorder.recording().sent(None, frame, entry);
        }
        wired.report()
    };
    assert_eq!(bounded(10, 1 << 20).messages.len(), 10);
    assert_eq!(bounded(10, 1 << 20).pending.len(), 99);
    let few = bounded(500, 5000).messages;
    let held: usize = few.iter().map(|told| told.bytes).filter(|b| *b > 1).sum();
    assert!((3000..5000).contains(&held), "{held}");
    assert_eq!(bounded(0, 5000).messages.len(), 0);
}
