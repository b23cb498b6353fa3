//! `mcpvisor tools`: the tools of a gateway from the terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::auth::KEYS;
use crate::operating::run;
use crate::support::{Client, Gateway, example, names, python, quick, signal, soon, until};

/// Runs a command on a terminal of its own, and types a text there. Returns what is to be seen.
async fn on_terminal(gateway: &Gateway, arguments: &[&str], typed: &'static str) -> (bool, String) {
    let script = "import os, pty, sys\n\
                  sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let program = env!("CARGO_BIN_EXE_mcpvisor");
    let python = [&["-c", script, program][..], arguments].concat();
    let mut command: Command = gateway.setup.command_of("python3", &python);
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(typed.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    });
    let output = soon("the command's end", ran).await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[tokio::test]
async fn tools_are_listed_and_shown() {
    let views = "[views.work]\nservers = [\"two\"]\n";
    let gateway = Gateway::start(&(example("one") + &example("two") + views)).await;
    let table = run(&gateway, &["tools", "ls"]).await.unwrap();
    assert!(table.starts_with("NAME "), "{table}");
    assert!(table.contains("\n22 tools, about "), "{table}");
    let line = table.lines().find(|line| line.starts_with("one__add "));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!((words[1], words[3]), ("one", "Adds"));
    let tokens: u64 = words[2].parse().unwrap();
    assert!(tokens > 20, "{table}");
    for arguments in [
        &["tools", "ls", "--server", "two"][..],
        &["tools", "ls", "--view", "work"],
    ] {
        let table = run(&gateway, arguments).await.unwrap();
        assert!(
            table.contains("two__add ") && !table.contains("one__"),
            "{table}"
        );
    }
    let list = run(&gateway, &["tools", "ls", "--view", "server/two", "--json"]).await;
    let list: Vec<Value> = serde_json::from_str(&list.unwrap()).unwrap();
    let add = list.iter().find(|tool| tool["name"] == "add").unwrap();
    assert_eq!(add["server"], "two");
    assert_eq!(add["tool"]["inputSchema"]["required"], json!(["a", "b"]));
    let shown = run(&gateway, &["tools", "show", "one__add"]).await.unwrap();
    for part in [
        "one__add  Add\nserver one · about ",
        "the server says: changes nothing, destroys nothing",
        "\nAdds two numbers; ",
        "\nArguments\n  a*  number\n  b*  number\n",
        "\nResult\n  sum*  number\n",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let table = [
        (
            &["tools", "show", "one__ad"][..],
            "did you mean `one__add`?",
        ),
        (&["tools", "show", "x"], "`mcpvisor tools ls`"),
        (
            &["tools", "ls", "--server", "x"],
            "no tools of a server `x`",
        ),
        (&["tools", "ls", "--view", "x"], "there is no view `x`"),
    ];
    for (arguments, part) in table {
        let error = run(&gateway, arguments).await.unwrap_err();
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn a_tool_is_called_with_arguments_of_its_types() {
    // Keys are for clients: the socket is the user's own.
    let gateway = Gateway::start(&(example("one") + KEYS)).await;
    let called = |arguments: &'static [&'static str]| {
        let arguments = [&["tools", "call"], arguments].concat();
        let mut command = gateway.setup.command(&arguments);
        async move {
            let output = tokio::task::spawn_blocking(move || command.output().unwrap());
            let output = soon("the command's end", output).await.unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (
                output.status.code().unwrap(),
                text(output.stdout),
                text(output.stderr),
            )
        }
    };
    let done = |text: &str| (0, text.to_owned(), String::new());
    let table = [
        (&["one__echo", "message=5"][..], "5\n"),
        (&["one__add", "a=40", "b=2.5"], "{\"sum\":42.5}\n"),
        (
            &["one__add", "--args", "{\"a\": 1, \"b\": 2}"],
            "{\"sum\":3}\n",
        ),
        (&["echo", "message=a=b", "--view", "server/one"], "a=b\n"),
    ];
    for (arguments, expected) in table {
        assert_eq!(called(arguments).await, done(expected), "{arguments:?}");
    }
    let (code, out, _) = called(&["one__add", "a=1", "b=2", "--json"]).await;
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &result["structuredContent"]["sum"]), (0, &json!(3)));
    let table = [
        (&["one__add", "a=x", "b=2"][..], "`a`: must be a number"),
        (&["one__add", "a=1", "a=2"], "`a` is given twice"),
        (
            &["one__add", "--args", "[1]"],
            "--args: must be a JSON object",
        ),
        (&["one__ad", "a=1"], "did you mean `one__add`?"),
        (&["none__ad", "--args", "{}"], "none__ad"),
    ];
    for (arguments, part) in table {
        let (code, out, error) = called(arguments).await;
        assert_eq!((code, out.as_str()), (1, ""), "{error}");
        assert!(error.contains(part), "{part} in {error}");
    }
    // What the tool itself refuses is its result.
    let (code, out, error) = called(&["one__add", "a=1"]).await;
    assert_eq!((code, out.as_str()), (1, "argument `b` is missing\n"));
    assert_eq!(error, "tool \"one__add\" failed\n");
    // Without a terminal nobody can be asked, and the server reads why.
    let (code, out, _) = called(&["one__ask"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("did not declare"), "{out}");
    let sessions = until("the end of the sessions", || async {
        let status = gateway.status().await;
        (status["sessions"] == 0).then_some(())
    });
    sessions.await;
}

#[tokio::test]
async fn on_a_terminal_progress_and_questions_are_shown() {
    let gateway = Gateway::start(&example("one")).await;
    let slow = ["tools", "call", "one__slow", "steps=4", "delay_ms=1"];
    let (succeeded, text) = on_terminal(&gateway, &slow, "").await;
    assert!(succeeded, "{text}");
    assert!(
        text.contains("[############------------]  50 %  step 2 of 4"),
        "{text}"
    );
    assert!(text.trim_end().ends_with("done after 4 steps"), "{text}");
    let ask = ["tools", "call", "one__ask", "question=which?"];
    let (succeeded, text) = on_terminal(&gateway, &ask, "blue\n").await;
    assert!(succeeded, "{text}");
    for part in ["The server asks: which?", "the user answered: blue"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Ctrl-D.
    let (_, text) = on_terminal(&gateway, &ask, "\u{4}").await;
    assert!(text.contains("declined"), "{text}");
    assert!(!text.contains("the user answered"), "{text}");
}

#[tokio::test]
async fn a_call_is_cancelled_with_the_command() {
    let gateway = Gateway::start(&(quick() + &python("one", ""))).await;
    gateway.wait_state("one", "up").await;
    let mut command = gateway.setup.command(&["tools", "call", "one__hang"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let in_flight = |count: u64| {
        let gateway = &gateway;
        until("the calls in flight", move || async move {
            let one = gateway.server("one").await;
            (one["connection"]["in_flight"] == count).then_some(())
        })
    };
    in_flight(1).await;
    signal(i32::try_from(child.id()).unwrap(), Signal::INT);
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let output = soon("its end", ended).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "cancelled; the tool may have run\n");
    in_flight(0).await;
    let status = gateway.status().await;
    assert_eq!(status["counters"]["calls_cancelled"], 1, "{status}");
}

#[tokio::test]
async fn commands_end_with_the_gateway() {
    let mut gateway = Gateway::start(&(quick() + &python("one", ""))).await;
    gateway.wait_state("one", "up").await;
    let mut command = gateway.setup.command(&["tools", "call", "one__hang"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    until("the call", || async {
        let one = gateway.server("one").await;
        (one["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let output = soon("its end", ended).await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn a_tool_is_disabled_and_enabled_at_once() {
    let gateway = Gateway::start(&(quick() + &example("my_one"))).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let said = run(&gateway, &["tools", "disable", "my_one", "add"])
        .await
        .unwrap();
    assert_eq!(said, "disabled add of my_one\n");
    let is_listed = async |wanted: bool| {
        until("the new list", || async {
            let list = client.get("tools/list", json!({})).await;
            (names(&list["tools"]).contains(&"my_one__add") == wanted).then_some(())
        })
        .await;
    };
    is_listed(false).await;
    let config = std::fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert!(config.contains("deny = [\"add\"]"), "{config}");
    let error = run(&gateway, &["tools", "disable", "my_one", "ad"])
        .await
        .unwrap_err();
    assert!(error.contains("lists no tool"), "{error}");
    run(&gateway, &["tools", "enable", "my_one", "my_one__add"])
        .await
        .unwrap();
    is_listed(true).await;
    let config = std::fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert!(!config.contains("deny"), "{config}");
}
