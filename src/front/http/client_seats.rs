//! Limits client connections, so that enough file descriptors remain for servers, operators and
//! health checks.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use rustix::process::{Resource, getrlimit};

use super::request_clock::RequestClock;
use crate::front::settings::FrontSettings;

/// Minimum number of descriptors reserved for other uses, if the limit is at least twice as high.
const LEFT_MIN: u64 = 96;

/// Maximum number of connections accepted beyond the seats. Their requests are refused with a
/// reason, except for health checks. Never more than the number of seats.
const CROWD_MAX: usize = 32;

/// Reserve for connections that are accepted but have not reached a worker yet.
const ARRIVING_MAX: usize = 16;

/// Number of idle connections closed when a new one needs a seat, to make room for further ones.
const END_AT_ONCE: usize = 8;

/// The seats of all workers. Clones share the count.
#[derive(Clone, Debug)]
pub(super) struct ClientSeats(Arc<Seats>);

#[derive(Debug)]
struct Seats {
    taken: AtomicUsize,
    max: usize,
    crowd_max: usize,
}

/// The seat of one connection.
#[derive(Debug)]
pub(super) struct ClientSeat {
    seats: ClientSeats,
    /// Whether all seats were taken and no idle connection made room. The connection's requests are
    /// then refused.
    pub(super) is_beyond: bool,
}

impl ClientSeats {
    pub(super) fn new(max: usize) -> Self {
        let taken = AtomicUsize::new(0);
        let crowd_max = CROWD_MAX.min(max);
        Self(Arc::new(Seats {
            taken,
            max,
            crowd_max,
        }))
    }

    /// Returns the maximum number of connections of each of `workers` workers. It guarantees that a
    /// descriptor is available for every accepted connection.
    pub(super) fn of_worker(&self, workers: usize) -> usize {
        let all = self.0.max.saturating_add(CROWD_MAX + ARRIVING_MAX);
        all / workers.max(1)
    }

    /// Takes a seat. If none is free, closes some of this worker's idle connections. Returns `None`
    /// if the limit beyond the seats is also reached.
    pub(super) fn take(&self, open: &OpenSockets) -> Option<ClientSeat> {
        let taken = self.0.taken.fetch_add(1, Ordering::Relaxed);
        let is_full = taken >= self.0.max;
        let seat = ClientSeat {
            seats: self.clone(),
            is_beyond: is_full && open.end_idle(END_AT_ONCE) == 0,
        };
        // The idle connections are still counted until they have actually closed.
        (taken < self.0.max.saturating_add(self.0.crowd_max)).then_some(seat)
    }
}

