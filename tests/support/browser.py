"""Headless Chromium, spoken to by its DevTools protocol, for tests of pages."""

import base64
import json
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from support.programs import program
from support.wait import wait_until

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ANSWER_S = 60.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowDown": 40, "ArrowUp": 38}
_TEXT = {"Enter": "\r", " ": " "}


class PageError(AssertionError):
    """A script in the page has failed."""


class Page:
    """A tab with the only page of a browser.

    Attributes:
        troubles: errors on the console of the page, exceptions of its scripts, and requests that failed, so far.
        loaded: addresses that the page has asked for.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = count(1)
        self.troubles: list[str] = []
        self.loaded: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return the result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(_ANSWER_S))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self._hear(message)

    def open(self, url: str, wanted: str = "document.readyState === 'complete'") -> None:
        """Go to an address, and wait until an expression of JavaScript is true."""
        self.send("Page.navigate", url=url)
        self.until(f"location.href !== 'about:blank' && {wanted}")

    def leave(self) -> None:
        """Leave the page, and forget its troubles and what it has asked for, up to its last request."""
        self.send("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.troubles.clear()
        self.loaded.clear()

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, for a promise its result."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise PageError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of the first element that a selector finds, empty without one."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def until(self, expression: str, timeout_s: float = 120) -> None:
        """Wait until an expression of JavaScript is true."""
        wait_until(lambda: self._holds(expression), expression, timeout_s)

    def press(self, *keys: str, with_control: bool = False) -> None:
        """Press and release keys, by their names in JavaScript."""
        for key in keys:
            named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
            named["modifiers"] = 2 if with_control else 0
            text = {"text": _TEXT[key]} if key in _TEXT else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", **named, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **named)

    def type(self, text: str) -> None:
        """Write a text where the focus is."""
        self.send("Input.insertText", text=text)

    def resize(self, width: int, height: int = 900, scale: float = 1) -> None:
        """Make the page as wide and as high as a screen, in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def prefer(self, theme: str) -> None:
        """Let the person prefer `light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def picture(self, whole: bool = True) -> bytes:
        """Return the page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.run(f"!!({expression})"))
        except AssertionError:  # the page is going, and the next one is not there
            return False

    def _hear(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.troubles.append(f"console.{params['type']}: {params['args']}")
            case "Runtime.exceptionThrown":
                self.troubles.append(f"exception: {params['exceptionDetails']}")
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.troubles.append(f"log: {params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.loaded.append(params["request"]["url"])
            case _:
                pass


@contextmanager
def browser(home: Path) -> Generator[Page]:
    """A browser for a block, with an empty profile in a directory of its own.

    The test is skipped where there is no Chromium, and fails in CI.
    """
    profile = home / "profile"
    command = [program("chromium"), *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_address(profile / "DevToolsActivePort"), max_size=None, ping_interval=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(120)


def _address(told: Path) -> str:
    """Return the address of the browser's only tab."""
    import urllib.request

    def lines() -> list[str]:
        return told.read_text().split() if told.exists() else []

    port = wait_until(lines, "the browser tells its port")[0]

    def tabs() -> Iterator[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_ANSWER_S) as response:
            for tab in json.load(response):
                if tab["type"] == "page":
                    yield str(tab["webSocketDebuggerUrl"])

    return wait_until(lambda: next(tabs(), None), "the browser has a tab") or ""
