//! Tests the harness: the stub answers correctly, and wrong answers are detected.

use std::process::{Command, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Fallible;
use crate::chart::Chart;
use crate::client::{BenchClient, Era, Ids, Place, Work, result};
use crate::http::Answer;
use crate::instructions::{Counts, Reference, too_high};
use crate::measure::Figure;
use crate::options::{self, Wanted};
use crate::process::cpu_us;
use crate::scan;
use crate::targets::{self, PROGRAM, Target};

/// Runs every kind of work against the stub and through the pass-through.
pub(crate) async fn run() -> Fallible<bool> {
    refuses_what_it_does_not_know()?;
    draws_what_was_measured()?;
    notices_more_instructions()?;
    let stub = targets::stub(9).await?;
    let pass = targets::passthrough(stub.place.port).await?;
    let sessionless = targets::stub_of(Era::Sessionless, 9).await?;
    for target in [&stub, &pass, &sessionless] {
        works(target)
            .await
            .map_err(|error| format!("{}: {error}", target.name))?;
    }
    notices_what_is_wrong(&stub).await?;
    eras_differ(&stub, &sessionless).await?;
    stdio().await?;
    println!("bench: the stub, the pass-through and the checks work");
    Ok(true)
}

async fn works(target: &Target) -> Fallible<()> {
    let ids = Ids::default();
    let mut client = BenchClient::open(&target.place, &ids).await?;
    let work = [
        Work::Echo,
        Work::Echo,
        Work::Big(0),
        Work::Big(3_000_000),
        Work::Progress(10),
        Work::Progress(100),
        Work::Sleep(1),
        Work::List(9),
        Work::List(9),
        Work::Session(9),
    ];
    let sessions = target.place.era == Era::Handshake;
    let possible = |work: &Work| sessions || !matches!(work, Work::Session(_));
    for work in work.into_iter().filter(possible) {
        client
            .run(work)
            .await
            .map_err(|error| format!("{work:?}: {error}"))?;
    }
    if cpu_us(target.pid()) > 60_000_000 {
        return Err("more processor time than this test can have taken".into());
    }
    Ok(())
}

/// The longest bar fills the chart, and scenarios that are not shown leave no trace.
fn draws_what_was_measured() -> Fallible<()> {
    let figure = |target, per_second| Figure {
        target,
        per_second,
        p50_us: 1.0,
        ..Figure::default()
    };
    let figures = [figure("gateway", 45_678.0), figure("nginx", 91_356.0)];
    let mut chart = Chart::default();
    chart.add("big", &figures);
    chart.add("calls-64", &figures);
    let svg = chart.svg("a <machine>");
    let expected = [
        "Calls, 64 connections",
        ">mcpvisor<",
        ">45,678/s<",
        r#"width="240.0""#,
        r#"width="480.0""#,
        "a &lt;machine>",
    ];
    if let Some(missing) = expected.iter().find(|text| !svg.contains(**text)) {
        return Err(format!("the chart lacks {missing}: {svg}").into());
    }
    match svg.matches("class=\"title\"").count() {
        1 => Ok(()),
        count => Err(format!("the chart shows {count} scenarios").into()),
    }
}

fn notices_more_instructions() -> Fallible<()> {
    let counts = |call, list: Option<u64>| {
        let list = list.map(|list| ("list".to_owned(), list));
        [("call".to_owned(), call)]
            .into_iter()
            .chain(list)
            .collect()
    };
    let before: Counts = counts(100_000, None);
    let cases: [(Counts, &[&str]); 4] = [
        (counts(50_000, None), &[]),
        (counts(103_000, None), &[]),
        (counts(103_001, None), &["call"]),
        // The baseline has no count for this scenario.
        (counts(100_000, Some(1)), &["list"]),
    ];
    for (now, expected) in cases {
        let found = too_high(&before, &now);
        if found != expected {
            return Err(format!("{now:?}: {found:?} are too high, not {expected:?}").into());
        }
    }
    Ok(())
}

/// A misspelled word would otherwise measure everything, or nothing.
fn refuses_what_it_does_not_know() -> Fallible<()> {
    let known = ["calls-1", "calls-64", "fleet"];
    let measures = |smoke, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Some(Wanted::Measures {
            smoke,
            before: None,
            names,
        })
    };
    let compared = Wanted::Measures {
        smoke: false,
        before: Some("old/mcpvisor".into()),
        names: Vec::new(),
    };
    let instructions = |reference| {
        let program = PROGRAM.into();
        Some(Wanted::Instructions { reference, program })
    };
    let cases: [(&[&str], Option<Wanted>); 15] = [
        (&["--before=old/mcpvisor", "--bench"], Some(compared)),
        (
            &["--instructions", "--bench"],
            instructions(Reference::Baseline),
        ),
        (
            &["--instructions", "--before=old", "--bench"],
            instructions(Reference::Build("old".into())),
        ),
        (
            &["--instructions=write", "--bench"],
            instructions(Reference::Replace),
        ),
        (&["--bench"], measures(false, &[])),
        (&["--smoke", "--bench"], measures(true, &[])),
        (
            &["calls", "fleet", "--bench"],
            measures(false, &["calls", "fleet"]),
        ),
        (&["--list", "--bench"], Some(Wanted::List)),
        (&["--help", "--bench"], Some(Wanted::Usage)),
        (&["--smok", "--bench"], None),
        (&["-v", "--bench"], None),
        (&["call5", "--bench"], None),
        (&["calls", "call5", "--bench"], None),
        (&[], Some(Wanted::Check)),
        // Words that `cargo test --all-targets -- WORDS` passes to every target.
        (&["--nocapture", "call5"], Some(Wanted::Check)),
    ];
    for (words, wanted) in cases {
        let parsed = options::parse(words, &known).ok();
        if parsed != wanted {
            return Err(format!("{words:?} was read as {parsed:?}").into());
        }
    }
    Ok(())
}

