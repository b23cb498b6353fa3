//! Sessions and lists after the gateway was killed with SIGKILL and started again.

use std::fs;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::operating::run;
use crate::support::{
    Answer, Client, Gateway, Http, INITIALIZE, Setup, example, failure_of, names, python, quick,
    request, soon, text_of, until,
};

/// The status of a ping in a session.
async fn ping(client: &Client) -> u16 {
    let ping = request(client.id(), "ping", json!({}));
    client.post(&ping).send().await.status
}

async fn killed_and_started_again(gateway: &mut Gateway, client: &mut Client) {
    gateway.kill();
    gateway.start_again().await;
    client.follow(gateway);
}

#[tokio::test]
async fn a_session_goes_on() {
    let mut gateway = Gateway::start(&example("example")).await;
    let mut client = Client::open(&gateway).await;
    client.call("example__echo", json!({"message": "a"})).await;
    for restarts in 1..=2 {
        killed_and_started_again(&mut gateway, &mut client).await;
        gateway.all_up().await;
        assert_eq!(gateway.status().await["sessions"], 1);
        let result = client.call("example__echo", json!({"message": "b"})).await;
        assert!(text_of(&result).contains('b'), "{restarts}: {result}");
        let status = gateway.status().await;
        assert_eq!(status["counters"]["sessions_rebuilt"], 1);
        assert_eq!(status["sessions"], 1);
    }
    client.session = "00000000-0000-4000-8000-000000000000".to_owned();
    assert_eq!(ping(&client).await, 404);
}

#[tokio::test]
async fn an_orderly_stop_keeps_sessions_too() {
    let mut gateway = Gateway::start(&example("example")).await;
    let mut client = Client::open(&gateway).await;
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.ended().await.success());
    gateway.start_again().await;
    client.follow(&gateway);
    assert_eq!(ping(&client).await, 200);
}

#[tokio::test]
async fn a_session_that_cannot_be_written_is_served() {
    let mut gateway = Gateway::start("").await;
    gateway.kill();
    let state = rusqlite::Connection::open(gateway.data_dir().join("state.db")).unwrap();
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON entry WHEN NEW.key LIKE 'session/%'
        BEGIN SELECT RAISE(FAIL, 'no space'); END";
    state.execute_batch(fails).unwrap();
    drop(state);
    gateway.start_again().await;
    let opened = Http::post(gateway.address, INITIALIZE).send().await;
    assert_eq!(opened.status, 200);
    let health = gateway.get("/health").send().await.json().await;
    assert_eq!(health["status"], "degraded");
    let reason = "state is kept in memory only: store is unavailable: no space";
    assert_eq!(health["reason"], reason);
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains("kept in memory only"), "{tree}");
    let ready = gateway.get("/readyz").send().await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json().await["status"], "degraded");
    let status = gateway.status().await;
    assert_eq!(status["counters"]["sessions_unsaved"], 0);
    assert_eq!(status["sessions"], 1);
    assert_eq!(
        gateway
            .log()
            .matches("keeping state in memory only")
            .count(),
        1
    );
}

#[tokio::test]
async fn many_requests_at_once_rebuild_a_session_once() {
    let mut gateway = Gateway::start("").await;
    let mut client = Client::open(&gateway).await;
    killed_and_started_again(&mut gateway, &mut client).await;
    let pings = futures_util::future::join_all((0..20).map(|_| ping(&client))).await;
    assert_eq!(pings, [200; 20]);
    let counters = &gateway.status().await["counters"];
    assert_eq!(counters["sessions_rebuilt"], 1);
}

#[tokio::test]
async fn a_deleted_session_does_not_come_back() {
    let mut gateway = Gateway::start("").await;
    for rebuilt in [false, true] {
        let mut client = Client::open(&gateway).await;
        // Something that is written just before the end.
        client
            .get("logging/setLevel", json!({"level": "debug"}))
            .await;
        if rebuilt {
            killed_and_started_again(&mut gateway, &mut client).await;
        }
        assert_eq!(client.delete().await.status, 200);
        killed_and_started_again(&mut gateway, &mut client).await;
        assert_eq!(ping(&client).await, 404);
        assert_eq!(gateway.status().await["sessions"], 0);
    }
}

#[tokio::test]
async fn an_expired_session_does_not_come_back() {
    let mut gateway = Gateway::start("[sessions]\nidle_timeout = \"1s\"\n").await;
    let mut client = Client::open(&gateway).await;
    killed_and_started_again(&mut gateway, &mut client).await;
    until("the session's end", || async {
        (gateway.status().await["sessions"] == 0).then_some(())
    })
    .await;
    assert_eq!(gateway.status().await["counters"]["sessions_expired"], 1);
    for _ in 0..2 {
        assert_eq!(ping(&client).await, 404);
        killed_and_started_again(&mut gateway, &mut client).await;
    }
}

/// Handshakes at the same time, and how many are answered when the gateway is killed.
const HANDSHAKES: usize = 24;
const ANSWERED: usize = 20;

/// Answers that were at most [`FRESH`] old when the gateway was killed.
const FRESH_ANSWERS: usize = 1000;
const FRESH: Duration = Duration::from_millis(5);

