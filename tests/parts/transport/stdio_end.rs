//! Every way in which a child process can end, and what must not be left.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mcpvisor::transport::{OutgoingFrame, Spawner};

use crate::transport::stdio::{Child, GRACE, open, settings, shell};
use crate::transport::support::{instance, is_alive, is_anybody_in, run, until};

/// Shell text that tells a process id as the name of a notification.
fn tell(pid: &str) -> String {
    format!(r#"echo "{{\"jsonrpc\":\"2.0\",\"method\":\"pid\",\"params\":{{\"name\":{pid}}}}}""#)
}

const A_MOMENT: Duration = Duration::from_millis(100);

/// Starts a process in a session of its own that does not heed SIGTERM; its id is that of the
/// shell's last background process.
const DEAF_ORPHAN: &str =
    "setsid sh -c \"trap '' TERM; while :; do sleep 1000; done\" <&- >&- 2>&-";

#[test]
fn the_reason_of_an_end_is_reported_once() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let cases = [
            ("exit 0", "closed: process exited with code 0"),
            ("echo; exit 0", "closed: process exited with code 0"),
            (
                "echo one >&2; echo boom >&2; exit 3",
                "closed: process exited with code 3: boom",
            ),
            (
                "printf 'no line end' >&2; exit 1",
                "closed: process exited with code 1: no line end",
            ),
            ("kill -9 $$", "closed: process ended by signal 9"),
            (
                "exec >&-; sleep 1000",
                "closed: server closed its standard output",
            ),
        ];
        for (script, expected) in cases {
            let mut child = shell(&spawner, script).await;
            assert_eq!(child.events.until_the_end().await, [expected], "{script}");
            child.link.close(Duration::ZERO).await;
            assert_eq!(child.events.next().await, "nothing", "{script}");
        }
    });
}

#[test]
fn lines_written_before_the_end_come_first() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":1}"#;
        let script = format!("echo '{answer}'; printf '%s' '{answer}'; exit 1");
        let mut child = shell(&spawner, &script).await;
        let events = child.events.until_the_end().await;
        let expected = [
            "result 1 1",
            "result 1 1",
            "closed: process exited with code 1",
        ];
        assert_eq!(events, expected);
    });
}

#[test]
fn calls_that_were_never_written_are_distinguished() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut child = shell(&spawner, "head -c 1 >/dev/null; exit 1").await;
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
            "x".repeat(1 << 20)
        );
        for call in [1, 2, 3] {
            let frame = Bytes::from(frame.clone());
            child
                .link
                .send(OutgoingFrame::new(Some(call), frame))
                .unwrap();
        }
        let events = child.events.until_the_end().await;
        let not_sent = "not sent: the server ended or stopped reading first";
        let expected = [
            format!("failed 2: {not_sent}"),
            format!("failed 3: {not_sent}"),
            "closed: process exited with code 1".to_owned(),
        ];
        assert_eq!(events, expected);
    });
}

/// Sends requests until one is refused. The pipe takes some while the child of another test, between
/// fork and exec, holds its other end, too.
async fn a_request_is_refused(child: &mut Child) {
    for id in 1.. {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let frame = OutgoingFrame::new(Some(id), Bytes::from(frame));
        child.link.send(frame).unwrap();
        if let Some(event) = child.events.next_within(A_MOMENT).await {
            let refusal = ": not sent: the server ended or stopped reading first";
            assert!(
                event.starts_with("failed ") && event.ends_with(refusal),
                "{event}"
            );
            return;
        }
    }
}

#[test]
fn a_child_that_closed_its_input_is_of_no_use() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let script = format!("exec <&-; {}; exec sleep 1000", tell("$$"));
        let mut child = shell(&spawner, &script).await;
        let pid = child.events.params_name().await;
        a_request_is_refused(&mut child).await;
        let expected = ["closed: server closed its standard input"];
        assert_eq!(child.events.until_the_end().await, expected);
        assert!(is_alive(&pid), "it is ended with its link, not before");
        drop(child.link);
        until("it is gone", || !is_alive(&pid)).await;
    });
}

/// It closes both pipes before it exits, and its output ends last: the exit says more.
#[test]
fn the_exit_of_a_child_is_told_whichever_pipe_it_closes_first() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let flag = folder.path().join("go");
        let script = format!(
            "exec <&-; {}; until [ -e '{}' ]; do sleep 0.01; done; exec >&-; sleep 0.2; exit 3",
            tell("$$"),
            flag.display()
        );
        let mut child = shell(&spawner, &script).await;
        child.events.params_name().await;
        a_request_is_refused(&mut child).await;
        std::fs::write(&flag, "").unwrap();
        let expected = ["closed: process exited with code 3"];
        assert_eq!(child.events.until_the_end().await, expected);
    });
}

