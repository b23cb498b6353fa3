"""The programs in Python of the page about clients, each with its version of the SDK, against a gateway.

    documented_programs.py TARGET      the target directory, with the environments that run.sh made
"""
import json, os, pathlib, re, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:12006/mcp"
# In the order in which they stand there.
VERSIONS = ["2.3.0", "1.30.0"]


def address(directory, gateway):
    """Waits until the gateway has written where it listens."""
    run = pathlib.Path(directory, ".mcpvisor", "run.json")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and gateway.poll() is None:
        try:
            return json.loads(run.read_text())["listen"]
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.02)
    raise SystemExit("the gateway does not serve")


def main(target):
    page = (ROOT / "docs/guides/connect-a-client.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M)
    assert len(programs) == len(VERSIONS), len(programs)
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "MCPVISOR_LISTEN": "127.0.0.1:0"}
        binary = os.path.join(os.path.abspath(target), "debug", "mcpvisor")
        gateway = subprocess.Popen([binary], cwd=directory, env=environment,
                                   stderr=subprocess.DEVNULL)
        try:
            url = "http://%s/mcp" % address(directory, gateway)
            for version, program in zip(VERSIONS, programs):
                assert URL in program, program
                python = os.path.join(target, "peers", "mcp-" + version, "bin", "python")
                ran = subprocess.run([python, "-c", program.replace(URL, url)], timeout=60,
                                     capture_output=True, text=True)
                assert "example__add" in ran.stdout, ran
                print("ok: the documented program with version %s of the SDK" % version)
        finally:
            gateway.terminate()
            gateway.wait()


if __name__ == "__main__":
    main(sys.argv[1])
