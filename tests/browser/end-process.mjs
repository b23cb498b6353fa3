/** How long a process may take to end, in milliseconds, before it is killed. */
const GRACE_MS = 10_000;

/** Ends a child process and waits for it: until it has ended, it writes to its directory. */
export async function endProcess(child, signal = "SIGTERM") {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  const killer = setTimeout(() => child.kill("SIGKILL"), GRACE_MS);
  await ended;
  clearTimeout(killer);
}