/// Kills the gateway as soon as enough of many handshakes are answered. Returns the sessions of
/// all answers, also of those that were read after the kill, and how many of them were fresh.
async fn killed_between_answers(gateway: &mut Gateway) -> (Vec<String>, usize) {
    let request = Http::post(gateway.address, INITIALIZE.to_owned()).bytes();
    let connections = (0..HANDSHAKES).map(|_| TcpStream::connect(gateway.address));
    let connections = join_all(connections).await;
    let mut answers: FuturesUnordered<_> = connections
        .into_iter()
        .map(async |connection| {
            let mut connection = connection.unwrap();
            connection.write_all(&request).await.ok()?;
            let answer = Answer::read(connection).await?;
            Some((answer, Instant::now()))
        })
        .collect();
    let (mut sessions, mut times, mut fresh) = (Vec::new(), Vec::new(), 0);
    while let Some(answer) = soon("an answer or an end", answers.next()).await {
        let Some((answer, time)) = answer else {
            assert!(sessions.len() >= ANSWERED, "no answer before the kill");
            continue;
        };
        assert_eq!(answer.status, 200, "{answer:?}");
        sessions.push(answer.header("mcp-session-id").unwrap().to_owned());
        times.push(time);
        if sessions.len() == ANSWERED {
            let killed = Instant::now();
            gateway.kill();
            times.retain(|time| killed - *time < FRESH);
            fresh = times.len();
        }
    }
    (sessions, fresh)
}

/// Until 1,000 answers to `initialize` were less than 5 ms old when their gateway was killed.
/// One kill meets many of them: handshakes run at the same time, and some are still under way.
#[tokio::test]
async fn no_session_is_lost_right_after_its_first_answer() {
    let mut gateway = Setup::new("").serve().await;
    let (mut sessions, mut fresh) = (Vec::new(), 0);
    while fresh < FRESH_ANSWERS {
        let (answered, of_those_fresh) = killed_between_answers(&mut gateway).await;
        sessions.extend(answered);
        fresh += of_those_fresh;
        gateway.start_again().await;
        // One that was not answered may be there or not.
        let kept = gateway.status().await["sessions"].as_u64().unwrap();
        assert!(
            kept >= sessions.len() as u64,
            "{kept} of {}",
            sessions.len()
        );
        assert!(sessions.len() < 20 * FRESH_ANSWERS, "{fresh} fresh answers");
    }
    for session in sessions {
        let ping = request(1, "ping", json!({})).to_string();
        let http = Http::post(gateway.address, ping).header("Mcp-Session-Id", &session);
        assert_eq!(http.send().await.status, 200);
    }
}

#[tokio::test]
async fn a_stream_from_before_ends_with_an_error_for_its_request() {
    let mut gateway = Gateway::start(&example("example")).await;
    let mut client = Client::open(&gateway).await;
    let (id, mut events) = client
        .start("example__slow", json!({"steps": 1000, "delay_ms": 100}))
        .await;
    let last = events.next().await.unwrap().id.unwrap();
    killed_and_started_again(&mut gateway, &mut client).await;
    let messages = client.resume(&last).await.rest().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["id"], id);
    assert_eq!(messages[0]["error"]["data"]["code"], "server_lost");
}

