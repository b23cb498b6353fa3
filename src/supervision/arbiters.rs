//! A fixed pool of threads that children run on.
//!
//! actix-web's workers end with the server, so durable actors have separate arbiters. A dead
//! arbiter is detected when its slot is requested next, and replaced.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use actix::System;
use actix_rt::{Arbiter, ArbiterHandle};
use parking_lot::Mutex;

/// A slot in the pool, with the arbiter that currently fills it.
#[derive(Clone, Debug)]
pub struct ArbiterSite {
    /// Index of the slot, starting at 0.
    pub index: usize,
    pub arbiter: ArbiterHandle,
    /// Distinguishes the arbiters that filled this slot over time.
    serial: u64,
}

/// The pool; clones are handles to the same pool.
///
/// Dropping the last handle asks the threads to end; [`Arbiters::stop`] also waits for them.
#[derive(Clone, Debug)]
pub struct Arbiters(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    count: NonZeroUsize,
    slots: Mutex<Slots>,
    replaced: AtomicU64,
}

#[derive(Debug)]
struct Slots {
    places: Vec<ArbiterSlot>,
    /// Arbiters that were told to end but can be blocked.
    retired: Vec<Arbiter>,
    stopped: bool,
}

#[derive(Debug)]
struct ArbiterSlot {
    handle: ArbiterHandle,
    /// Absent if the thread was started elsewhere, and so must not be ended by the pool.
    own: Option<Arbiter>,
    /// The pool consists of the calling thread, which cannot be replaced.
    only: bool,
    serial: u64,
}

impl ArbiterSlot {
    fn adopt(handle: ArbiterHandle) -> Self {
        Self {
            handle,
            own: None,
            only: false,
            serial: 0,
        }
    }

    fn start(serial: u64) -> io::Result<Self> {
        if System::try_current().is_none() {
            return Err(io::Error::other("this thread has no actix system"));
        }
        let arbiter = Arbiter::try_new()?;
        let adopted = Self::adopt(arbiter.handle());
        Ok(Self {
            own: Some(arbiter),
            serial,
            ..adopted
        })
    }
}

/// Some threads did not end in time because a child blocks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{blocked} arbiter threads did not end within {within:?}: a child blocks them")]
pub struct ArbitersStillRunning {
    pub blocked: usize,
    pub within: Duration,
}

