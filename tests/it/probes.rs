//! Probes and planned restarts, with real processes.

use rustix::process::Signal;
use serde_json::json;

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, example, quick, signal, text_of, until};

#[tokio::test]
async fn a_server_that_fails_its_probe_is_replaced() {
    let config = quick()
        + &example("tool")
        + "probe = { tool = \"echo\", arguments = { message = \"m\" }, every = \"1s\", \
           timeout = \"200ms\", failures = 1 }\n"
        + &example("resource")
        + "probe = { resource = \"example://about\" }\n"
        + &example("missing")
        + "probe = { tool = \"nothing\" }\n";
    let gateway = Gateway::start(&config).await;
    for name in ["tool", "resource"] {
        gateway.wait_state(name, "up").await;
    }
    let missing = gateway.wait_state("missing", "stopped").await;
    let why = missing["connection"]["shared"]["last_exit"].to_string();
    assert!(why.contains("lists no such tool"), "{why}");
    // It hangs long before it would be pinged.
    signal(gateway.server_pid("tool"), Signal::STOP);
    let server = gateway.wait_renewed("tool", 1).await;
    let why = server["connection"]["shared"]["last_exit"].to_string();
    assert!(why.contains("its probe, a call of `echo`, failed"), "{why}");
    assert_eq!(gateway.generation("resource").await, 1);
}

#[tokio::test]
async fn a_server_is_recycled_when_its_memory_or_descriptors_are_over_the_limit() {
    let script = "import os, sys; [os.set_inheritable(os.open('/dev/null', 0), True) for _ in \
                  range(50)]; os.execv(sys.argv[1], sys.argv[1:])";
    let leaks = format!(
        "[servers.leaks]\ncommand = \"python3\"\nargs = [\"-c\", \"{script}\", \
         \"${{MCPVISOR_EXE}}\", \"example-server\"]\nrecycle = {{ descriptors = 50 }}\n"
    );
    let config = quick() + &example("a") + "recycle = { memory = \"1MiB\" }\n";
    let unaffected = "recycle = { descriptors = 50 }\n";
    let config = config + &leaks + &example("b") + unaffected;
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    until("the planned restart", || async {
        let generations = (
            gateway.generation("a").await,
            gateway.generation("leaks").await,
        );
        (generations.0 > 1 && generations.1 > 1).then_some(())
    })
    .await;
    let result = client.call("a__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&result), "m");
    let logs = run(&gateway, &["servers", "logs", "a"]).await.unwrap();
    assert!(logs.contains("recycled: its process uses"), "{logs}");
    let logs = run(&gateway, &["servers", "logs", "leaks"]).await.unwrap();
    assert!(logs.contains("recycled: its process has"), "{logs}");
    assert_eq!(gateway.generation("b").await, 1);
}

#[test]
fn a_probe_is_one_kind_of_request() {
    let table = [
        (
            "tool = \"t\", resource = \"file:///a\"",
            "cannot be combined",
        ),
        ("arguments = { a = 1 }", "`servers.a.probe.arguments` needs"),
        ("every = \"0s\"", "must be a duration from"),
    ];
    for (probe, message) in table {
        let config = example("a") + &format!("probe = {{ {probe} }}\n");
        let (is_good, output) = Setup::new(&config).run(&["check"]);
        assert!(!is_good && output.contains(message), "{output}");
    }
}
