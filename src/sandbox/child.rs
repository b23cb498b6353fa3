//! Code that a child runs before it executes its program.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Lets the child of a command run `hook` before it executes the program.
///
/// The child has one thread, so a lock that another thread of its parent held stays locked. Unless
/// the parent has one thread, `hook` makes a few system calls, allocates nothing and takes no lock.
pub(crate) fn before_exec(
    command: &mut Command,
    hook: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    #[expect(
        unsafe_code,
        reason = "the closure runs between fork and exec; both that exist observe the rule above"
    )]
    unsafe {
        command.pre_exec(hook);
    }
}
