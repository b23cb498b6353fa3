"""Three replicas behind nginx that chooses one for each request in turn.

    check.py PROGRAM [CHECK...]
"""

import json
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from client import Channel, Session, Sessionless, retried
from load import HANG_SECONDS, Load, check_runs
from machine import Engine, Machine, Sentinel, wait_until


def sessions_through_any_replica(machine):
    """Every request of a session is answered, whichever replica it reaches."""
    ports = [replica.port for replica in machine.replicas]
    for opened_at in ports:
        session = Session(opened_at)
        for count, port in enumerate(ports * 2):
            token = f"any-{opened_at}-{count}"
            answer = session.call(port, "run", {"token": token})
            assert answer.result()["content"][0]["text"] == token, answer
            listed = session.request(port, "tools/list").result()["tools"]
            assert {tool["name"] for tool in listed} >= {"run", "ask"}, listed
        for port in ports:
            stream = session.stream(port)
            assert stream.status == 200 and stream.next_line().startswith(b"id: ")
            stream.close()
        other = ports[ports.index(opened_at) - 1]
        ended = session.send(other, "DELETE")
        assert ended.status == 200, ended
        for port in ports:
            # Until the engine has settled, an owner could write a missing record again: 503.
            gone = lambda: session.call(port, "run", {"token": "gone"}).status
            wait_until("404", lambda: gone() == 404)


