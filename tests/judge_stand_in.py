"""A stand-in for an OpenAI-compatible endpoint, or any JSON service: what it says is a function of what it gets."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """What came in, by path and body."""

    url: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def questions(self) -> list[str]:
        return [body["messages"][0]["content"] for _, body in self.requests]


class Status(Exception):
    """Answer with this status instead."""


@contextlib.contextmanager
def answering(answer: Callable[[str, Any], Any]) -> Iterator[Asked]:
    """A service that answers every POST with what `answer` makes of its path and its body."""
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.requests.append((self.path, body))
            asked.headers.append(dict(self.headers))
            try:
                status, document = 200, answer(self.path, body)
            except Status as error:
                status, document = error.args[0], {}
            reply = json.dumps(document).encode()
            with contextlib.suppress(OSError):  # whoever asked may have gone
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    asked.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judging(says: Callable[[dict[str, str]], str]) -> contextlib.AbstractContextManager[Asked]:
    """A model whose words are a function of the marked parts of the question, by their names."""

    def answer(path: str, body: Any) -> Any:
        return {"choices": [{"message": {"content": says(parts_of(body["messages"][0]["content"]))}}]}

    return answering(answer)


def parts_of(question: str) -> dict[str, str]:
    """What stands between the marks, by name."""
    mark = re.findall(r"===== end (#+) =====", question)[-1]
    _, *pieces = re.split(rf"===== ([\w ]+) {mark} =====", question)
    return {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
