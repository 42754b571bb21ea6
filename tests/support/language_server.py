"""A client of pyright's language server: what an editor asks while somebody types."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self


class LanguageServer:
    """Language server of pyright with one open file.

    Args:
        root: folder of the project.
        text: content of the file.
    """

    def __init__(self, root: Path, text: str) -> None:
        command = [str(Path(sys.executable).with_name("pyright-langserver")), "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        self._numbers = 0
        self._uri = (root / "typed_in_an_editor.py").as_uri()
        plain = {"contentFormat": ["plaintext"]}
        self.ask(
            "initialize",
            rootUri=root.as_uri(),
            workspaceFolders=[{"uri": root.as_uri(), "name": "project"}],
            capabilities={"textDocument": {"hover": plain}},
        )
        self._send(method="initialized", params={})
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": text}
        self._send(method="textDocument/didOpen", params={"textDocument": document})

    def at(self, question: str, line: int, character: int) -> Any:
        """Ask about a place of the file: `completion`, `hover`, `signatureHelp`."""
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{question}", textDocument={"uri": self._uri}, position=place)

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return its result. Questions of the server are answered on the way."""
        self._numbers += 1
        self._send(id=self._numbers, method=method, params=params)
        while True:
            message = self._read()
            if "method" not in message and message.get("id") == self._numbers:
                return message["result"]
            if "method" in message and "id" in message:
                items = message["params"].get("items")
                self._send(id=message["id"], result=items and [{}] * len(items))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b": ")
            if name == b"Content-Length":
                size = int(value)
        message: dict[str, Any] = json.loads(self._process.stdout.read(size))
        return message
