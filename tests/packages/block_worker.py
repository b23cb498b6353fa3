"""Stops one worker thread of a gateway, as code that never returns would, until the process ends.

Argument: the control group of the service, in which the gateway has made one for itself. Needs the right to
trace the gateway.
"""
import ctypes, os, pathlib, sys

PTRACE_ATTACH = 16
WAIT_ALL = 0x40000000

[group] = pathlib.Path(sys.argv[1]).glob("gateway-*")
[gateway] = (group / "cgroup.procs").read_text().split()
threads = pathlib.Path("/proc", gateway, "task")
worker = next(thread for thread in threads.iterdir() if (thread / "comm").read_text().startswith("actix-rt|"))
if ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_ATTACH, int(worker.name), None, None) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(int(worker.name), WAIT_ALL)
print("blocked", flush=True)
# A thread that ends while it is traced keeps its process from ending until its tracer waits for it.
while os.WIFSTOPPED(os.waitpid(int(worker.name), WAIT_ALL)[1]):
    pass