#[test]
fn a_descendant_that_holds_the_pipe_does_not_hide_the_end() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let cases = [
            ("sleep 1000 &", true),
            (
                "sh -c \"trap '' TERM; while :; do sleep 1000; done\" &",
                true,
            ),
            ("sh -c 'while :; do echo; done' &", true),
            ("setsid sleep 1000 &", true),
            // Out of reach: at least it hides nothing.
            ("env -i setsid sleep 1000 &", false),
        ];
        for (descendant, is_found) in cases {
            let script = format!("{descendant} {}; exit 5", tell("$!"));
            let mut child = shell(&spawner, &script).await;
            let pid = child.events.params_name().await;
            let events = child.events.until_the_end().await;
            assert_eq!(
                events,
                ["closed: process exited with code 5"],
                "{descendant}"
            );
            if is_found {
                until(descendant, || !is_alive(&pid)).await;
            } else {
                let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
    });
}

#[test]
fn close_asks_first_and_then_leaves_nobody_alive() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let polite = format!("{}; cat; exit 0", tell("$$"));
        let needs_sigterm = format!("{}; exec sleep 1000", tell("$$"));
        let deaf = format!("trap '' TERM; {}; while :; do sleep 1000; done", tell("$$"));
        let descendant = format!("sleep 1000 & {}; cat", tell("$!"));
        let deaf_descendant = format!(
            "sh -c \"trap '' TERM; while :; do sleep 1000; done\" & {}; cat",
            tell("$!")
        );
        let orphan = format!("setsid sleep 1000 & {}; cat", tell("$!"));
        let deaf_orphan = format!("{DEAF_ORPHAN} & {}; cat", tell("$!"));
        for script in [
            polite,
            needs_sigterm,
            deaf,
            descendant,
            deaf_descendant,
            orphan,
            deaf_orphan,
        ] {
            let mut child = shell(&spawner, &script).await;
            let pid = child.events.params_name().await;
            assert!(is_alive(&pid), "{script}");
            child.link.close(Duration::from_millis(100)).await;
            assert!(!is_alive(&pid), "{script}");
            assert!(child.events.is_silent(), "{script}");
        }
    });
}

#[test]
fn a_process_that_left_its_group_ends_with_its_own_server_only() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        // Another gateway on this machine.
        let other = Spawner::start(instance()).unwrap();
        let script = format!("{DEAF_ORPHAN} & {}; cat", tell("$!"));
        let mut children = Vec::new();
        for spawner in [&spawner, &spawner, &other] {
            let mut child = shell(spawner, &script).await;
            let pid = child.events.params_name().await;
            children.push((child.link, pid));
        }
        let mut children = children.into_iter();
        let (closed, orphan) = children.next().unwrap();
        let kept = children.as_slice();
        closed.close(Duration::from_millis(100)).await;
        assert!(!is_alive(&orphan));
        assert!(kept.iter().all(|(_, orphan)| is_alive(orphan)));
        spawner.end_orphans(Duration::ZERO).await;
        // It starts once the processes of earlier gateways have ended.
        let later = shell(&spawner, "cat").await;
        assert!(kept.iter().all(|(_, orphan)| is_alive(orphan)));
        later.link.close(Duration::from_millis(100)).await;
        let orphans: Vec<String> = children.map(|(_, orphan)| orphan).collect();
        for orphan in orphans {
            until("it ends with its link", || !is_alive(&orphan)).await;
        }
    });
}

/// Servers that end while what they left is still becoming another program.
const FORKERS: usize = 32;

/// Opens children whose descendants go from session to session; all of them work in `folder`.
async fn forkers(spawner: &Spawner, folder: &Path) -> Vec<Child> {
    let hop = "setsid sh -c 'setsid sh -c \"setsid sleep 1000 &\" <&- >&- 2>&- &' <&- >&- 2>&- &";
    let mut settings = settings("sh", &["-c", hop]);
    settings.cwd = Some(folder.to_owned());
    join_all((0..FORKERS).map(|_| open(spawner, settings.clone()))).await
}

#[test]
fn servers_that_fork_and_exit_leave_no_process() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let children = forkers(&spawner, folder.path()).await;
        for mut child in children {
            child.events.until_the_end().await;
            child.link.close(GRACE).await;
        }
        until("nobody is left", || !is_anybody_in(folder.path())).await;
    });
}

