//! Reports of connections that end as they should not.

use std::rc::Rc;

use mcpvisor::downstream::CrashReport;
use serde_json::{Value, json};

use crate::sim::world::{Plan, World, millis, pass, run, seconds};

fn taken(world: &World) -> Vec<CrashReport> {
    std::mem::take(&mut *world.crashes.lock().unwrap())
}

#[test]
fn a_crash_is_reported_with_its_calls_and_last_messages() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        client.call("a__echo").await.result();
        let waiting = client.call("a__hold").await;
        pass(seconds(3)).await;
        server.crash("process exited with code 1: boom");
        pass(millis(1)).await;
        assert_eq!(waiting.failure()["code"], "server_lost");
        let reports = taken(&world);
        assert_eq!(reports.len(), 1);
        let report = serde_json::to_value(&reports[0]).unwrap();
        assert_eq!(report["server"], "a");
        assert_eq!(report["connection"], "shared");
        assert_eq!(report["was_up"], true);
        assert!(report["lived_ms"].as_u64() >= Some(3050));
        assert_eq!(report["reason"], "process exited with code 1: boom");
        let pending = json!([{
            "call": waiting.number, "method": "tools/call", "name": "hold", "for_ms": 3001,
        }]);
        assert_eq!(report["pending"], pending);
        let methods: Vec<&Value> = report["messages"].as_array().unwrap().iter().collect();
        let methods: Vec<&str> = methods
            .iter()
            .map(|message| message["method"].as_str().unwrap_or("-"))
            .collect();
        let expected = [
            "initialize",
            "-",
            "notifications/initialized",
            "tools/list",
            "-",
            "tools/call",
            "-",
            "tools/call",
            "-",
        ];
        assert_eq!(methods, expected);
        assert_eq!(report["messages"][8]["kind"], "closed");
        assert!(!report.to_string().contains("hi"), "{report}");
    });
}

#[test]
fn every_way_of_ending_badly_is_reported_and_no_other() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| plan.settings.limits.ping_every = seconds(10);
        let server = world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        server.mute("ping");
        pass(seconds(20)).await;
        let reports = taken(&world);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].reason.contains("`ping`"), "{:?}", reports[0]);
        assert_eq!(
            reports[0].messages.last().unwrap().method.as_deref(),
            Some("ping")
        );

        // One whose start fails is reported as that; one without a link not at all.
        server.behave();
        server.mute("initialize");
        server.crash("gone");
        pass(seconds(40)).await;
        let reports = taken(&world);
        let ups: Vec<bool> = reports.iter().map(|report| report.was_up).collect();
        assert_eq!(ups, [true, false], "{reports:#?}");
        server.behave();
        server.refuse_links(Some("refused"));
        server.crash("gone");
        pass(seconds(120)).await;
        assert!(taken(&world).len() <= 1);
        server.refuse_links(None);
        pass(seconds(120)).await;
        client.call("a__echo").await.result();
        assert!(taken(&world).is_empty());

        // A stop is no crash.
        world.stop_server("a");
        pass(seconds(10)).await;
        assert!(taken(&world).is_empty());
        drop(server);
    });
}

#[test]
fn a_recorder_that_is_off_reports_without_messages() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| plan.settings.recorder.messages_max = 0;
        let server = world.stdio("a", plan).await;
        pass(seconds(1)).await;
        server.crash("boom");
        pass(millis(1)).await;
        let reports = taken(&world);
        assert_eq!((reports.len(), reports[0].messages.len()), (1, 0));
        world
            .retune("a", |settings| settings.recorder.reports_max = 0)
            .await;
        pass(seconds(5)).await;
        server.crash("boom");
        pass(millis(1)).await;
        assert!(taken(&world).is_empty());
    });
}
