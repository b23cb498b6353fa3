//! The machine fails while clients call: a log that is not read, a disk that is full or hangs, no
//! descriptors, a clock that jumps, and servers that refuse bursts. Each fault is a row of a table. During
//! each, calls are answered and a server that dies comes back; after each, everything heals.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::chaos::callers::{ASKED, Caller, Place, Scene, Tally};
use crate::chaos::fleet::Fleet;
use crate::chaos::{HANG, calls_that_ran_once, number};
use crate::support::{BrokenMachine, Gateway, until};

const CALLERS: u64 = 12;
const STDIO: usize = 4;
const HTTP: usize = 2;

/// Right answers that clients get during a fault, and again after it.
const ANSWERS: usize = 100;

/// How long a fault lasts during which no client is served.
const OUTAGE: Duration = Duration::from_millis(1500);

/// Open files of the gateway, at its start and at most.
const OPEN_FILES: (u64, u64) = (256, 400);

/// Connections of clients that ask nothing: more than there are descriptors.
const IDLE: usize = 450;

/// Connections of these that are opened at once.
const BURST: usize = 4;

/// The program that reads the log of the gateway.
#[derive(Clone, Default)]
struct LogReader(Arc<Mutex<Option<Child>>>);

impl LogReader {
    fn open(&self, log: File) -> Stdio {
        let mut reader = Command::new("cat");
        // A signal to the test's group is not for it.
        let reader = reader.process_group(0).stdin(Stdio::piped()).stdout(log);
        let mut reader = reader.spawn().unwrap();
        let input = reader.stdin.take().unwrap();
        *self.0.lock().unwrap() = Some(reader);
        input.into()
    }

    fn signal(&self, signal: Signal) {
        let reader = self.0.lock().unwrap();
        let pid = i32::try_from(reader.as_ref().unwrap().id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        // The last one: it ends with the gateway, unless it was stopped.
        if let Some(mut reader) = self.0.lock().unwrap().take() {
            let _ = reader.kill();
            let _ = reader.wait();
        }
    }
}

struct World<'a> {
    machine: BrokenMachine,
    reader: &'a LogReader,
    fleet: &'a Fleet,
    gateway: Gateway,
    tally: Rc<Tally>,
    idle: Vec<TcpStream>,
}

impl World<'_> {
    fn limit_open_files(&self, current: u64) {
        let pid = Pid::from_raw(self.gateway.pid());
        let (current, maximum) = (Some(current), Some(OPEN_FILES.1));
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }

    /// Connections that ask nothing. A burst of them would fill the queue behind the seats, from
    /// which a client is cut, so each few wait until the gateway has made room.
    async fn crowd(&mut self) {
        for number in 0..IDLE {
            let stream = TcpStream::connect(self.gateway.address).await.unwrap();
            self.idle.push(stream);
            if number % BURST == 0 {
                let health = self.gateway.get("/health").send().await;
                assert_eq!(health.status, 200);
            }
        }
    }

    fn of_http(&self) -> &crate::chaos::fleet::Peer {
        &self.fleet.peers[STDIO]
    }

    async fn more_answers(&self, fault: &str) {
        let wanted = self.tally.right() + ANSWERS;
        until(&format!("answers: {fault}"), || async {
            (self.tally.right() >= wanted).then_some(())
        })
        .await;
    }

    async fn all_heal(&self, fault: &str) {
        until(&format!("all up again: {fault}"), || async {
            let health = self.gateway.get("/health").send().await.json().await;
            (health["status"] == "ok").then_some(())
        })
        .await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The program that reads the log stops.
    LogIsNotRead,
    /// That program has ended.
    LogHasNoReader,
    /// The file of the machine, and what is in it.
    Machine(&'static str, &'static str),
    ClientsHoldAll,
    NoDescriptors,
    BusyServer,
}

/// Error numbers of Linux.
const ENOSPC: &str = "28";
const EIO: &str = "5";
const EROFS: &str = "30";

const FAULTS: [(&str, Fault); 11] = [
    ("a log whose reader stops", Fault::LogIsNotRead),
    ("a full disk", Fault::Machine("disk-errno", ENOSPC)),
    ("a disk that fails", Fault::Machine("disk-errno", EIO)),
    ("a read-only disk", Fault::Machine("disk-errno", EROFS)),
    ("a disk that hangs", Fault::Machine("disk-hangs", "")),
    ("a clock one day ahead", Fault::Machine("clock", "86400")),
    ("a clock one hour behind", Fault::Machine("clock", "-3600")),
    ("clients that hold all descriptors", Fault::ClientsHoldAll),
    ("no free descriptor", Fault::NoDescriptors),
    ("a server that refuses bursts", Fault::BusyServer),
    ("a log whose reader ended", Fault::LogHasNoReader),
];