impl Arbiters {
    /// Starts the threads. Needs a running actix `System` on the calling thread.
    ///
    /// # Errors
    ///
    /// Returns the system's error if a thread or its runtime cannot be created.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let places = (0..count.get())
            .map(|_| ArbiterSlot::start(0))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self::with(count, places))
    }

    /// A pool that consists of the calling thread, for single-threaded simulations.
    ///
    /// # Errors
    ///
    /// Fails if the calling thread is not an arbiter.
    pub fn current() -> io::Result<Self> {
        let handle =
            Arbiter::try_current().ok_or_else(|| io::Error::other("this thread has no arbiter"))?;
        let only = ArbiterSlot {
            only: true,
            ..ArbiterSlot::adopt(handle)
        };
        Ok(Self::with(NonZeroUsize::MIN, vec![only]))
    }

    /// A pool of existing threads, which their owner ends. A dead or blocked thread is replaced by
    /// one that the pool owns.
    ///
    /// # Errors
    ///
    /// Fails if `handles` is empty.
    pub fn adopt(handles: Vec<ArbiterHandle>) -> io::Result<Self> {
        let count = NonZeroUsize::new(handles.len())
            .ok_or_else(|| io::Error::other("a pool needs at least one arbiter"))?;
        let places = handles.into_iter().map(ArbiterSlot::adopt).collect();
        Ok(Self::with(count, places))
    }

    fn with(count: NonZeroUsize, places: Vec<ArbiterSlot>) -> Self {
        Self(Arc::new(Pool {
            count,
            slots: Mutex::new(Slots {
                places,
                retired: Vec::new(),
                stopped: false,
            }),
            replaced: AtomicU64::new(0),
        }))
    }

    /// Number of arbiters.
    pub fn count(&self) -> NonZeroUsize {
        self.0.count
    }

    /// The index of a key's arbiter: the key modulo the number of arbiters.
    pub fn index(&self, key: u64) -> usize {
        usize::try_from(key % self.0.count.get() as u64).unwrap_or(0)
    }

    /// The slot for a key, with a fresh arbiter if the old one is dead.
    pub fn site(&self, key: u64) -> ArbiterSite {
        self.at(self.index(key))
    }

    /// The slot at an index, modulo the number of arbiters.
    pub fn at(&self, index: usize) -> ArbiterSite {
        let index = index % self.0.count;
        let mut slots = self.0.slots.lock();
        if !slots.places[index].handle.alive() && !slots.stopped {
            // A dead thread needs no shutdown.
            drop(self.replace(&mut slots, index));
        }
        let place = &slots.places[index];
        ArbiterSite {
            index,
            arbiter: place.handle.clone(),
            serial: place.serial,
        }
    }

    /// Replaces a blocked arbiter. The old one ends when it is unblocked, together with its
    /// children, whose supervisors then move them.
    ///
    /// Does nothing if the slot already has a different arbiter.
    pub fn retire(&self, site: &ArbiterSite) {
        let mut slots = self.0.slots.lock();
        let index = site.index % self.0.count;
        let place = &slots.places[index];
        if place.serial != site.serial || place.only || slots.stopped {
            return;
        }
        if let Some(old) = self.replace(&mut slots, index) {
            old.stop();
            slots.retired.push(old);
        }
    }

    /// Number of arbiters that were replaced because they were dead or blocked.
    pub fn replaced(&self) -> u64 {
        self.0.replaced.load(Ordering::Relaxed)
    }

    fn replace(&self, slots: &mut Slots, index: usize) -> Option<Arbiter> {
        let serial = slots.places[index].serial + 1;
        match ArbiterSlot::start(serial) {
            Ok(fresh) => {
                log::warn!(index, serial; "arbiter replaced");
                self.0.replaced.fetch_add(1, Ordering::Relaxed);
                std::mem::replace(&mut slots.places[index], fresh).own
            }
            // The caller gets the dead arbiter; its child fails to start, and the supervisor
            // retries.
            Err(error) => {
                log::error!(index, error:%; "cannot replace an arbiter");
                None
            }
        }
    }

    /// Ends the threads and everything that runs on them, and waits for them.
    ///
    /// # Errors
    ///
    /// Returns [`ArbitersStillRunning`] if some did not end in time; they end once they are
    /// unblocked.
    pub async fn stop(&self, within: Duration) -> Result<(), ArbitersStillRunning> {
        let own: Vec<Arbiter> = {
            let mut slots = self.0.slots.lock();
            slots.stopped = true;
            let retired = std::mem::take(&mut slots.retired);
            let places = slots.places.iter_mut().filter_map(|place| place.own.take());
            places.chain(retired).collect()
        };
        for arbiter in &own {
            arbiter.stop();
        }
        join(own, within).await
    }
}

/// Joining blocks, so each join runs on a separate thread.
async fn join(own: Vec<Arbiter>, within: Duration) -> Result<(), ArbitersStillRunning> {
    let mut blocked = own.len();
    let (done, mut joined) = tokio::sync::mpsc::unbounded_channel();
    for arbiter in own {
        let done = done.clone();
        // A thread that cannot be joined counts as running.
        drop(
            thread::Builder::new()
                .name(String::from("arbiter-end"))
                .spawn(move || {
                    // A panic was reported where it happened.
                    drop(arbiter.join());
                    let _ = done.send(());
                }),
        );
    }
    drop(done);
    let all = async {
        while joined.recv().await.is_some() {
            blocked -= 1;
        }
    };
    // The caller counts the threads that did not end in time.
    drop(tokio::time::timeout(within, all).await);
    if blocked == 0 {
        Ok(())
    } else {
        Err(ArbitersStillRunning { blocked, within })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for place in &self.places {
            if let Some(arbiter) = &place.own {
                arbiter.stop();
            }
        }
    }
}
