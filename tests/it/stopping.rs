//! How the gateway ends, and that nothing outlives it.

use rustix::process::Signal;
use serde_json::json;

use crate::support::{
    Client, Gateway, Http, HttpServer, INITIALIZE, Setup, alive, example, python, quick, request,
    soon, text_of, until,
};

#[tokio::test]
async fn sigterm_lets_a_running_call_finish() {
    let gateway_config = format!("{}{}", quick(), example("example"));
    let mut gateway = Gateway::start(&gateway_config).await;
    let client = Client::open(&gateway).await;
    // One is answered as JSON, one as a stream; both take longer than a second.
    let slow = json!({"name": "example__slow", "arguments": {"steps": 5, "delay_ms": 500}});
    let http = client.post(&request("silent", "tools/call", slow));
    let silent = tokio::spawn(http.header("Accept", "application/json").send());
    let (id, mut events) = client
        .start("example__slow", json!({"steps": 25, "delay_ms": 100}))
        .await;
    events.method("notifications/progress").await;
    let mut general = client.listen().await;
    gateway.signal(Signal::TERM);
    assert_eq!(general.message().await, None);
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(text_of(&answer["result"]), "done after 25 steps");
    let answer = soon("the silent call's answer", silent).await.unwrap();
    assert_eq!(
        text_of(&answer.json().await["result"]),
        "done after 5 steps"
    );
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
}