def progress_cancel_and_questions(machine):
    """What belongs to a call reaches it from other replicas."""
    one, two, three = (replica.port for replica in machine.replicas)
    session = Session(one, {"elicitation": {}})
    call = session.message("tools/call", session.tool("run", {"token": "p", "ms": 800}, {"progressToken": 7}))
    stream = session.stream(two, call)
    first = stream.next()
    assert first["method"] == "notifications/progress", first
    assert first["params"]["progressToken"] == 7, first
    while (last := stream.next()) and "method" in last:
        pass
    assert last["result"]["content"][0]["text"] == "p", last
    stream.close()

    call = session.message("tools/call", session.tool("ask"))
    stream = session.stream(two, call)
    question = stream.next()
    assert question["method"] == "elicitation/create", question
    reply = {"id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
    accepted = session.post(three, reply)
    assert accepted.status == 202, accepted
    said = stream.next()["result"]["content"][0]["text"]
    assert json.loads(said)["content"] == {"name": "Ada"}, said
    stream.close()

    call = session.message("tools/call", session.tool("run", {"token": "c", "ms": 20_000}))
    waiting = threading.Thread(target=lambda: session.post(two, call))
    waiting.start()
    wait_until("call", lambda: ("ran", "c") in machine.events())
    params = {"requestId": call["id"]}
    cancelled = session.post(three, {"method": "notifications/cancelled", "params": params})
    assert cancelled.status == 202, cancelled
    wait_until("cancelled call", lambda: ("cancelled", "c") in machine.events(), 5)
    waiting.join(5)
    assert not waiting.is_alive(), "the request of a cancelled call still waits"


ADA = {"action": "accept", "content": {"name": "Ada"}}


def questions_without_sessions(machine):
    """A client without a session answers each question of a call at another replica."""
    ports = [replica.port for replica in machine.replicas]
    client = Sessionless({"elicitation": {"form": {}}})
    for number, first in enumerate(ports):
        arguments = {"token": f"asked-{number}", "questions": 4}
        answer = client.call(first, "ask", arguments)
        for port in (ports * 3)[number + 1 : number + 5]:
            asked = answer.result()
            assert asked and asked["resultType"] == "input_required", answer
            answer = client.answered(port, "ask", arguments, asked, ADA)
        assert json.loads(answer.result()["content"][0]["text"])["content"] == {"name": "Ada"}, answer
        # Each state can be used once, wherever it is returned.
        for port in ports:
            again = client.answered(port, "ask", arguments, asked, ADA)
            assert again.code() == "server_lost", again
        assert machine.events().count(("ran", f"asked-{number}")) == 1

    balanced = machine.balancer.port
    for number in range(6):
        arguments = {"token": f"balanced-{number}", "questions": 3}
        answer = client.call(balanced, "ask", arguments)
        while (asked := answer.result()) and asked["resultType"] == "input_required":
            answer = client.answered(balanced, "ask", arguments, asked, ADA)
        assert answer.result()["content"], answer
        assert machine.events().count(("ran", f"balanced-{number}")) == 1


def states_that_any_replica_finishes(machine):
    """A call that waits for a visit of a page continues at any replica, once, and not without the engine."""
    ports = [replica.port for replica in machine.replicas]
    client = Sessionless({"elicitation": {"url": {}}})
    accept = {"action": "accept"}

    def begin(token):
        answer = client.call(ports[0], "visit", {"token": token})
        asked = answer.result()
        assert asked and asked["resultType"] == "input_required", answer
        return lambda port: client.answered(port, "visit", {"token": token}, asked, accept)

    visited = begin("visit")
    done = visited(ports[1])
    assert done.result()["content"][0]["text"] == "visit", done
    for port in ports:
        used = visited(port)
        assert "already used" in used.messages()[0]["error"]["message"], used
    # All at once.
    finish, answers = begin("race"), []
    racing = [threading.Thread(target=lambda port=port: answers.append(finish(port))) for port in ports * 4]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert sum(bool(answer.result()) for answer in answers) == 1, answers
    assert machine.events().count(("ran", "race")) == 1

    finish = begin("away")
    machine.engine.kill()
    try:
        for port in ports:
            refused = finish(port)
            assert refused.code() == "replica_unavailable", refused
    finally:
        machine.engine.start()
    # Each replica sees that the engine is back with its next beat.
    wait_until("engine", lambda: (finish(ports[2]).result() or {}).get("content"))
    assert machine.events().count(("ran", "away")) == 1
    # The engine lost what it knew; the replica that used a state before marks it again.
    time.sleep(3)
    for port in ports:
        used = visited(port)
        assert "already used" in used.messages()[0]["error"]["message"], used
    assert machine.events().count(("ran", "visit")) == 1


def tasks_without_sessions(machine):
    """A task is read and cancelled at every replica, whether its server knows tasks of this revision."""
    ports = [replica.port for replica in machine.replicas]
    client = Sessionless({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    for tool in ("build", "keep"):
        for number, first in enumerate(ports):
            token = f"{tool}-{number}"
            answer = client.call(first, tool, {"token": token})
            created = answer.result()
            assert created and created["resultType"] == "task", answer
            about = {"taskId": created["taskId"]}
            for port in ports + [machine.balancer.port] * 3:
                found = client.request(port, "tasks/get", about)
                assert found.result() and found.result()["status"] == "working", found
                assert found.result()["taskId"] == created["taskId"], found
            other = ports[number - 1]
            cancelled = client.request(other, "tasks/cancel", about)
            assert cancelled.result() is not None, cancelled
            for port in ports:
                found = client.request(port, "tasks/get", about)
                assert found.result() and found.result()["status"] == "cancelled", found
            # A task belongs to its client, and its id cannot be changed.
            forged = {"taskId": about["taskId"][:-2] + "AA"}
            refused = client.request(other, "tasks/get", forged)
            assert refused.messages()[0]["error"]["code"] == -32602, refused


def large_results_without_sessions(machine):
    """The whole of a large result is read through every replica."""
    ports = [replica.port for replica in machine.replicas]
    client = Sessionless({})
    for number, first in enumerate(ports):
        answer = client.call(first, "run", {"token": f"large-{number}", "size": 100_000})
        uri = re.search(rb"mcpvisor://results/[0-9a-f-]+", answer.body)
        assert uri and len(answer.body) < 20_000, answer
        for port in ports:
            whole = client.request(port, "resources/read", {"uri": uri[0].decode()})
            assert whole.result() and len(whole.body) > 100_000, whole


def channels_of_http_sse(machine):
    """Messages of a client of HTTP+SSE are taken by every replica, and its stream continues anywhere."""
    ports = [replica.port for replica in machine.replicas]
    for number, first in enumerate(ports):
        channel = Channel(first)
        channel.initialize(ports[number - 1])
        for count, port in enumerate(ports * 2 + [machine.balancer.port] * 3):
            token = f"sse-{number}-{count}"
            answer = channel.request(port, "tools/call", Session.tool("run", {"token": token}))
            assert answer["result"]["content"][0]["text"] == token, answer
        channel.stream.close()
        other = ports[number - 1]
        resumed = Channel(other, channel.last)
        assert resumed.path == channel.path, resumed.path
        resumed.ids = channel.ids
        token = Session.tool("run", {"token": f"resumed-{number}"})
        answer = resumed.request(first, "tools/call", token)
        assert "result" in answer, answer
        resumed.stream.close()
        forged = resumed.path[:-1] + ("0" if resumed.path[-1] != "0" else "1")
        resumed.path = forged
        assert resumed.send(other, {"id": 1, "method": "ping"}).status == 404


def owners_of_states_and_channels_are_lost(machine):
    """A parked call ends with its replica and is never run again; a channel's session continues."""
    lost, one, two = machine.replicas
    client = Sessionless({"elicitation": {"form": {}}})
    arguments = {"token": "parked"}
    asked = client.call(lost.port, "ask", arguments).result()
    channel = Channel(one.port)
    channel.initialize(one.port)
    moved = Channel(lost.port)
    moved.initialize(two.port)
    lost.kill()
    try:
        for port in (one.port, two.port, machine.balancer.port):
            answer = client.answered(port, "ask", arguments, asked, ADA)
            if answer.status != 502 or answer.messages():
                assert answer.code() == "replica_lost", answer
            assert answer.seconds < HANG_SECONDS, answer
        assert machine.events().count(("ran", "parked")) == 1
        moved.stream.close()
        again = Channel(two.port, moved.last)
        assert again.path == moved.path
        again.ids = moved.ids
        for number, (whose, port) in enumerate([(again, one.port), (again, two.port), (channel, two.port)]):
            call = Session.tool("run", {"token": f"after-{number}"})
            answer = whose.request(port, "tools/call", call)
            assert "result" in answer, answer
    finally:
        lost.start()
        lost.wait_until_ready()
    # Its next process has the number, but not the call.
    answer = client.answered(one.port, "ask", arguments, asked, ADA)
    assert answer.code() in ("server_lost", "replica_lost"), answer
    assert machine.events().count(("ran", "parked")) == 1


def forged_headers_and_ids(machine):
    """Nothing that a client sends makes a replica believe it."""
    one, two, _ = (replica.port for replica in machine.replicas)
    session = Session(one)
    headers = session.headers
    session.headers = lambda: headers() | {
        "mcpvisor-replica": "1.1",
        "mcpvisor-hops": "1",
        "mcpvisor-take": "1",
        "mcpvisor-client": "192.0.2.1",
        "mcpvisor-principal": "cm9vdA",
    }
    for port in (one, two):
        answer = session.call(port, "run", {"token": f"forged-{port}"})
        assert answer.result(), answer
    # An id with a wrong code is unknown everywhere, and the engine is not asked for it.
    text = session.id
    last = "0" if text[-1] != "0" else "1"
    session.id = text[:-1] + last
    for port in (one, two):
        answer = session.call(port, "run", {"token": "forged"})
        assert answer.status == 404, answer
        assert answer.seconds < 1, answer


def killed_owners(machine):
    """Killed replicas lose the calls in flight and nothing else."""
    with Load(machine.balancer.port, 24, "kill") as load:
        for replica in machine.replicas:
            time.sleep(2)
            replica.kill()
            time.sleep(7)
            replica.start()
            replica.wait_until_ready()
        time.sleep(2)
        before = dict(load.outcomes)
        time.sleep(2)
        assert load.outcomes["ok"] > before["ok"], "no call works any more"
    print("  ", load.summary())
    assert not load.wrong, load.wrong[:3]
    assert load.slowest < HANG_SECONDS, load.summary()
    # One call of each session at most per kill.
    assert len(load.lost) <= 3 * len(load.sessions), load.summary()
    check_runs(machine, [load])
    for session in load.sessions:
        answer = session.call(machine.balancer.port, "run", {"token": f"end-{session.id}"})
        assert answer.result(), answer


def stopped_replicas(machine):
    """An orderly restart of each replica fails no request that it has accepted."""
    with Load(machine.balancer.port, 12, "stop", ms=100) as load:
        for replica in machine.replicas:
            time.sleep(1)
            replica.terminate()
            replica.wait_for_end()
            replica.start()
            replica.wait_until_ready()
        time.sleep(1)
    print("  ", load.summary())
    assert set(load.outcomes) <= {"ok", "retry", "balancer"}, (load.summary(), load.wrong[:3])
    # A connection that the kernel has accepted, but the replica has not, is reset when the socket closes.
    assert load.outcomes["balancer"] <= len(machine.replicas), load.summary()
    check_runs(machine, [load])


def frozen_owner(machine):
    """A replica that is frozen loses its sessions, and ends its copies when it wakes."""
    frozen, other, _ = machine.replicas
    with Load(other.port, 12, "frozen", ms=100, opened_at=frozen.port) as load:
        time.sleep(1)
        frozen.process.send_signal(signal.SIGSTOP)
        time.sleep(14)
        before = dict(load.outcomes)
        time.sleep(2)
        assert load.outcomes["ok"] > before["ok"], "no call works any more"
        frozen.process.send_signal(signal.SIGCONT)
        time.sleep(3)
        for session in load.sessions:
            answer = session.call(frozen.port, "run", {"token": f"woken-{session.id}"})
            assert answer.result(), answer
    print("  ", load.summary())
    assert set(load.outcomes) <= {"ok", "retry", "replica_lost"}, (load.summary(), load.wrong[:3])
    assert load.slowest < HANG_SECONDS, load.summary()
    assert load.outcomes["replica_lost"] <= len(load.sessions), load.summary()
    check_runs(machine, [load])


def engine_away(machine):
    """Calls and new sessions do not need the engine; it gets everything back when it returns."""
    port = machine.balancer.port
    with Load(port, 12, "engine") as load:
        time.sleep(1)
        machine.engine.kill()
        begun = time.monotonic()
        opened = []
        while time.monotonic() - begun < 20:
            opened.append(Session(port))
            time.sleep(2)
        during = load.summary()
        machine.engine.start()
        # Beats find the engine, and the owners write their sessions again.
        time.sleep(6)
    print("  ", load.summary())
    assert set(load.outcomes) <= {"ok", "retry"}, (during, load.wrong[:3])
    check_runs(machine, [load])
    machine.replicas[0].kill()
    try:
        for session in load.sessions + opened:
            answer = session.call(port, "run", {"token": f"back-{session.id}"})
            assert answer.result(), answer
    finally:
        machine.replicas[0].start()
        machine.replicas[0].wait_until_ready()


def planned_fail_over(machine):
    """Connections lead to the former primary for seconds, but nothing that is written there is lost."""
    here = machine.here / "watched"
    here.mkdir()
    watched = Machine(machine.program, here, Sentinel(here))
    try:
        port, opened = watched.balancer.port, []
        with Load(port, 12, "failover") as load:
            time.sleep(1)
            watched.engine.fail_over()
            begun = time.monotonic()
            while time.monotonic() - begun < 12:
                opened.append(Session(port))
                time.sleep(0.5)
        print("  ", load.summary())
        assert set(load.outcomes) <= {"ok", "retry"}, (load.summary(), load.wrong[:3])
        check_runs(watched, [load])
        watched.engine.first.kill()
        watched.replicas[0].kill()
        for session in load.sessions + opened:
            token = f"moved-{session.id}"
            answer = retried(lambda: session.call(watched.replicas[1].port, "run", {"token": token}))
            assert answer.result(), answer
    finally:
        watched.stop()
    assert not watched.panics(), f"panicked: {watched.panics()}"


CHECKS = [
    sessions_through_any_replica,
    progress_cancel_and_questions,
    forged_headers_and_ids,
    questions_without_sessions,
    states_that_any_replica_finishes,
    tasks_without_sessions,
    large_results_without_sessions,
    channels_of_http_sse,
    owners_of_states_and_channels_are_lost,
    killed_owners,
    stopped_replicas,
    frozen_owner,
    engine_away,
    planned_fail_over,
]


def main(program, *wanted):
    with tempfile.TemporaryDirectory() as here:
        machine = Machine(program, Path(here), Engine())
        try:
            for check in CHECKS:
                if wanted and check.__name__ not in wanted:
                    continue
                begun = time.monotonic()
                check(machine)
                print(f"{check.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        except BaseException:
            for replica in machine.replicas:
                print(f"--- {replica.name}\n{replica.log.read_text()[-4000:]}", file=sys.stderr)
            raise
        finally:
            machine.stop()
        assert not machine.panics(), f"panicked: {machine.panics()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