/// Each stub refuses clients of the other era, so an answer across eras was bridged.
async fn eras_differ(stub: &Target, sessionless: &Target) -> Fallible<()> {
    for (target, era) in [(stub, Era::Sessionless), (sessionless, Era::Handshake)] {
        let place = Place {
            era,
            ..target.place.clone()
        };
        let ids = Ids::default();
        let spoken = match BenchClient::open(&place, &ids).await {
            Ok(mut client) => client.run(Work::Echo).await,
            Err(error) => Err(error),
        };
        if spoken.is_ok() {
            return Err(format!("a stub of the other era answered {era:?}").into());
        }
    }
    Ok(())
}

/// A benchmark that accepts any answer would measure nothing.
async fn notices_what_is_wrong(stub: &Target) -> Fallible<()> {
    let answers: [(u16, &[u8], bool); 6] = [
        (200, br#"{"jsonrpc":"2.0","id":100,"result":{}}"#, true),
        (200, br#"{"result":{},"id":100,"jsonrpc":"2.0"}"#, true),
        (200, br#"{"jsonrpc":"2.0","id":101,"result":{}}"#, false),
        (
            200,
            br#"{"jsonrpc":"2.0","id":100,"error":{"code":1,"message":"no"}}"#,
            false,
        ),
        (
            200,
            br#"{"jsonrpc":"2.0","id":100,"result":{"content":[],"isError":true}}"#,
            false,
        ),
        (404, br#"{"jsonrpc":"2.0","id":100,"result":{}}"#, false),
    ];
    for (status, body, right) in answers {
        for (sse, body) in [
            (false, body.to_vec()),
            (true, [b"data: ", body, b"\n\n"].concat()),
        ] {
            let answer = Answer {
                status,
                session: None,
                sse,
                body: &body,
            };
            if result(&answer, 100).is_ok() != right {
                return Err(format!("judged wrong: {}", String::from_utf8_lossy(&body)).into());
            }
        }
    }
    let ids = Ids::default();
    let mut client = BenchClient::open(&stub.place, &ids).await?;
    if client.run(Work::List(8)).await.is_ok() {
        return Err("a list of another length was taken for a right one".into());
    }
    let nowhere = Place {
        prefix: "nowhere__",
        ..stub.place.clone()
    };
    let mut client = BenchClient::open(&nowhere, &ids).await?;
    if client.run(Work::Echo).await.is_ok() {
        return Err("an error was taken for a right answer".into());
    }
    Ok(())
}

/// The stdio stub answers out of order, and each request exactly once.
async fn stdio() -> Fallible<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["stub-stdio", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()?;
    let (Some(mut input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("no pipes".into());
    };
    let call = |id: u32, name: &str, arguments: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":\
            {{\"name\":\"{name}\",\"arguments\":{arguments},\"_meta\":{{\"progressToken\":7}}}}}}\n"
        )
    };
    let sleep = call(1, "sleep", r#"{"ms":100}"#);
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
    let progress = call(2, "progress", r#"{"steps":3}"#);
    let echo = call(3, "echo", r#"{"message":"a \"quoted\" word"}"#);
    input
        .write_all(format!("{sleep}{note}{progress}{echo}").as_bytes())
        .await?;
    let mut seen = Vec::new();
    while scan::count(&seen, b"\n") < 6 {
        if output.read_buf(&mut seen).await? == 0 {
            return Err("the stub ended".into());
        }
    }
    let ids: Vec<_> = seen
        .split(|byte| *byte == b'\n')
        .filter_map(|l| scan::value(l, "id"))
        .collect();
    if ids != [b"2", b"3", b"1"] || !scan::contains(&seen, br#""a \"quoted\" word""#) {
        return Err(format!("stdio: {}", String::from_utf8_lossy(&seen)).into());
    }
    drop(input);
    child.wait().await?;
    Ok(())
}
