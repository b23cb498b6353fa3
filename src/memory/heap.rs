//! The heap of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

/// Time in which everything is freed that is freed together, such as the lists of a server.
const TRIM_DELAY: Duration = Duration::from_secs(2);

static IS_TRIM_PLANNED: AtomicBool = AtomicBool::new(false);

/// Gives free pages back to the system in a moment, off the thread that asks for it: something large
/// is being freed. Does nothing outside of a runtime.
pub(crate) fn trim_heap_soon() {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if IS_TRIM_PLANNED.swap(true, Ordering::Relaxed) {
        return;
    }
    let planned = Planned;
    runtime.spawn(async move {
        sleep(TRIM_DELAY).await;
        drop(planned);
        // Who stops the gateway needs no memory back.
        let _ = tokio::task::spawn_blocking(trim_heap).await;
    });
}

/// Lets the next one be planned, also where the runtime ends before its time.
struct Planned;

impl Drop for Planned {
    fn drop(&mut self) {
        IS_TRIM_PLANNED.store(false, Ordering::Relaxed);
    }
}

/// Gives free pages within the heap back to the system. glibc keeps them after many small objects
/// were freed, since others between them stay. Takes a few milliseconds: not for a thread that
/// serves.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn trim_heap() {
    // SAFETY: takes no pointers; the allocator locks what it walks through.
    #[expect(
        unsafe_code,
        reason = "the C library offers no safe way to ask for this"
    )]
    let returned = unsafe { libc::malloc_trim(0) };
    log::debug!(returned; "free memory was offered to the system");
}

/// Other allocators give free pages back by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim_heap() {}