#[tokio::test]
async fn while_it_stops_new_requests_are_refused_readably() {
    let mut gateway = Gateway::start(&(quick() + &example("example"))).await;
    let client = Client::open(&gateway).await;
    let (_, mut events) = client
        .start("example__slow", json!({"steps": 20, "delay_ms": 100}))
        .await;
    events.method("notifications/progress").await;
    gateway.signal(Signal::TERM);
    let initialize = Http::post(gateway.address, INITIALIZE);
    let answer = until("a refusal", || async {
        let answer = initialize.clone().try_send().await?;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(
        answer.json().await["error"]["data"]["code"],
        "shutting_down"
    );
    assert!(events.rest().await.pop().unwrap()["result"].is_object());
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn calls_that_do_not_end_are_given_up_after_the_grace() {
    let config = format!(
        "[gateway]\nshutdown_grace = \"1s\"\n{}{}",
        quick(),
        python("py", "")
    );
    let mut gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let params = json!({"name": "py__hang", "arguments": {}});
    let call = client.post(&request(1, "tools/call", params));
    let call = tokio::spawn(call.try_send());
    until("the call under way", || async {
        let server = gateway.server("py").await;
        (server["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
    soon("the end of the call", call).await.unwrap();
}

#[tokio::test]
async fn stopping_takes_grandchildren_and_tells_http_servers() {
    let server = HttpServer::start(Default::default()).await;
    let config = format!("{}{}{}", quick(), python("py", ""), server.config("http"));
    let mut gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let grandchild = client.call("py__spawn", json!({})).await;
    let grandchild: i32 = text_of(&grandchild).parse().unwrap();
    assert!(alive(grandchild));
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
    assert!(!alive(grandchild));
    assert_eq!(server.behaviour().deleted, 1);
}

#[tokio::test]
async fn a_killed_gateway_leaves_no_child() {
    let own = "sharing = \"session\"\n";
    let config = format!("{}{own}{}", example("example"), python("py", ""));
    let mut gateway = Gateway::sandboxed(&config).await;
    let client = Client::that_can(&gateway, json!({"elicitation": {}})).await;
    client.call("example__echo", json!({"message": "m"})).await;
    assert_eq!(gateway.server_pids("example").len(), 2);
    gateway.signal(Signal::KILL);
    gateway.ended().await;
    gateway.nothing_left().await;
    // The directory can be used again at once, whatever was left in it.
    assert!(gateway.data_dir().join("run.json").exists());
    let mut again = gateway
        .setup
        .command(&["serve"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("another gateway", || async {
        let run = std::fs::read(gateway.data_dir().join("run.json")).ok()?;
        let run: serde_json::Value = serde_json::from_slice(&run).ok()?;
        (run["pid"] == again.id()).then_some(())
    })
    .await;
    again.kill().unwrap();
    again.wait().unwrap();
}

/// A server that, each time it starts, leaves a process in a session of its own which heeds no
/// end of its input and no SIGTERM; its id is appended to a file.
fn with_an_orphan(setup: &Setup) -> String {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/server.py");
    let orphan = "import os, signal, sys, time\nif os.fork(): sys.exit()\nos.setsid()\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        open(\"strays\", \"a\").write(f\"{os.getpid()}\\n\")\nwhile True: time.sleep(60)\n";
    std::fs::write(setup.path("stray.py"), orphan).unwrap();
    let start = format!("python3 stray.py; exec python3 {server}");
    format!(
        "{}[servers.py]\nera = \"legacy\"\nsharing = \"shared\"\ncommand = \"sh\"\nargs = [\"-c\", \"{start}\"]\n\
         env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"py\" }}\n",
        quick()
    )
}

/// The process that the server's start of this number leaves behind, once it is there.
async fn orphan(setup: &Setup, start: usize) -> i32 {
    until("a process that left its server", || async {
        let orphans = std::fs::read_to_string(setup.path("strays")).ok()?;
        let (complete, _) = orphans.rsplit_once('\n')?;
        complete.lines().nth(start)?.parse().ok()
    })
    .await
}

#[tokio::test]
async fn processes_of_a_killed_gateway_are_gone_after_the_next_start() {
    let setup = Setup::new("");
    std::fs::write(setup.path("config.toml"), with_an_orphan(&setup)).unwrap();
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    let left = orphan(&gateway.setup, 0).await;
    let server = gateway.server_pids("py");
    gateway.kill();
    until("the end of the server", || async {
        let others = server.iter().filter(|pid| **pid != left);
        others.copied().all(|pid| !alive(pid)).then_some(())
    })
    .await;
    assert!(alive(left), "nobody is there who could have ended it");
    gateway.start_again().await;
    // Servers start when it is gone.
    gateway.all_up().await;
    assert!(!alive(left));
    let log = gateway.log();
    let received = |how| format!("process left behind by an earlier gateway was {how}");
    assert!(log.contains(&received("asked to end")) && log.contains(&received("killed")));
    assert!(log.contains(&format!("\"pid\":{left},")), "{log}");
    // Processes of this one are untouched until it stops.
    let of_this = orphan(&gateway.setup, 1).await;
    assert!(alive(of_this));
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
}

#[tokio::test]
async fn a_gateway_that_was_started_by_what_one_left_does_not_end_itself() {
    let mut gateway = Gateway::start(&(quick() + &example("example"))).await;
    gateway.kill();
    let instance = std::fs::read_to_string(gateway.data_dir().join("instance")).unwrap();
    let owner = instance.split(' ').next().unwrap().replace('-', "");
    let mark = format!("{owner}.{}.1", "0".repeat(32));
    let mut marked = gateway.setup.command_of("sleep", &["1000"]);
    let mut marked = marked.env("MCPVISOR_INSTANCE", &mark).spawn().unwrap();
    let mut again = gateway.setup.command(&["serve"]);
    let again = again.env("MCPVISOR_INSTANCE", &mark);
    let mut again = again.stderr(std::process::Stdio::null()).spawn().unwrap();
    until("a gateway that serves", || async {
        let status = mcpvisor::admin::ask_status(&gateway.data_dir())
            .await
            .ok()?;
        (status.pid == again.id() && status.servers[0].state == "up").then_some(())
    })
    .await;
    assert!(!marked.wait().unwrap().success(), "only this one was left");
    let pid = i32::try_from(again.id()).unwrap();
    crate::support::signal(pid, Signal::TERM);
    assert!(again.wait().unwrap().success());
}

#[tokio::test]
async fn a_crash_of_a_server_takes_what_left_its_group() {
    let setup = Setup::new("");
    std::fs::write(setup.path("config.toml"), with_an_orphan(&setup)).unwrap();
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    let left = orphan(&gateway.setup, 0).await;
    for pid in gateway.server_pids("py") {
        if pid != left {
            crate::support::signal(pid, Signal::KILL);
        }
    }
    let next = orphan(&gateway.setup, 1).await;
    until("the end of what the first one left", || async {
        (!alive(left)).then_some(())
    })
    .await;
    assert!(alive(next));
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
}

#[tokio::test]
async fn a_server_that_ignores_its_end_is_killed() {
    let script = "import signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)\n";
    let setup = Setup::new("").sandboxed();
    std::fs::write(setup.path("stubborn.py"), script).unwrap();
    let config = format!(
        "{}[servers.stubborn]\ncommand = \"python3\"\nargs = [\"{}\"]\nenv = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"stubborn\" }}\n",
        quick().replace("\"2s\"", "\"500ms\""),
        setup.path("stubborn.py").display()
    );
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let mut gateway = setup.serve().await;
    until("its process", || async {
        (gateway.server_pids("stubborn").len() == 1).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.nothing_left().await;
}

#[tokio::test]
async fn a_question_can_be_answered_while_it_stops() {
    let mut gateway = Gateway::start(&(quick() + &example("example"))).await;
    let client = Client::that_can(&gateway, json!({"elicitation": {}})).await;
    let (id, mut events) = client.start("example__ask", json!({})).await;
    let question = events.method("elicitation/create").await;
    gateway.signal(Signal::TERM);
    until("the beginning of the stop", || async {
        let answer = gateway.get("/mcp").try_send().await?;
        (answer.status == 503).then_some(())
    })
    .await;
    let content = json!({"answer": "in time"});
    client
        .answer(&question, json!({"action": "accept", "content": content}))
        .await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(answer["id"], id);
    assert_eq!(text_of(&answer["result"]), "the user answered: in time");
    assert!(gateway.ended().await.success());
}
