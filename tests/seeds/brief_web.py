"""The daily brief's web application called in this process, and where its services are found."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import outlast
from daily_brief import web
from daily_brief.web import Web

EXAMPLES = Path(web.__file__).parents[1]
FOUND_IN = os.pathsep.join([str(Path(outlast.__file__).parents[1]), str(EXAMPLES)])
SINGLE = ("--instance-id", "brief-worker")


def call(
    app: Any, method: str, path: str, headers: dict[str, str] | None = None, **form: str
) -> tuple[int, dict[str, str], str]:
    """The application called as a server would, and held to WSGI's rules."""
    body = urlencode(form).encode()
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": ""}
    setup_testing_defaults(environ)
    environ |= {
        "QUERY_STRING": "",
        "wsgi.input": BytesIO(body),
        "CONTENT_LENGTH": str(len(body)),
        **(headers or {}),
    }
    got: list[Any] = []
    answer = validator(app)(environ, lambda status, head, _=None: got.extend([status, head]))
    try:
        text = b"".join(answer).decode()
    finally:
        answer.close()
        if isinstance(app, Web):
            app.close()
    return int(got[0].split()[0]), dict(got[1]), text
