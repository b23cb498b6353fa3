//! The heap of the process.

/// Returns free pages within the heap to the system. glibc keeps them after many small objects were
/// freed if other objects remain between them. Takes a few milliseconds, so it must not run on a
/// serving thread.
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

/// Other allocators return free pages automatically.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn trim_heap() {}
