//! Everything that goes wrong, in an order that the seed decides.

use std::fs;
use std::time::Duration;

use mcpvisor::supervision::SeededRandom;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::chaos::callers::Place;
use crate::chaos::fleet::{Fleet, Variation};
use crate::support::Gateway;

/// After the last fault every server is up within this time.
pub(crate) const HEAL: Duration = Duration::from_secs(10);

/// The gateway's memory at the end, beside what it had in the first seconds of the same process.
const GROWTH_MAX: f64 = 1.5;
const WARM_UP: Duration = Duration::from_secs(5);

/// Signals that make a server misbehave, and those of which it would not die.
const OTHERS: [Signal; 6] = [
    Signal::USR1,
    Signal::USR2,
    Signal::CHILD,
    Signal::URG,
    Signal::WINCH,
    Signal::CONT,
];

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) gateways_killed: usize,
    signals: usize,
    stops: usize,
    floods: usize,
    babbles: usize,
    exits: usize,
    reloads: usize,
    healed_after: Duration,
    pub(crate) memory_kib: (u64, u64),
}

/// The end of a fault.
enum Repair {
    Continue(i32),
    Behave(usize),
}

pub(crate) struct Storm<'a> {
    random: SeededRandom,
    gateway: Gateway,
    fleet: &'a Fleet,
    places: watch::Sender<Place>,
    repairs: Vec<(Instant, Repair)>,
    report: Report,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(
        seed: u64,
        gateway: Gateway,
        fleet: &'a Fleet,
        places: watch::Sender<Place>,
    ) -> Self {
        Self {
            random: SeededRandom::new(seed),
            gateway,
            fleet,
            places,
            repairs: Vec::new(),
            report: Report::default(),
        }
    }

    pub(crate) fn into_gateway(self) -> Gateway {
        self.gateway
    }

    /// Faults of servers all the time; the gateway dies in the first two thirds of it, so that
    /// the memory of its last process can be compared. Ends when all is healed.
    pub(crate) async fn rage(&mut self, length: Duration) -> Report {
        let begun = Instant::now();
        let mut next_kill = begun + length / 10;
        while begun.elapsed() < length * 2 / 3 {
            self.fault().await;
            if Instant::now() >= next_kill {
                next_kill = Instant::now() + length / 8;
                self.kill_gateway().await;
                if self.below(3) == 0 {
                    sleep(self.millis(0, 300)).await;
                    self.kill_gateway().await;
                }
            }
        }
        self.kill_gateway().await;
        let started = Instant::now();
        let mut early = 0;
        while begun.elapsed() < length {
            self.fault().await;
            if started.elapsed() < WARM_UP {
                early = early.max(memory(&self.gateway));
            }
        }
        self.heal().await;
        self.report.memory_kib = (early, memory(&self.gateway));
        let (early, late) = self.report.memory_kib;
        assert!(
            (late as f64) < early as f64 * GROWTH_MAX,
            "{early} KiB, then {late}"
        );
        std::mem::take(&mut self.report)
    }

    /// Each server is killed twice and the gateway in between, with pauses in which they may come
    /// back. Ends when all is healed.
    pub(crate) async fn kill_each_twice(&mut self) -> Report {
        for round in 0..2 {
            for number in 0..self.fleet.peers.len() {
                self.report.signals += 1;
                self.send(number, Signal::KILL);
                sleep(self.millis(100, 600)).await;
            }
            if round == 0 {
                self.kill_gateway().await;
                sleep(self.millis(2000, 4000)).await;
            }
        }
        self.heal().await;
        std::mem::take(&mut self.report)
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn any(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    fn millis(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least))
    }

    async fn fault(&mut self) {
        sleep(self.millis(20, 250)).await;
        self.repair(Some(Instant::now()));
        let number = self.any(self.fleet.peers.len());
        match self.below(100) {
            0..40 => self.signal(number),
            40..55 => self.stop(number),
            55..65 => {
                self.report.floods += 1;
                self.send(number, Signal::USR1);
            }
            65..75 => {
                self.report.babbles += 1;
                self.send(number, Signal::USR2);
            }
            75..88 => self.exit_at_once(number),
            _ => self.reload(),
        }
    }

    /// Returns the process, if there is one.
    fn send(&self, number: usize, signal: Signal) -> Option<i32> {
        let pid = self.fleet.peers[number].pid(&self.gateway)?;
        // It may have ended by now.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
        Some(pid)
    }

    fn signal(&mut self, number: usize) {
        let signals = (1..32)
            .filter_map(Signal::from_named_raw)
            .filter(|signal| !OTHERS.contains(signal));
        let signals: Vec<Signal> = signals.collect();
        let signal = signals[self.any(signals.len())];
        self.report.signals += 1;
        if let Some(pid) = self.send(number, signal) {
            // Some of them stop it.
            let time = Instant::now() + self.millis(200, 4000);
            self.repairs.push((time, Repair::Continue(pid)));
        }
    }

    /// The process hangs, and may go on later.
    fn stop(&mut self, number: usize) {
        self.report.stops += 1;
        if let Some(pid) = self.send(number, Signal::STOP) {
            let time = Instant::now() + self.millis(200, 4000);
            self.repairs.push((time, Repair::Continue(pid)));
        }
    }

    fn exit_at_once(&mut self, number: usize) {
        self.report.exits += 1;
        self.fleet.peers[number].exits_at_once();
        self.send(number, Signal::KILL);
        let time = Instant::now() + self.millis(300, 3000);
        self.repairs.push((time, Repair::Behave(number)));
    }

    fn reload(&mut self) {
        self.report.reloads += 1;
        if self.below(5) == 0 {
            return self
                .gateway
                .write_config("[gateway\nthis is no configuration");
        }
        let variation = Variation {
            request_timeout: self.below(2),
            has_extra: self.below(2) == 0,
            changed: Some(self.any(self.fleet.peers.len())),
        };
        self.gateway.write_config(&self.fleet.config(variation));
    }

    /// Ends the faults that are due by then; all of them without a time.
    fn repair(&mut self, by: Option<Instant>) {
        let due = |repair: &mut (Instant, Repair)| by.is_none_or(|by| repair.0 <= by);
        for (_, repair) in self.repairs.extract_if(.., due) {
            match repair {
                // It may have ended by now.
                Repair::Continue(pid) => {
                    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT);
                }
                Repair::Behave(number) => self.fleet.peers[number].behaves(),
            }
        }
    }

    async fn kill_gateway(&mut self) {
        self.report.gateways_killed += 1;
        self.places.send_modify(|place| {
            place.kills += 1;
            place.is_up = false;
        });
        self.gateway.kill();
        // It does not start with a broken one.
        self.gateway
            .write_config(&self.fleet.config(Variation::default()));
        self.gateway.start_again().await;
        let address = self.gateway.address;
        self.places.send_modify(|place| {
            place.address = address;
            place.is_up = true;
        });
    }

    /// The faults are over.
    async fn heal(&mut self) {
        self.repair(None);
        let config = self.fleet.config(Variation::default());
        self.gateway.write_config(&config);
        let begun = Instant::now();
        loop {
            let status = self.gateway.status().await;
            let servers = status["servers"].as_array().unwrap();
            let down: Vec<&Value> = servers.iter().filter(|one| one["state"] != "up").collect();
            if down.is_empty() && servers.len() == self.fleet.peers.len() {
                break;
            }
            assert!(begun.elapsed() < HEAL, "not healed: {down:#?}");
            sleep(Duration::from_millis(50)).await;
        }
        self.report.healed_after = begun.elapsed();
    }
}

/// Resident memory of the gateway, in KiB.
pub(crate) fn memory(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let mut words = line.unwrap().split_whitespace();
    words.nth(1).unwrap().parse().unwrap()
}
