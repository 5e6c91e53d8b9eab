"""`outlast health`: ask the probes of a worker, for example as the probe of a container."""

import asyncio
import json
from typing import Any, Final

import click

from outlast.cli.command import Exit, fail, output_command
from outlast.cli.output import CommandOutput
from outlast.worker.supervisor.probe_address import ProbeAddress, parse_address

TIMEOUT_S: Final = 5.0
"""Seconds for the whole answer."""

MAX_ANSWER_BYTES: Final = 65_536

MAX_REASON: Final = 200
"""Characters of a reason that are shown."""


@output_command("health")
@click.argument("address")
@click.option("--live", is_flag=True, help="Ask whether it is alive, not whether it is ready.")
def health_command(out: CommandOutput, /, address: str, live: bool) -> None:
    """Ask the worker at ADDRESS, which it was given as --health, whether it is ready.

    Exit 0 if it is; otherwise 1, and one line says what is wrong.
    """
    where, what = parse_address(address), "live" if live else "ready"
    try:
        answer = asyncio.run(_ask(where, "/healthz" if live else "/readyz"))
    except TimeoutError:
        fail(f"the worker at {where} does not answer", Exit.FAILED)
    except OSError as error:
        why = error.strerror or str(error)
        fail(f"no worker answers at {where}: {why}; was it started with --health?", Exit.FAILED)
    if answer is None or not isinstance(answer.get(what), bool):
        fail(f"what answers at {where} is not a worker", Exit.FAILED)
    if not answer[what]:
        why = f": {str(answer['reason'])[:MAX_REASON]}" if "reason" in answer else ""
        if out.as_json:
            out.record(answer)
        fail(f"the worker at {where} is not {what}{why}", Exit.FAILED)
    out.done(what, answer)


async def _ask(where: ProbeAddress, path: str) -> dict[str, Any] | None:
    """Return the JSON of the answer; None if it has none."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(where.host, where.port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
            answer = await _read(reader)
        finally:
            writer.close()
    try:
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


async def _read(reader: asyncio.StreamReader) -> bytes:
    answer = b""
    while len(answer) < MAX_ANSWER_BYTES and (more := await reader.read(MAX_ANSWER_BYTES)):
        answer += more
    return answer
