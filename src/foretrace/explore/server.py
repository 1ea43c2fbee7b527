"""`ExploreServer`: the page and its answers, on this machine alone and behind a token."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from threading import Lock, Thread
from typing import Any

from foretrace.base import MissingExtraError, OutputError
from foretrace.explore.explorer import Explorer

_HERE = "127.0.0.1"
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class ExploreServer:
    """A server of one explorer; whoever does not know the token gets nothing."""

    explorer: Explorer
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[tuple[str, Any]]:
        """The address of the page, and the server; it listens on the loopback device alone.

        Args:
            port: to listen at; 0: any that is free.

        Raises:
            MissingExtraError: if starlette or uvicorn are not installed.
            OutputError: if the port is taken.
        """
        try:
            import uvicorn  # an extra, needed by nothing else
        except ImportError:
            raise _missing() from None
        listening = socket.socket()
        try:
            listening.bind((_HERE, port))
            listening.listen()  # whoever asks before the server runs waits for it
        except OSError as err:
            raise OutputError(
                f"port {port} of {_HERE} cannot be listened at ({err.strerror}): take another "
                "(--port), or none for any that is free"
            ) from None
        with listening:
            at = f"http://{_HERE}:{listening.getsockname()[1]}/{self.token}/"
            config = uvicorn.Config(self.application(), log_level="warning", access_log=False)
            server = uvicorn.Server(config)
            thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            try:
                yield at, thread
            finally:
                server.should_exit = True
                thread.join(timeout=5)

    def application(self) -> Any:
        """The page and its answers as an ASGI application.

        Raises:
            MissingExtraError: if starlette is not installed.
        """
        try:
            # an extra, needed by nothing else
            from starlette.applications import Starlette
            from starlette.middleware import Middleware
            from starlette.middleware.trustedhost import TrustedHostMiddleware
            from starlette.requests import Request
            from starlette.responses import HTMLResponse, JSONResponse, Response
            from starlette.routing import Route
        except ImportError:
            raise _missing() from None
        page, one_at_a_time = self.page(), Lock()

        def is_known(request: Request) -> bool:
            return secrets.compare_digest(str(request.path_params["token"]), self.token)

        def root(request: Request) -> Response:
            if not is_known(request):
                return Response(status_code=404)
            return HTMLResponse(page, headers=_HEADERS)

        def step(request: Request) -> Response:
            if not is_known(request):
                return Response(status_code=404)
            with one_at_a_time:
                found = self.explorer.answer(dict(request.query_params))
            return JSONResponse(found, headers=_HEADERS)

        routes = [Route("/{token}/", root), Route("/{token}/step", step)]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[_HERE, "localhost"])
        return Starlette(routes=routes, middleware=[hosts])

    def page(self) -> str:
        """The page; it asks for nothing but answers."""
        text = (files("foretrace.explore") / "page.html").read_text(encoding="utf-8")
        about = {
            "model": self.explorer.model.name,
            "machine": self.explorer.machine.name,
            "sliders": [one.as_json() for one in self.explorer.sliders],
        }
        told = json.dumps(about).replace("<", "\\u003c")
        title = escape(f"{self.explorer.model.name} on {self.explorer.machine.name}")
        return text.replace("{{title}}", title).replace("{{about}}", told)


def _missing() -> MissingExtraError:
    return MissingExtraError(
        "`foretrace explore` needs starlette and uvicorn: install them with "
        "pip install 'foretrace[explore]'"
    )
