//! `mcpvisor servers` and `status --watch`: operators act on a gateway that runs.

use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Client, Gateway, HttpServer, Setup, alive, example, failure_of, names, python, quick, signal,
    soon, text_of, until,
};

/// Runs a command beside the gateway: what it printed, or the error that it ended with.
pub(crate) async fn run(gateway: &Gateway, arguments: &[&str]) -> Result<String, String> {
    let mut command = gateway.setup.command(arguments);
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output {
        status,
        stdout,
        stderr,
    } = soon("the command's end", ran).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if status.success() {
        assert_eq!(text(stderr), "");
        return Ok(text(stdout));
    }
    assert_eq!((status.code(), text(stdout).as_str()), (Some(1), ""));
    Err(text(stderr))
}

async fn echo(client: &Client, server: &str) -> Value {
    let arguments = json!({"message": "m"});
    client.call(&format!("{server}__echo"), arguments).await
}

#[tokio::test]
async fn a_stopped_server_has_no_process_until_it_is_started() {
    let base = format!("{}{}{}", quick(), example("one"), example("two"));
    let gateway = Gateway::start(&base).await;
    let client = Client::open(&gateway).await;
    let (one, two) = (gateway.server_pid("one"), gateway.server_pid("two"));
    let said = run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    assert!(said.contains("`one` is stopped"), "{said}");
    assert!(!alive(one));
    let server = gateway.server("one").await;
    assert_eq!(server["state"], "stopped");
    assert_eq!(server["items"]["tools"], 11);
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains("one · stopped"), "{tree}");
    // Calls fail at once, with what to do; lists are whole; others run on.
    let result = echo(&client, "one").await;
    let failure = failure_of(&result);
    assert_eq!(failure["server"], "one");
    let text = text_of(&result);
    for word in ["stopped by an operator", "mcpvisor servers start one"] {
        assert!(text.contains(word), "{text}");
    }
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 22);
    assert_eq!(text_of(&echo(&client, "two").await), "m");
    let health = gateway.get("/health").send().await.json().await;
    assert_eq!(health["status"], "ok");
    // Neither a restart nor a change elsewhere brings it back.
    let refused = run(&gateway, &["servers", "restart", "one"]).await;
    assert!(refused.unwrap_err().contains("servers start one"));
    let again = run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    assert!(again.contains("already"), "{again}");
    gateway.write_config(&(base + "ping_every = \"20s\"\n" + &python("new", "")));
    gateway.wait_state("new", "up").await;
    assert_eq!(gateway.server("one").await["state"], "stopped");
    assert_eq!(gateway.server_pids("one"), [0; 0]);
    let said = run(&gateway, &["servers", "start", "one"]).await.unwrap();
    assert_eq!(said, "server `one` is up\n");
    assert_eq!(text_of(&echo(&client, "one").await), "m");
    assert_ne!(gateway.server_pid("one"), one);
    assert_eq!(gateway.server_pid("two"), two);
    let said = run(&gateway, &["servers", "start", "one"]).await.unwrap();
    assert!(said.contains("up already"), "{said}");
}

#[tokio::test]
async fn a_stop_ends_calls_and_connections_of_single_clients() {
    let config = quick() + &python("one", "") + "sharing = \"session\"\n";
    let gateway = Gateway::start(&config).await;
    let asked = Client::that_can(&gateway, json!({"sampling": {}})).await;
    let silent = Client::open(&gateway).await;
    assert_eq!(text_of(&asked.call("one__echo", json!({})).await), "one {}");
    assert_eq!(gateway.server_pids("one").len(), 2);
    let hangs = [&asked, &silent].map(|client| client.call("one__hang", json!({})));
    let [first, second] = hangs;
    let stop = async {
        until("the calls under way", || async {
            let one = gateway.server("one").await;
            (one["connection"]["in_flight"] == 2).then_some(())
        })
        .await;
        run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    };
    let (first, second, ()) = soon("the end of the calls", async {
        tokio::join!(first, second, stop)
    })
    .await;
    for result in [first, second] {
        assert_eq!(failure_of(&result)["code"], "server_lost");
    }
    assert_eq!(gateway.server_pids("one"), [0; 0]);
    failure_of(&asked.call("one__echo", json!({})).await);
    assert_eq!(gateway.server_pids("one"), [0; 0]);
    run(&gateway, &["servers", "start", "one"]).await.unwrap();
    assert_eq!(text_of(&asked.call("one__echo", json!({})).await), "one {}");
    assert_eq!(gateway.server_pids("one").len(), 2);
}

