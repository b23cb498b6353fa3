//! Ids that are the same in every run, and panics while they are minted.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use mcpvisor::cluster::Mint;
use uuid::Uuid;

use crate::sim::world::panic_if_due;

thread_local!(static MINTS_PANIC: AtomicU32 = const { AtomicU32::new(0) });

/// How often the minting of an id panics from now on.
pub(crate) fn mints_panic(times: u32) {
    MINTS_PANIC.with(|panics| panics.store(times, SeqCst));
}

/// Mints the same ids in every run.
#[derive(Debug)]
pub(crate) struct CountingMint;

impl Mint for CountingMint {
    fn mint(&self) -> Uuid {
        MINTS_PANIC.with(panic_if_due);
        thread_local!(static MINTED: Cell<u128> = const { Cell::new(0) });
        MINTED.set(MINTED.get() + 1);
        Uuid::from_u128(MINTED.get())
    }
}
