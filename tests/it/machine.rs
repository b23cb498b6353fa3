//! A machine that fails in single ways: a file system that hangs, a directory that is emptied, few
//! descriptors, a clock that jumps. `tests/peers/chaos` has all of them under load.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::operating::run;
use crate::support::{
    BrokenMachine, Client, Gateway, Http, Setup, example, python, quick, signal, text_of, until,
};

async fn echoes(client: &Client, server: &str) {
    let result = client
        .call(&format!("{server}__echo"), json!({"message": "m"}))
        .await;
    assert_eq!(text_of(&result), "m");
}

/// Makes a pipe in the place of a file. Who opens it to read waits for what is written to it.
fn make_pipe(setup: &Setup, name: &str) -> fs::File {
    let path = setup.path(name);
    let _ = fs::remove_file(&path);
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    // A writer that writes nothing.
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_to_its_end_delays_nothing_else() {
    let more = "include = [\"more.json\"]\n";
    let setup = Setup::new(&format!("{more}{}{}", quick(), example("one")));
    fs::write(setup.path("more.json"), r#"{"mcpServers": {}}"#).unwrap();
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let silent = make_pipe(&gateway.setup, "more.json");
    for _ in 0..3 {
        gateway.signal(Signal::HUP);
    }
    // A server that dies meanwhile comes back, and calls are answered.
    let lost = gateway.generation("one").await;
    signal(gateway.server_pid("one"), Signal::KILL);
    gateway.wait_renewed("one", lost).await;
    echoes(&client, "one").await;
    let refused = until("a report", || async {
        let status = gateway.status().await;
        status["config"]["refused"].as_str().map(str::to_owned)
    })
    .await;
    assert!(refused.contains("were not read within 5s"), "{refused}");
    assert!(gateway.log().contains("were not read within 5s"));
    // When the file system answers, the file is read again without being asked for.
    fs::remove_file(gateway.setup.path("more.json")).unwrap();
    fs::write(gateway.setup.path("more.json"), r#"{"mcpServers": {}}"#).unwrap();
    drop(silent);
    until("the end of the report", || async {
        gateway.status().await["config"]["refused"]
            .is_null()
            .then_some(())
    })
    .await;
    // One that hangs while the gateway is to stop.
    let _silent = make_pipe(&gateway.setup, "more.json");
    gateway.signal(Signal::HUP);
    until("the reading", || async {
        (gateway.log().matches("SIGHUP").count() >= 2).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn files_that_are_removed_from_the_data_directory_are_written_again() {
    let gateway = Gateway::start(&example("one")).await;
    let data_dir = gateway.data_dir();
    let files = ["api-token", "instance", "run.json"];
    let contents = || files.map(|name| fs::read_to_string(data_dir.join(name)).unwrap_or_default());
    let [token, instance, run_file] = contents();
    let remove_one = |name: &str| fs::remove_file(data_dir.join(name)).unwrap();
    let is_served = || async {
        let socket = data_dir.join("control.sock").metadata().ok()?;
        let asked = mcpvisor::admin::ask_status(&data_dir).await.is_ok();
        (asked && socket.file_type().is_socket()).then_some(())
    };
    for name in files.into_iter().chain(["control.sock", "all of it"]) {
        match name {
            "all of it" => fs::remove_dir_all(&data_dir).unwrap(),
            name => remove_one(name),
        }
        until(name, || async {
            let [same_token, same_instance, same_run] = contents();
            let is_same = same_token == token && same_run == run_file;
            // The directory is part of its name.
            let owner = |text: &str| text.split(' ').next().map(str::to_owned);
            (is_same && owner(&same_instance) == owner(&instance)).then_some(())
        })
        .await;
        until(name, is_served).await;
    }
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains("one"), "{tree}");
    let asked = gateway
        .get("/api/servers")
        .header("X-Session-Token", token.trim());
    assert_eq!(asked.send().await.status, 200);
}

#[tokio::test]
async fn no_default_is_warned_of_and_the_number_of_clients_is_shown() {
    let start = async |config: &str| {
        let setup = Setup::new(config).open_files(1024, 1024);
        setup.serve().await
    };
    let is_warned = |gateway: &Gateway| gateway.log().contains("gateway.connections_max");
    for (config, shown) in [
        ("", "up to 720 client connections"),
        (
            "[gateway]\nworkers = 2\nconnections_max = 100\n",
            "up to 200 client connections",
        ),
    ] {
        let gateway = start(config).await;
        let tree = run(&gateway, &["status"]).await.unwrap();
        assert!(tree.contains(shown), "{tree}");
        assert!(!is_warned(&gateway));
    }
    let gateway = start("[gateway]\nworkers = 2\nconnections_max = 1000\n").await;
    // The log is written in the background.
    until("the warning", || async {
        is_warned(&gateway).then_some(())
    })
    .await;
}

/// The soft limit of open files of a process.
fn soft_limit(pid: i32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    line.unwrap().split_whitespace().nth(3).unwrap().to_owned()
}

/// A connection whose request is never whole.
async fn half_a_request(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    // The write fails if the gateway refused the connection already.
    let _ = stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
        .await;
    stream
}

#[tokio::test]
async fn clients_that_hold_their_share_of_descriptors_stop_nothing() {
    let config = format!(
        "[gateway]\nhead_timeout = \"10m\"\n{}{}",
        quick(),
        python("py", "")
    );
    // 207 seats, and 48 connections beyond.
    let gateway = Setup::new(&config).open_files(256, 340).serve().await;
    gateway.all_up().await;
    assert_eq!(soft_limit(gateway.pid()), "340");
    assert_eq!(soft_limit(gateway.server_pid("py")), "256");
    let client = Client::open(&gateway).await;
    // Connections that wait for a request make room for new ones.
    let mut idle = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        idle.push(stream);
    }
    assert_eq!(text_of(&client.call("py__echo", json!({})).await), "py {}");
    drop(idle);
    // Connections in the middle of a request do not: the gateway refuses new ones with a reason.
    let busy = RefCell::new(Vec::new());
    for _ in 0..220 {
        let half = half_a_request(&gateway).await;
        busy.borrow_mut().push(half);
    }
    let refused = until("a refusal", || async {
        // A connection whose first bytes were not read yet has made room like one without a request.
        let half = half_a_request(&gateway).await;
        busy.borrow_mut().push(half);
        let ping = Http::post(gateway.address, "{}").try_send().await?;
        (ping.status == 503).then_some(ping)
    })
    .await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let health = gateway.get("/health").send().await;
    assert_eq!(health.status, 200);
    // Operators are served, and servers come back.
    let lost = gateway.generation("py").await;
    signal(gateway.server_pid("py"), Signal::KILL);
    gateway.wait_renewed("py", lost).await;
    assert_eq!(soft_limit(gateway.server_pid("py")), "256");
    drop(busy);
    until("a call", || async {
        let params = json!({"name": "py__echo", "arguments": {}});
        let call = crate::support::request(client.id(), "tools/call", params);
        let answer = client.post(&call).try_send().await?;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_program_that_hangs_while_it_is_executed_delays_its_server_only() {
    let Some(machine) = BrokenMachine::new() else {
        return;
    };
    machine.begin("exec-hangs", "on-a-hung-disk");
    let hung = "[servers.hung]\ncommand = \"/on-a-hung-disk/server\"\n";
    let config = format!("{}{hung}{}{}", quick(), example("one"), python("py", ""));
    let setup = machine.run(Setup::new(&config));
    let mut gateway = setup.serve().await;
    for server in ["one", "py"] {
        gateway.wait_state(server, "up").await;
        let lost = gateway.generation(server).await;
        signal(gateway.server_pid(server), Signal::KILL);
        gateway.wait_renewed(server, lost).await;
    }
    let client = Client::open(&gateway).await;
    echoes(&client, "one").await;
    assert_ne!(gateway.server("hung").await["state"], "up");
    // It is started by a reload as well, beside a server that is added.
    gateway.write_config(&format!("{config}{}", example("added")));
    gateway.wait_state("added", "up").await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().await.success());
    machine.end("exec-hangs");
}

#[tokio::test]
async fn a_wall_clock_that_jumps_ends_no_session() {
    let Some(machine) = BrokenMachine::new() else {
        return;
    };
    let config = format!("[sessions]\nidle_timeout = \"1h\"\n{}", example("one"));
    let mut gateway = machine.run(Setup::new(&config)).serve().await;
    gateway.all_up().await;
    let mut client = Client::open(&gateway).await;
    let hour = 3600;
    for offset in [24 * hour, -hour, 0, 400 * 24 * hour] {
        let noticed = || gateway.log().matches("the wall clock was set").count();
        let before = noticed();
        machine.begin("clock", &offset.to_string());
        until("the jump", || async { (noticed() > before).then_some(()) }).await;
        echoes(&client, "one").await;
        // The stored session survives as well.
        gateway.kill();
        gateway.start_again().await;
        client.follow(&gateway);
        gateway.all_up().await;
        echoes(&client, "one").await;
        let status: Value = gateway.status().await;
        assert_eq!(status["counters"]["sessions_expired"], 0, "{offset}");
    }
}