#[tokio::test]
async fn a_stopped_server_is_stopped_with_the_gateway() {
    let mut gateway = Gateway::start(&(quick() + &example("one"))).await;
    run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn a_restart_renews_a_healthy_server() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let pid = gateway.server_pid("one");
    let said = run(&gateway, &["servers", "restart", "one"]).await.unwrap();
    assert_eq!(said, "server `one` is up\n");
    assert_ne!(gateway.server_pid("one"), pid);
    assert!(!alive(pid));
    assert_eq!(text_of(&echo(&client, "one").await), "m");
    let server = gateway.server("one").await;
    assert_eq!(server["connection"]["shared"]["generation"], 2);
}

#[tokio::test]
async fn a_restart_skips_the_wait_of_a_server_that_failed() {
    let setup = Setup::new("");
    let needed = setup.path("needed");
    let needs = format!("IT_NEEDS = \"{}\"", needed.display());
    // By itself it would be tried again in an hour.
    let waits = "[supervision]\nbackoff_initial = \"1h\"\nbackoff_max = \"1h\"\njitter = 0.0\n";
    std::fs::write(
        setup.path("config.toml"),
        format!("{waits}{}", python("ill", &needs)),
    )
    .unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("ill", "backoff").await;
    let error = run(&gateway, &["servers", "restart", "ill"]).await;
    let error = error.unwrap_err();
    assert!(error.contains("`ill`") && error.contains('3'), "{error}");
    std::fs::write(&needed, "").unwrap();
    let said = run(&gateway, &["servers", "restart", "ill"]).await.unwrap();
    assert_eq!(said, "server `ill` is up\n");
    // The same with `start`.
    std::fs::remove_file(&needed).unwrap();
    signal(gateway.server_pid("ill"), Signal::KILL);
    gateway.wait_state("ill", "backoff").await;
    std::fs::write(&needed, "").unwrap();
    let said = run(&gateway, &["servers", "start", "ill"]).await.unwrap();
    assert_eq!(said, "server `ill` is up\n");
}

#[tokio::test]
async fn a_server_over_http_is_stopped_and_started_too() {
    let peer = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&(quick() + &peer.config("web"))).await;
    let client = Client::open(&gateway).await;
    assert_eq!(
        text_of(&client.call("web__echo", json!({})).await),
        "http {}"
    );
    run(&gateway, &["servers", "stop", "web"]).await.unwrap();
    // The client has one of its own.
    until("the end of both sessions", || async {
        (peer.behaviour().deleted == 2).then_some(())
    })
    .await;
    failure_of(&client.call("web__echo", json!({})).await);
    run(&gateway, &["servers", "start", "web"]).await.unwrap();
    assert_eq!(
        text_of(&client.call("web__echo", json!({})).await),
        "http {}"
    );
    assert_eq!(peer.behaviour().handshakes, 4);
}

#[tokio::test]
async fn an_operation_that_is_not_possible_says_why() {
    let config = format!(
        "{}{}enabled = false\n[servers.bad]\ncommand = \"x\"\nenv = {{ T = \"${{NO_SUCH}}\" }}\n",
        example("one"),
        example("off"),
    );
    let gateway = Setup::new(&config).serve().await;
    for verb in ["restart", "stop", "start", "logs"] {
        for (name, words) in [
            ("none", ["\"none\" is not configured", "one, off, bad"]),
            ("off", ["\"off\" is disabled", "enabled = false"]),
            ("bad", ["\"bad\" is misconfigured", "NO_SUCH"]),
            ("../x\n", ["is not configured", "one, off, bad"]),
        ] {
            let error = run(&gateway, &["servers", verb, name]).await.unwrap_err();
            for word in words {
                assert!(error.contains(word), "{verb} {name}: {error}");
            }
        }
    }
    gateway.wait_state("one", "up").await;
    let setup = Setup::new("");
    for verb in ["restart", "stop", "start", "logs"] {
        let output = setup.command(&["servers", verb, "one"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("no gateway runs"), "{error}");
    }
}

#[tokio::test]
async fn logs_show_what_a_server_wrote() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let flood = json!({"lines": 3, "kind": "both"});
    client.call("one__flood", flood).await;
    run(&gateway, &["servers", "restart", "one"]).await.unwrap();
    let text = until("the lines", || async {
        let text = run(&gateway, &["servers", "logs", "one"]).await.unwrap();
        (text.matches("noise 3 of 3").count() == 2).then_some(text)
    })
    .await;
    let text = without_times(&text);
    for start in ["stderr  ", "stray   ", "gateway restarted by an operator"] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{text}");
    }
    let lines = run(&gateway, &["servers", "logs", "one", "--json"]).await;
    let lines: Vec<Value> = serde_json::from_str(&lines.unwrap()).unwrap();
    assert_eq!(lines.len(), text.lines().count());
    let restarted = lines.iter().find(|line| line["source"] == "gateway");
    assert_eq!(restarted.unwrap()["text"], "restarted by an operator");
    let two = run(&gateway, &["servers", "logs", "one", "-n", "2"]).await;
    let all: Vec<&str> = text.lines().collect();
    let two = without_times(&two.unwrap());
    assert_eq!(two.lines().collect::<Vec<_>>(), all[all.len() - 2..]);
}