impl Drop for ClientSeat {
    fn drop(&mut self) {
        self.seats.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the number of seats for a limit of descriptors, or without a limit. Connections beyond
/// the seats are deducted as well, so that the reserve for servers and operators is never used up.
fn seats_of(limit: Option<u64>) -> usize {
    let clients = limit.map(|limit| limit - (limit / 4).max(LEFT_MIN).min(limit / 2));
    let clients = clients.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    clients
        .saturating_sub(CROWD_MAX + ARRIVING_MAX)
        .max(clients / 2)
}

/// Default maximum number of connections per worker.
const PER_WORKER: usize = 25_000;

/// Returns the maximum number of client connections for a limit of open files, or without a limit.
pub fn clients_max(settings: &FrontSettings, open_files: Option<u64>) -> usize {
    let per_worker = settings.connections_max.unwrap_or(PER_WORKER);
    seats_of(open_files).min(per_worker.saturating_mul(settings.workers))
}

/// Creates the seats of this process. Logs a warning if the limit of open files is too low for the
/// configured number of connections.
pub(super) fn seats_of_process(settings: &FrontSettings) -> ClientSeats {
    let limit = getrlimit(Resource::Nofile).current;
    let max = seats_of(limit);
    let configured = settings.connections_max.unwrap_or_default();
    let configured = configured.saturating_mul(settings.workers);
    if let Some(limit) = limit.filter(|_| max < configured) {
        log::warn!(
            "client connections limited to {max} instead of {configured} (`gateway.connections_max` times workers) \
             by the limit of {limit} open files; raise `LimitNOFILE=` or `ulimit -n`"
        );
    }
    ClientSeats::new(clients_max(settings, limit))
}

/// The open client sockets of one worker.
#[derive(Default)]
pub(super) struct OpenSockets {
    all: RefCell<BTreeMap<u64, Rc<OpenSocket>>>,
    last: Cell<u64>,
}

/// The state of a socket that other connections of its worker access.
#[derive(Default)]
pub(super) struct OpenSocket {
    pub(super) clock: Rc<RequestClock>,
    waker: RefCell<Option<Waker>>,
    must_end: Cell<bool>,
}

impl OpenSockets {
    /// Adds a socket and returns the number with which it is removed.
    pub(super) fn add(&self) -> (u64, Rc<OpenSocket>) {
        let number = self.last.get() + 1;
        self.last.set(number);
        let socket = Rc::new(OpenSocket::default());
        self.all.borrow_mut().insert(number, Rc::clone(&socket));
        (number, socket)
    }

    pub(super) fn remove(&self, number: u64) {
        self.all.borrow_mut().remove(&number);
    }

    /// Closes up to `most` idle connections, longest idle first, and returns their number.
    fn end_idle(&self, most: usize) -> usize {
        let all = self.all.borrow();
        let idle = all.values().filter(|socket| !socket.must_end.get());
        let mut idle: Vec<_> = idle
            .filter_map(|socket| Some((socket.clock.idle_since()?, socket)))
            .collect();
        idle.sort_by_key(|(since, _)| Reverse(since.elapsed()));
        idle.truncate(most);
        for (_, socket) in &idle {
            socket.must_end.set(true);
            if let Some(waker) = &*socket.waker.borrow() {
                waker.wake_by_ref();
            }
        }
        idle.len()
    }
}

impl OpenSocket {
    /// Stores the waker of the task that waits to read from the socket.
    pub(super) fn waits(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Returns whether the connection must close to make room. A connection that serves a request
    /// in the meantime stays open.
    pub(super) fn must_end(&self) -> bool {
        self.must_end.get() && self.clock.idle_since().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left() {
        let table = [
            (None, usize::MAX - 48),
            (Some(20), 5),
            (Some(256), 112),
            (Some(1024), 720),
            (Some(1 << 20), (3 << 18) - 48),
        ];
        for (limit, expected) in table {
            assert_eq!(seats_of(limit), expected, "{limit:?}");
        }
    }

    #[test]
    fn the_number_of_clients_follows_open_files_unless_it_is_set_lower() {
        let table = [
            (None, Some(1024), 720),
            (None, Some(1 << 20), 2 * PER_WORKER),
            (None, None, 2 * PER_WORKER),
            (Some(10), Some(1024), 20),
            (Some(30_000), Some(1024), 720),
            (Some(30_000), Some(1 << 20), 60_000),
        ];
        for (connections_max, open_files, expected) in table {
            let settings = FrontSettings {
                connections_max,
                workers: 2,
                ..FrontSettings::for_tests()
            };
            let row = (connections_max, open_files);
            assert_eq!(clients_max(&settings, open_files), expected, "{row:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_make_room_and_then_new_ones_are_a_crowd() {
        let (seats, open) = (ClientSeats::new(40), OpenSockets::default());
        let (_, busy) = open.add();
        let _serving = busy.clock.serve();
        let (number, idle) = open.add();
        drop(idle.clock.serve());
        let _seats = [(); 40].map(|()| seats.take(&open).unwrap());
        assert!(!idle.must_end() && !busy.must_end());
        let third = seats.take(&open).unwrap();
        assert!(!third.is_beyond && idle.must_end() && !busy.must_end());
        open.remove(number);
        let crowd = [(); CROWD_MAX - 1].map(|()| seats.take(&open).unwrap());
        assert!(crowd.iter().all(|seat| seat.is_beyond));
        assert!(seats.take(&open).is_none());
        drop((third, crowd));
        assert!(seats.take(&open).is_some_and(|seat| seat.is_beyond));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_sent_a_byte_is_idle_and_one_that_began_is_not() {
        let open = OpenSockets::default();
        let (_, silent) = open.add();
        let (_, beginning) = open.add();
        beginning.clock.received();
        assert_eq!(open.end_idle(2), 1);
        assert!(silent.must_end() && !beginning.must_end());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_serves_again_does_not_end() {
        let open = OpenSockets::default();
        let (_, socket) = open.add();
        drop(socket.clock.serve());
        assert_eq!(open.end_idle(1), 1);
        let serving = socket.clock.serve();
        assert!(!socket.must_end());
        drop(serving);
        assert!(socket.must_end());
    }
}