impl Fault {
    async fn begin(self, world: &mut World<'_>) {
        match self {
            Self::LogIsNotRead => world.reader.signal(Signal::STOP),
            Self::LogHasNoReader => world.reader.signal(Signal::KILL),
            Self::Machine(file, detail) => world.machine.begin(file, detail),
            Self::ClientsHoldAll => world.crowd().await,
            Self::NoDescriptors => world.limit_open_files(3),
            Self::BusyServer => world.of_http().is_busy(true),
        }
    }

    fn end(self, world: &mut World<'_>) {
        match self {
            Self::LogIsNotRead => world.reader.signal(Signal::CONT),
            // Nothing reads it again.
            Self::LogHasNoReader => {}
            Self::Machine(file, _) => world.machine.end(file),
            Self::ClientsHoldAll => world.idle.clear(),
            Self::NoDescriptors => world.limit_open_files(OPEN_FILES.1),
            Self::BusyServer => world.of_http().is_busy(false),
        }
    }

    /// Clients are served and a server that dies comes back.
    async fn endure(self, name: &str, world: &World<'_>) {
        let victim = &world.fleet.peers[0];
        let lost = world.gateway.generation(&victim.name).await;
        let pid = victim.pid(&world.gateway).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        world.gateway.wait_renewed(&victim.name, lost).await;
        world.more_answers(name).await;
    }
}

async fn suffer(world: &mut World<'_>) {
    for (name, fault) in FAULTS {
        eprintln!("{name}");
        fault.begin(world).await;
        match fault {
            // Not even a client can be accepted.
            Fault::NoDescriptors => sleep(OUTAGE).await,
            _ => fault.endure(name, world).await,
        }
        if matches!(fault, Fault::BusyServer) {
            until("a refusal", || async {
                (world.tally.failures("rate_limited") > 0).then_some(())
            })
            .await;
        }
        fault.end(world);
        world.all_heal(name).await;
        world.more_answers(name).await;
    }
}

#[tokio::test]
async fn nothing_is_lost_while_the_machine_fails() {
    let Some(machine) = BrokenMachine::new() else {
        return;
    };
    let reader = LogReader::default();
    let opened = reader.clone();
    let fleet = Fleet::of(STDIO, HTTP).with_setup(|setup| {
        let setup = machine.run(setup).variable("RUST_LOG", "debug");
        let setup = setup.open_files(OPEN_FILES.0, OPEN_FILES.1);
        setup.log_through(move |log| opened.open(log))
    });
    let gateway = fleet.serve().await;
    let (_places, place) = watch::channel(Place::of(&gateway));
    let tally = Rc::new(Tally::default());
    let scene = Scene {
        seed: number("CHAOS_SEED", u64::from(std::process::id())),
        place,
        servers: fleet.names().into(),
        tally: tally.clone(),
        hang: HANG,
    };
    // None that servers ask: each server has one process.
    let numbers = ASKED..ASKED + CALLERS;
    let callers = numbers.map(|number| Caller::open(number, scene.clone()));
    let callers = join_all(callers).await;
    let over = CancellationToken::new();
    let callers = callers.into_iter().map(|caller| caller.run(over.clone()));
    let mut world = World {
        machine,
        reader: &reader,
        fleet: &fleet,
        gateway,
        tally,
        idle: Vec::new(),
    };
    let suffering = async {
        suffer(&mut world).await;
        over.cancel();
    };
    let (callers, ()) = tokio::join!(join_all(callers), suffering);
    for mut caller in callers {
        caller.every_session_lives().await;
        caller.every_server_answers().await;
    }
    let ran = calls_that_ran_once(&fleet);
    eprintln!("{ran} calls ran\n{:#?}", world.tally);
    assert!(ran > 1000, "only {ran} calls ran");
    // Nothing reads the log, and nothing answers for the disk.
    world.machine.begin("disk-hangs", "");
    world.gateway.signal(Signal::TERM);
    assert!(world.gateway.ended().await.success());
    world.gateway.nothing_left().await;
}
