"""Clients that call all the time, and what became of their calls."""

import collections
import http.client
import itertools
import threading
import time

from client import Session

# A call that takes longer hangs.
HANG_SECONDS = 10
RETRY_SECONDS = 0.2


class Load:
    """Sessions that call the stub through one port, each in its own thread."""

    def __init__(self, port, sessions, name, ms=20, opened_at=None):
        self.port, self.name, self.ms = port, name, ms
        self.ended = threading.Event()
        self.outcomes = collections.Counter()
        self.slowest = 0
        # Tokens of calls that were answered, and of calls that could have run.
        self.answered, self.lost = set(), set()
        self.wrong = []
        self.lock = threading.Lock()
        self.sessions = [Session(opened_at or port) for _ in range(sessions)]
        self.threads = [
            threading.Thread(target=self.call_on, args=[number, session], daemon=True)
            for number, session in enumerate(self.sessions)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(HANG_SECONDS * 3)

    def call_on(self, number, session):
        for count in itertools.count():
            if self.ended.is_set():
                return
            self.call(session, f"{self.name}-{number}-{count}")

    def call(self, session, token):
        """Calls once; a call that certainly did not run is repeated under its token."""
        while True:
            begun = time.monotonic()
            try:
                answer = session.call(self.port, "run", {"token": token, "ms": self.ms})
                outcome = self.outcome(answer, token)
            except (OSError, http.client.HTTPException) as error:
                answer, outcome = error, "connection"
            seconds = time.monotonic() - begun
            with self.lock:
                self.outcomes[outcome] += 1
                self.slowest = max(self.slowest, seconds)
                if outcome == "ok":
                    self.answered.add(token)
                elif outcome == "wrong":
                    self.wrong.append((token, answer))
                elif outcome != "retry":
                    self.lost.add(token)
            if outcome != "retry":
                return
            if self.ended.wait(RETRY_SECONDS):
                return

    def outcome(self, answer, token):
        result = answer.result()
        code = answer.code()
        if answer.status == 200 and result and not code:
            same = result.get("content", [{}])[0].get("text") == token
            return "ok" if same else "wrong"
        if code == "replica_lost":
            return "replica_lost"
        # The balancer's answer when the replica that it chose died with the request.
        if answer.status == 502 and code is None:
            return "balancer"
        if answer.status == 503 and code == "replica_unavailable":
            return "retry"
        return "wrong"

    def summary(self):
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return f"{outcomes}; slowest {self.slowest:.2f} s"


def check_runs(machine, loads):
    """No call ran twice, and each answered call ran."""
    runs = collections.Counter(token for event, token in machine.events() if event == "ran")
    twice = [token for token, count in runs.items() if count > 1]
    assert not twice, f"ran twice: {twice[:5]}"
    for load in loads:
        unrun = [token for token in load.answered if token not in runs]
        assert not unrun, f"answered but never run: {unrun[:5]}"