/// The lines of a log without their times, which must be there.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let (time, rest) = line.split_at("2026-11-20 20:03:12 ".len());
        let form = time.replace(|letter: char| letter.is_ascii_digit(), "0");
        assert_eq!(form, "0000-00-00 00:00:00 ", "{line}");
        let (zone, rest) = rest.split_once(' ').unwrap();
        assert!(zone.len() >= 2, "{line}");
        format!("{rest}\n")
    };
    text.lines().map(line).collect()
}

#[tokio::test]
async fn new_lines_of_a_log_are_followed() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let shown = gateway.setup.path("shown");
    let mut follow = gateway.setup.command(&["servers", "logs", "one", "-f"]);
    follow.stdout(std::fs::File::create(&shown).unwrap());
    let mut follow = follow.stderr(Stdio::null()).spawn().unwrap();
    for lines in [2, 5] {
        let flood = json!({"lines": lines, "kind": "stderr"});
        client.call("one__flood", flood).await;
        let last = format!("noise {lines} of {lines}");
        until("the new lines", || async {
            let text = std::fs::read_to_string(&shown).unwrap();
            (text.matches(&last).count() == 1).then_some(())
        })
        .await;
    }
    // Each of them once.
    let text = std::fs::read_to_string(&shown).unwrap();
    assert_eq!(text.matches("noise ").count(), 7, "{text}");
    signal(i32::try_from(follow.id()).unwrap(), Signal::INT);
    let status = until("its end", || {
        let status = follow.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back() {
    let peer = HttpServer::start(Default::default()).await;
    let config = quick() + &example("one") + &example("two") + &peer.config("web");
    let gateway = Gateway::start(&config).await;
    let (killed, other) = (gateway.server_pid("one"), gateway.server_pid("two"));
    let generation = gateway.generation("one").await;
    let said = run(&gateway, &["servers", "kill", "one"]).await.unwrap();
    assert!(said.starts_with("server `one` was killed"), "{said}");
    // The answer waits for the change, so the next status cannot show the old process as up.
    let now = gateway.server("one").await;
    assert!(
        now["state"] != "up" || gateway.generation("one").await > generation,
        "{now}"
    );
    let server = gateway.wait_renewed("one", generation).await;
    let exit = &server["connection"]["shared"]["last_exit"];
    assert_eq!(exit, "failed: process ended by signal 9");
    assert!(!alive(killed));
    assert_eq!(gateway.server_pid("two"), other);
    run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    for (name, part) in [("web", "by its URL"), ("one", "nothing to kill")] {
        let error = run(&gateway, &["servers", "kill", name]).await.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_watched_status_gives_the_terminal_back() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let shown = gateway.setup.path("shown");
    // A terminal of its own; what is written to the script is typed there.
    let script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let arguments = ["-c", script, Setup::BINARY, "status", "--watch"];
    let mut watch = gateway.setup.command_of("python3", &arguments);
    watch.env("TERM", "xterm").stdin(Stdio::piped());
    watch.stdout(std::fs::File::create(&shown).unwrap());
    let mut watch = watch.spawn().unwrap();
    let text = || std::fs::read_to_string(&shown).unwrap();
    until("a picture", || async {
        text().contains("one · ").then_some(())
    })
    .await;
    assert!(text().starts_with("\u{1b}[?1049h"), "{:?}", text());
    assert!(text().contains("\u{1b}[32mup for"), "{:?}", text());
    let mut typed = watch.stdin.take().unwrap();
    std::io::Write::write_all(&mut typed, b"\x03").unwrap();
    let status = until("its end", || {
        let status = watch.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
    assert!(text().ends_with("\u{1b}[?1049l"), "{:?}", text());
}

#[tokio::test]
async fn a_watched_status_is_scrolled_with_keys() {
    let gateway = Gateway::start(&(quick() + &example("one") + &example("two"))).await;
    let shown = gateway.setup.path("shown");
    let script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let small = "stty rows 5 cols 30; \"$0\" status --watch && stty -a";
    let arguments = ["-c", script, "sh", "-c", small, Setup::BINARY];
    let mut watch = gateway.setup.command_of("python3", &arguments);
    watch.env("TERM", "xterm").stdin(Stdio::piped());
    watch.stdout(std::fs::File::create(&shown).unwrap());
    let mut watch = watch.spawn().unwrap();
    let mut typed = watch.stdin.take().unwrap();
    let text = || std::fs::read_to_string(&shown).unwrap();
    for (key, expected) in [
        ("", "lines 1 to 3 of "),
        ("j", "lines 2 to 4 of "),
        ("\u{1b}[6~", "lines 5 to 7 of "),
        ("g\u{1b}[B", "lines 2 to 4 of "),
    ] {
        let before = text().len();
        std::io::Write::write_all(&mut typed, key.as_bytes()).unwrap();
        until(expected, || async {
            text()
                .get(before..)
                .unwrap()
                .contains(expected)
                .then_some(())
        })
        .await;
    }
    std::io::Write::write_all(&mut typed, b"q").unwrap();
    let status = until("its end", || {
        let status = watch.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
    // The terminal echoes and reads lines again.
    let after = text().split("\u{1b}[?1049l").last().unwrap().to_owned();
    for flag in [" icanon", " echo "] {
        assert!(after.contains(flag), "{after}");
    }
}

#[tokio::test]
async fn servers_in_trouble_come_first_with_their_reason() {
    let config = format!(
        "{}{}[servers.gone]\ncommand = \"python3\"\nargs = [\"-c\", \"import nosuchmodule\"]\nera = \"legacy\"\n",
        quick(),
        example("one")
    );
    let gateway = Setup::new(&config).serve().await;
    gateway.wait_state("one", "up").await;
    let reason = "process exited with code 1: ModuleNotFoundError: No module named 'nosuchmodule'";
    until("the reason", || async {
        let table = run(&gateway, &["servers"]).await.unwrap();
        let lines: Vec<&str> = table.lines().collect();
        (lines[1].starts_with("gone") && lines[1].ends_with(reason)).then_some(())
    })
    .await;
    let tree = run(&gateway, &["status"]).await.unwrap();
    let place = |word: &str| tree.find(word).unwrap();
    assert!(place("├─ gone") < place("└─ one"), "{tree}");
    // The log says the same, and no line of it is without a name.
    let line = gateway.log();
    let line = line
        .lines()
        .find(|line| line.contains("nosuchmodule"))
        .unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["data"]["child"], &line["data"]["why"]),
        (&json!("server/gone"), &json!(reason))
    );
}

#[tokio::test]
async fn servers_are_listed() {
    let config = format!("{}{}enabled = false\n", example("one"), example("off"));
    let gateway = Gateway::start(&config).await;
    let table = run(&gateway, &["servers"]).await.unwrap();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[1], ["one", "up", "stdio", "11", "0"]);
    assert_eq!(lines[2], ["off", "disabled", "-", "0", "0"]);
    let list = run(&gateway, &["servers", "--json"]).await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(names(&list), ["one", "off"]);
}

#[tokio::test]
async fn a_watched_status_follows_the_gateway() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let shown = gateway.setup.path("shown");
    let mut watch = gateway.setup.command(&["status", "--watch"]);
    watch.stdout(std::fs::File::create(&shown).unwrap());
    let mut watch = watch.stderr(Stdio::null()).spawn().unwrap();
    let text = || std::fs::read_to_string(&shown).unwrap();
    until("the first picture", || async {
        text().contains("one · up").then_some(())
    })
    .await;
    run(&gateway, &["servers", "stop", "one"]).await.unwrap();
    until("the next picture", || async {
        text().contains("one · stopped").then_some(())
    })
    .await;
    // No terminal: nothing is erased.
    assert!(!text().contains('\u{1b}'));
    let pid = i32::try_from(watch.id()).unwrap();
    signal(pid, Signal::INT);
    let status = until("its end", || {
        let status = watch.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_tripped_tool_is_refused_until_it_is_reset() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let said = run(&gateway, &["servers", "trip", "one", "echo"]).await;
    assert!(said.unwrap().contains("until a reset"));
    let result = echo(&client, "one").await;
    let failure = failure_of(&result);
    assert_eq!(
        (&failure["code"], &failure["server"]),
        (&json!("breaker_open"), &json!("one"))
    );
    assert!(text_of(&result).contains("mcpvisor servers reset one echo"));
    let server = gateway.server("one").await;
    assert_eq!(server["state"], "up");
    let breakers = &server["connection"]["tool_breakers"];
    assert_eq!(
        breakers,
        &json!([{"tool": "echo", "state": "tripped", "failures": 0}])
    );
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains("breaker of \"echo\" · tripped"), "{tree}");
    let unknown = run(&gateway, &["servers", "trip", "one", "nothing"]).await;
    assert!(unknown.unwrap_err().contains("has no tool"));
    run(&gateway, &["servers", "reset", "one"]).await.unwrap();
    assert_eq!(text_of(&echo(&client, "one").await), "m");
}