#[tokio::test]
async fn the_level_and_subscriptions_are_back_at_the_server() {
    let mut gateway = Gateway::start(&example("example")).await;
    let mut client = Client::open(&gateway).await;
    let uri = "example://counter";
    client.get("resources/subscribe", json!({"uri": uri})).await;
    client
        .get("logging/setLevel", json!({"level": "debug"}))
        .await;
    killed_and_started_again(&mut gateway, &mut client).await;
    gateway.all_up().await;
    // Its client only listens: nothing else brings the subscription back.
    let mut stream = client.listen().await;
    let other = Client::open(&gateway).await;
    other.call("example__touch", json!({})).await;
    let updated = stream.method("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], uri);
    let debug = json!({"message": "quiet", "level": "debug"});
    other.call("example__log", debug).await;
    let said = stream.method("notifications/message").await;
    assert_eq!(said["params"]["data"], "quiet");
    // It is the session's again, not only the server's.
    client
        .get("resources/unsubscribe", json!({"uri": uri}))
        .await;
    other.call("example__touch", json!({})).await;
    other
        .call("example__log", json!({"message": "last", "level": "error"}))
        .await;
    assert_eq!(stream.message().await.unwrap()["params"]["data"], "last");
}

#[tokio::test]
async fn a_connection_of_its_own_is_back_with_its_subscriptions() {
    let config = python("py", "") + "sharing = \"session\"\n";
    let mut gateway = Gateway::start(&config).await;
    let mut client = Client::that_can(&gateway, json!({"sampling": {}})).await;
    client
        .get("resources/subscribe", json!({"uri": "it://shared"}))
        .await;
    killed_and_started_again(&mut gateway, &mut client).await;
    gateway.all_up().await;
    assert_eq!(gateway.server_pids("py").len(), 1);
    // The server says that the resource was updated when it is subscribed to.
    let mut stream = client.listen().await;
    stream.method("notifications/resources/updated").await;
    assert_eq!(gateway.server_pids("py").len(), 2);
}

#[tokio::test]
async fn lists_are_answered_before_any_server_is_up() {
    let setup = Setup::new("");
    let needed = setup.path("needed");
    fs::write(&needed, "").unwrap();
    let needs = format!("IT_NEEDS = \"{}\"", needed.display());
    let config = quick() + "[gateway]\nfirst_list_wait = \"10m\"\n" + &python("py", &needs);
    fs::write(setup.path("config.toml"), config).unwrap();
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    let mut client = Client::open(&gateway).await;
    let before = client.get("tools/list", json!({})).await;
    assert!(names(&before["tools"]).contains(&"py__echo"), "{before}");
    fs::remove_file(&needed).unwrap();
    killed_and_started_again(&mut gateway, &mut client).await;
    let mut after = client.get("tools/list", json!({})).await;
    // It says that it comes from the process before.
    let meta = after.as_object_mut().unwrap().remove("_meta").unwrap();
    let part = &meta["io.mcpvisor/freshness"]["py"];
    assert_eq!(part["state"], "stored");
    assert!(part["listedAt"].is_string(), "{meta}");
    assert_eq!(after, before);
    let answer = Http::post(gateway.address, INITIALIZE.to_owned())
        .send()
        .await;
    let instructions = answer.json().await["result"]["instructions"].clone();
    assert!(instructions.as_str().unwrap().contains("This is py."));
    // It is not up, and nobody is told otherwise.
    let failed = client.call("py__echo", json!({})).await;
    assert_eq!(failure_of(&failed)["code"], "server_unavailable");
    let mut stream = client.listen().await;
    fs::write(&needed, "").unwrap();
    gateway.wait_state("py", "up").await;
    let result = client.call("py__echo", json!({})).await;
    assert!(text_of(&result).starts_with("py "), "{result}");
    // Listed again, nothing was different.
    client.delete().await;
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn a_difference_from_the_stored_lists_is_announced_once() {
    let mut gateway = Gateway::start(&example("example")).await;
    let mut client = Client::open(&gateway).await;
    client
        .call("example__add_tool", json!({"name": "new"}))
        .await;
    until("the new tool", || async {
        let list = client.get("tools/list", json!({})).await;
        names(&list["tools"])
            .contains(&"example__new")
            .then_some(())
    })
    .await;
    killed_and_started_again(&mut gateway, &mut client).await;
    // The new process of the server does not have the tool.
    until("the tool's end", || async {
        let list = client.get("tools/list", json!({})).await;
        (!names(&list["tools"]).contains(&"example__new")).then_some(())
    })
    .await;
    let mut stream = client.listen().await;
    stream.method("notifications/tools/list_changed").await;
    client.delete().await;
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn lists_of_another_server_of_the_same_name_are_not_shown() {
    let patient = "[gateway]\nfirst_list_wait = \"30s\"\n";
    let mut gateway = Gateway::start(&example("same")).await;
    let mut client = Client::open(&gateway).await;
    gateway.write_config(&format!("{patient}{}", python("same", "")));
    killed_and_started_again(&mut gateway, &mut client).await;
    let list = client.get("tools/list", json!({})).await;
    assert!(names(&list["tools"]).contains(&"same__pid"), "{list}");
    gateway.write_config("");
    killed_and_started_again(&mut gateway, &mut client).await;
    assert_eq!(
        client.get("tools/list", json!({})).await["tools"],
        json!([])
    );
}

#[tokio::test]
async fn a_damaged_state_is_moved_aside() {
    let setup = Setup::new(&example("one"));
    fs::create_dir(setup.path(".mcpvisor")).unwrap();
    fs::write(setup.path(".mcpvisor/state.db"), "x".repeat(10_000)).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let files = fs::read_dir(gateway.data_dir()).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let aside = names.find(|name| name.starts_with("state.db.damaged-"));
    let aside = aside.unwrap();
    let health: Value = gateway.get("/health").send().await.json().await;
    assert!(
        health["reason"].as_str().unwrap().contains(&aside),
        "{health}"
    );
    assert_eq!(health["status"], "ok");
    let tree = run(&gateway, &["status"]).await.unwrap();
    assert!(tree.contains(&aside), "{tree}");
    assert_eq!(gateway.log().matches(&aside).count(), 1);
}

#[tokio::test]
async fn a_directory_that_is_removed_is_made_again_with_what_it_held() {
    let mut gateway = Gateway::start(&example("one")).await;
    gateway.all_up().await;
    let mut client = Client::open(&gateway).await;
    fs::remove_dir_all(gateway.data_dir()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !gateway
        .log()
        .contains("disk available again; writing state to disk")
    {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The control socket returns after the state.
    until("an answer to status", || async {
        run(&gateway, &["status"]).await.ok()
    })
    .await;
    killed_and_started_again(&mut gateway, &mut client).await;
    let list = client.get("tools/list", json!({})).await;
    assert!(names(&list["tools"]).contains(&"one__echo"), "{list}");
}
