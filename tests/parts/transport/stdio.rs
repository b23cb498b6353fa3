//! Messages to and from real child processes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use mcpvisor::telemetry::{LogRing, LogSource};
use mcpvisor::transport::{
    ChildLimits, Connector, InheritEnv, Link, OutgoingFrame, SendError, Spawner, StdioConnector,
    StdioSettings,
};

use crate::transport::support::{Events, instance, run, sink};

pub(crate) const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn settings(command: &str, args: &[&str]) -> StdioSettings {
    StdioSettings {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).into()).collect(),
        env: BTreeMap::new(),
        inherit_env: Default::default(),
        cwd: None,
        line_max: 16 << 20,
        write_queue_max: 64,
        stop_grace: Duration::from_millis(100),
        limits: ChildLimits::default(),
        sandbox: Default::default(),
    }
}

pub(crate) struct Child {
    pub(crate) link: Box<dyn Link>,
    pub(crate) events: Events,
    pub(crate) log: LogRing,
}

pub(crate) async fn open(spawner: &Spawner, settings: StdioSettings) -> Child {
    let log = LogRing::default();
    let connector = StdioConnector::new(settings, spawner.clone(), log.clone());
    let (sink, events) = sink();
    let link = connector.open(sink).await.unwrap();
    Child { link, events, log }
}

/// A child that runs a shell script.
pub(crate) async fn shell(spawner: &Spawner, script: &str) -> Child {
    open(spawner, settings("sh", &["-c", script])).await
}

fn request(id: u64, padding: usize) -> Bytes {
    let text = "x".repeat(padding);
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#
    ))
}

#[test]
fn frames_go_out_as_lines_and_come_back_in_order() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut child = open(&spawner, settings("cat", &[])).await;
        let spread = "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"result\":\"a\"}\n";
        child
            .link
            .send(OutgoingFrame::new(Some(1), Bytes::from(spread)))
            .unwrap();
        let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
        child
            .link
            .send(OutgoingFrame::new(None, Bytes::from(ping)))
            .unwrap();
        let batch = format!("[{ping},{ping}]");
        child
            .link
            .send(OutgoingFrame::new(None, Bytes::from(batch)))
            .unwrap();
        assert_eq!(child.events.next().await, r#"result 1 "a""#);
        for _ in 0..3 {
            assert_eq!(child.events.next().await, "request 2 ping");
        }
        child.link.close(GRACE).await;
        assert!(child.events.is_silent(), "an ordered end is no event");
    });
}

#[test]
fn large_messages_pass_and_one_over_the_limit_fails_alone() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut child = open(&spawner, settings("cat", &[])).await;
        let overhead = request(1, 0).len();
        for length in [1 << 20, 16 << 20] {
            child
                .link
                .send(OutgoingFrame::new(Some(1), request(1, length - overhead)))
                .unwrap();
            let expected = format!("result 1 of {} bytes", length - overhead + 2);
            assert_eq!(child.events.next().await, expected);
        }
        child
            .link
            .send(OutgoingFrame::new(
                Some(7),
                request(7, (16 << 20) - overhead + 1),
            ))
            .unwrap();
        child
            .link
            .send(OutgoingFrame::new(Some(8), request(8, 1)))
            .unwrap();
        assert_eq!(
            child.events.next().await,
            "failed 7: answer is larger than the limit of 16777216 bytes (limits.line)"
        );
        assert_eq!(child.events.next().await, r#"result 8 "x""#);
        child.link.close(GRACE).await;
    });
}

#[test]
fn lines_that_are_no_messages_are_kept_for_people() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let script = r#"printf 'Server started\n\n\377\376\n{"a":1}\n'
        printf 'warning\n' >&2
        printf '{"jsonrpc":"2.0","method":"m","params":{"x":"\377"}}\n'
        printf '{"jsonrpc":"2.0","id":1,"result":{}}\n'; cat"#;
        let mut child = shell(&spawner, script).await;
        // A letter of another charset does not spoil a message.
        assert_eq!(child.events.next().await, "notification m");
        assert_eq!(child.events.next().await, "result 1 {}");
        assert_eq!(child.log.counters().stray, 3);
        let orphan = child.log.after(0);
        let orphan = orphan.iter().find(|line| line.source == LogSource::Stray);
        assert_eq!(orphan.unwrap().text, "Server started");
        let log = child.log.clone();
        crate::transport::support::until("the warning", || log.counters().stderr == 1).await;
        child.link.close(GRACE).await;
    });
}

