//! The heap of the process.

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