#[test]
fn a_gateway_that_stops_looks_for_what_its_servers_left() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let _children = forkers(&spawner, folder.path()).await;
        spawner.stop().await;
        until("nobody is left", || !is_anybody_in(folder.path())).await;
    });
}

#[test]
fn close_lets_a_polite_child_finish_its_work() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings("sh", &["-c", "cat >received; sleep 0.2; echo done >done"]);
        settings.cwd = Some(folder.path().to_owned());
        let child = open(&spawner, settings).await;
        let frame = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        child
            .link
            .send(OutgoingFrame::new(None, Bytes::from(frame)))
            .unwrap();
        child.link.close(GRACE).await;
        let received = std::fs::read_to_string(folder.path().join("received")).unwrap();
        assert_eq!(received, format!("{frame}\n"));
        assert!(folder.path().join("done").exists());
    });
}

#[test]
fn close_lets_a_child_that_ignores_its_input_clean_up() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "trap 'echo done >done; exit 0' TERM; {}; while :; do sleep 1000; done",
            tell("$$")
        );
        let mut settings = settings("sh", &["-c", &script]);
        settings.cwd = Some(folder.path().to_owned());
        let mut child = open(&spawner, settings).await;
        child.events.params_name().await;
        child.link.close(Duration::from_millis(500)).await;
        assert!(folder.path().join("done").exists());
    });
}

#[test]
fn dropping_a_link_or_stopping_the_spawner_kills_the_group() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let script = format!("sleep 1000 & {}; {}; cat; wait", tell("$!"), tell("$$"));
        let mut dropped = shell(&spawner, &script).await;
        let mut stopped = shell(&spawner, &script).await;
        let mut pids = Vec::new();
        for child in [&mut dropped, &mut stopped] {
            for _ in 0..2 {
                pids.push(child.events.params_name().await);
            }
        }
        drop(dropped.link);
        until("dropped", || !is_alive(&pids[0]) && !is_alive(&pids[1])).await;
        assert!(is_alive(&pids[2]) && is_alive(&pids[3]));
        spawner.stop().await;
        assert!(!is_alive(&pids[2]) && !is_alive(&pids[3]));
        let events = stopped.events.until_the_end().await;
        assert_eq!(events, ["closed: process ended by signal 9"]);
    });
}

#[test]
fn children_do_not_end_with_the_thread_that_opened_them() {
    run(async {
        let spawner = Spawner::start(instance()).unwrap();
        let arbiter = actix_rt::Arbiter::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let of_arbiter = spawner.clone();
        arbiter.spawn_fn(move || {
            actix_rt::spawn(async move {
                let mut child = shell(&of_arbiter, &format!("{}; cat", tell("$$"))).await;
                let pid = child.events.params_name().await;
                let _ = sender.send(pid);
                std::future::pending::<()>().await;
                drop(child.link);
            });
        });
        let pid = receiver.await.unwrap();
        let mut other = shell(&spawner, "cat").await;
        arbiter.stop();
        arbiter.join().unwrap();
        // Its own link went with the arbiter, so it ends; the neighbour does not notice.
        until("its link is gone", || !is_alive(&pid)).await;
        let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
        other
            .link
            .send(OutgoingFrame::new(None, Bytes::from(ping)))
            .unwrap();
        assert_eq!(other.events.next().await, "request 2 ping");
    });
}

/// Set in the process that `a_killed_gateway_leaves_no_children` starts.
const OWNER: &str = "MCPVISOR_TEST_OWNER";

#[test]
fn a_killed_gateway_leaves_no_children() {
    if std::env::var_os(OWNER).is_some() {
        own_a_child_forever();
        return;
    }
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "transport::stdio_end::a_killed_gateway_leaves_no_children",
            "--nocapture",
        ])
        .env(OWNER, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stderr.take().unwrap()).lines();
    let mut pids = lines.filter_map(|line| line.unwrap().strip_prefix("pid ").map(str::to_owned));
    let pid = pids.next().unwrap();
    assert!(is_alive(&pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    actix_rt::System::new().block_on(until("the child ends", || !is_alive(&pid)));
}

fn own_a_child_forever() {
    actix_rt::System::new().block_on(async {
        let spawner = Spawner::start(instance()).unwrap();
        let mut child = shell(&spawner, &format!("{}; exec sleep 1000", tell("$$"))).await;
        eprintln!("pid {}", child.events.params_name().await);
        std::future::pending::<()>().await;
    });
}