#[test]
fn a_child_that_floods_and_does_not_read_blocks_nobody() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let notification = r#"{"jsonrpc":"2.0","method":"flood"}"#;
        let script = format!("while :; do echo '{notification}'; echo noise >&2; done");
        let mut child = shell(&spawner, &script).await;
        let frame = request(1, 64 << 10);
        let refused = loop {
            match child.link.send(OutgoingFrame::new(None, frame.clone())) {
                Ok(()) => assert_eq!(child.events.next().await, "notification flood"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, SendError::Full);
        for _ in 0..1000 {
            assert_eq!(child.events.next().await, "notification flood");
        }
        child.link.close(Duration::from_millis(50)).await;
    });
}

#[test]
fn the_environment_is_inherited_only_on_request() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let script = r#"echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"$CARGO_PKG_NAME $TOKEN ${PATH:+path}\"}"; cat"#;
        for (inherit_env, expected) in [
            (InheritEnv::default(), " secret path"),
            (
                InheritEnv::Matching(vec!["CARGO_PKG_*".to_owned()]),
                "mcpvisor secret path",
            ),
            (InheritEnv::All, "mcpvisor secret path"),
        ] {
            let mut settings = settings("sh", &["-c", script]);
            settings.inherit_env = inherit_env;
            settings.env.insert("TOKEN".to_owned(), "secret".into());
            let mut child = open(&spawner, settings).await;
            let event = child.events.next().await;
            assert_eq!(event, format!("result 1 \"{expected}\""));
            child.link.close(GRACE).await;
        }
    });
}

#[test]
fn a_command_that_cannot_start_says_why() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut nowhere = settings("sh", &[]);
        nowhere.cwd = Some("/no/such/folder".into());
        let cases = [
            (
                settings("no-such-command-at-all", &[]),
                "not found; install it",
            ),
            (settings("/etc/passwd", &[]), "permission denied"),
            (nowhere, "working directory /no/such/folder does not exist"),
        ];
        for (settings, expected) in cases {
            let (sink, _events) = sink();
            let connector = StdioConnector::new(settings, spawner.clone(), LogRing::default());
            let error = connector.open(sink).await.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    });
}

#[test]
fn a_child_that_reads_is_told_from_one_that_does_not() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut child = shell(&spawner, "read a; echo \"$a\"; exec sleep 100").await;
        let send = |id| {
            let frame = OutgoingFrame::new(Some(id), request(id, 1));
            child.link.send(frame).unwrap();
        };
        send(1);
        send(2);
        assert_eq!(child.events.next().await, r#"result 1 "x""#);
        let tells = cfg!(unix);
        assert_eq!(child.link.is_read(), tells.then_some(false));

        let mut child = open(&spawner, settings("cat", &[])).await;
        let frame = OutgoingFrame::new(Some(1), request(1, 1));
        child.link.send(frame).unwrap();
        assert_eq!(child.events.next().await, r#"result 1 "x""#);
        assert_eq!(child.link.is_read(), tells.then_some(true));
        // The pipe is closed all the same when the link is.
        child.link.close(GRACE).await;
    });
}

#[test]
fn a_child_that_asks_for_a_sign_in_is_heard() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let script = "echo 'Please authorize this client by visiting:' >&2; \
                      echo 'https://auth.example/authorize?state=1' >&2; read a";
        let mut child = shell(&spawner, script).await;
        let page = "https://auth.example/authorize?state=1";
        assert_eq!(child.events.next().await, format!("sign in at {page}"));
    });
}
