//! A fixed pool of threads on which children live.
//!
//! actix-web's workers end with the server, so durable actors have arbiters of their own.
//! A dead arbiter is noticed when somebody asks for its place, and replaced.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use actix::System;
use actix_rt::{Arbiter, ArbiterHandle};
use parking_lot::Mutex;

/// A place in the pool.
#[derive(Clone, Debug)]
pub struct ArbiterSite {
    /// Which one, from 0.
    pub index: usize,
    pub arbiter: ArbiterHandle,
    /// Which of the arbiters that held this place.
    serial: u64,
}

/// The pool; clones are handles to the same one.
///
/// When the last handle is dropped the threads are asked to end; [`Arbiters::stop`] also waits.
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
    /// Told to end, perhaps blocked.
    retired: Vec<Arbiter>,
    stopped: bool,
}

#[derive(Debug)]
struct ArbiterSlot {
    handle: ArbiterHandle,
    /// Absent when somebody else started the thread: not ours to end.
    own: Option<Arbiter>,
    /// The pool is this one thread, which cannot be replaced.
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
            return Err(io::Error::other("no actix system runs on this thread"));
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

/// Some threads did not end in time: a child blocks them.
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
    /// Returns the system's error when a thread or its runtime cannot be made.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let places = (0..count.get())
            .map(|_| ArbiterSlot::start(0))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self::with(count, places))
    }

    /// A pool of one that is the calling thread: for simulations on one thread.
    ///
    /// # Errors
    ///
    /// Fails when the calling thread is no arbiter.
    pub fn current() -> io::Result<Self> {
        let handle = Arbiter::try_current()
            .ok_or_else(|| io::Error::other("no arbiter runs on this thread"))?;
        let only = ArbiterSlot {
            only: true,
            ..ArbiterSlot::adopt(handle)
        };
        Ok(Self::with(NonZeroUsize::MIN, vec![only]))
    }

    /// A pool of threads that somebody else started and ends. One that dies or is blocked is
    /// replaced by a thread of the pool's own.
    ///
    /// # Errors
    ///
    /// Fails when there is none.
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

    /// How many arbiters there are.
    pub fn count(&self) -> NonZeroUsize {
        self.0.count
    }

    /// The index of a key's arbiter: the key modulo the number of arbiters.
    pub fn index(&self, key: u64) -> usize {
        usize::try_from(key % self.0.count.get() as u64).unwrap_or(0)
    }

    /// The place for a key, on a fresh arbiter if the old one is dead.
    pub fn site(&self, key: u64) -> ArbiterSite {
        self.at(self.index(key))
    }

    /// The place of an index, modulo the number of arbiters.
    pub fn at(&self, index: usize) -> ArbiterSite {
        let index = index % self.0.count;
        let mut slots = self.0.slots.lock();
        if !slots.places[index].handle.alive() && !slots.stopped {
            // A dead thread needs no goodbye.
            drop(self.replace(&mut slots, index));
        }
        let place = &slots.places[index];
        ArbiterSite {
            index,
            arbiter: place.handle.clone(),
            serial: place.serial,
        }
    }

    /// Puts a fresh arbiter in the place of a blocked one. The old one ends as soon as it is
    /// free again, and its children with it, so that their supervisors move them.
    ///
    /// Does nothing if the place was already taken by another arbiter.
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

    /// How many arbiters were replaced because they were dead or blocked.
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
            // The caller gets the dead one, its child a dead thread, and its supervisor a retry.
            Err(error) => {
                log::error!(index, error:%; "cannot replace an arbiter");
                None
            }
        }
    }

    /// Ends the threads and everything that lives on them, and waits for them.
    ///
    /// # Errors
    ///
    /// Returns [`ArbitersStillRunning`] when some did not end within that time; they end when what
    /// blocks them does.
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

/// Joining blocks, so each is waited for by a thread of its own.
async fn join(own: Vec<Arbiter>, within: Duration) -> Result<(), ArbitersStillRunning> {
    let mut blocked = own.len();
    let (done, mut joined) = tokio::sync::mpsc::unbounded_channel();
    for arbiter in own {
        let done = done.clone();
        // A thread that cannot be waited for counts as running.
        drop(
            thread::Builder::new()
                .name(String::from("arbiter-end"))
                .spawn(move || {
                    // Its panic, if any, was reported where it happened.
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
    // Whether it was in time is seen in the count.
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
