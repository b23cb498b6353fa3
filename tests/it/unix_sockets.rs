//! A gateway at a Unix socket, and a server behind one.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Client, Gateway, Setup, example, python, quick, signal, text_of, until};

/// Only users at a Unix socket may use tools.
const FAR: &str = r#"
[gateway]
listen = "unix:${IT_MARK}/far.sock"
[policies.local-only]
when = 'principal.issuer != "unix"'
"#;

/// A process that does not outlive a test that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[tokio::test]
async fn a_gateway_at_a_unix_socket_serves_another_gateway() {
    let setup = Setup::new(&format!("{FAR}{}{}", quick(), example("one")));
    let socket = setup.path("far.sock");
    // A process that was killed left its socket.
    drop(UnixListener::bind(&socket).unwrap());
    let mut far = setup.command(&["serve"]);
    far.env_remove("MCPVISOR_LISTEN").stderr(Stdio::null());
    let mut far = Ended(far.spawn().unwrap());
    let mode = || {
        socket
            .symlink_metadata()
            .ok()
            .map(|it| it.permissions().mode() & 0o777)
    };
    until("the socket", || async {
        (mode() == Some(0o600)).then_some(())
    })
    .await;
    let url = format!("[servers.far]\nurl = \"unix:{}\"\n", socket.display());
    let near = Gateway::start(&format!("{}{url}{}", quick(), python("own", ""))).await;
    let client = Client::open(&near).await;
    let called = client.call("far__one__add", json!({"a": 1, "b": 2})).await;
    assert_eq!(text_of(&called), "{\"sum\":3}");
    let (_, printed) = setup.run(&["status"]);
    assert!(
        printed.contains(&format!("unix:{}", socket.display())),
        "{printed}"
    );
    signal(far.0.id().cast_signed(), Signal::TERM);
    assert!(far.0.wait().unwrap().success());
    assert!(!socket.exists());
}
