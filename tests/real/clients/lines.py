"""A client is driven through lines of JSON on stdin, and answers each with one on stdout."""

import asyncio
import json
import sys

# The answer to every question.
ANSWER = {"name": "eva"}


def result(content, is_error):
    text = "\n".join(getattr(part, "text", "") for part in content)
    return {"text": text, "isError": bool(is_error)}


async def until_first_report(call):
    """Runs `call(on_progress)` until it reports progress, and then cancels it."""
    reported = asyncio.Event()

    async def on_progress(*_):
        reported.set()

    task = asyncio.create_task(call(on_progress))
    waiting = asyncio.create_task(reported.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
        return {"cancelled": False}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {"cancelled": True}


async def serve(run):
    """`run(action, name, arguments)` gives the reply."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            reply = await run(command["action"], command.get("name"), command.get("arguments"))
        except Exception as error:  # Whatever an SDK raises is told.
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)
