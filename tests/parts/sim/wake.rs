//! A machine that slept: the wall clock goes on while the other stands still.

use std::cell::Cell;
use std::rc::Rc;

use mcpvisor::supervision::ChildPhase;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::sim::world::{Plan, World, pass, run, seconds};

#[test]
fn connections_are_checked_as_soon_as_the_machine_is_awake() {
    run(async {
        let world = Rc::new(World::new());
        let pinged = |plan: &mut Plan| plan.settings.limits.ping_every = seconds(3600);
        let alive = world.stdio("alive", pinged).await;
        let dead = world.http("dead", pinged).await;
        let never = world.stdio("never", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        let ahead = Rc::new(Cell::new(0));
        let begin = tokio::time::Instant::now();
        let wall = {
            let ahead = ahead.clone();
            move || u64::try_from(begin.elapsed().as_millis()).unwrap() + ahead.get()
        };
        let watch = world
            .downstreams
            .clone()
            .watch_clocks(wall, world.counters.clone());
        let _watch = AbortOnDropHandle::new(actix_rt::spawn(watch));
        pass(seconds(60)).await;
        assert_eq!(world.counted("clock_jumps"), 0);
        assert!(alive.of("ping").is_empty());

        // An hour of sleep, during which one of them went away without a word.
        dead.mute("ping");
        ahead.set(3_600_000);
        pass(seconds(3)).await;
        assert_eq!(world.counted("clock_jumps"), 1);
        for (server, pings) in [(&alive, 1), (&dead, 1), (&never, 0)] {
            assert_eq!(server.of("ping").len(), pings);
        }
        pass(seconds(10)).await;
        assert_eq!(world.view("alive").shared.generation, 1);
        let view = world.view("dead");
        assert_eq!(
            (view.shared.phase, view.shared.generation),
            (ChildPhase::Up, 2)
        );
        client.call("dead__echo").await.result();
        pass(seconds(60)).await;
        assert_eq!(world.counted("clock_jumps"), 1);
    });
}
