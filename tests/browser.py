"""A headless Chromium for page tests, controlled over a pipe, without a driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_PATIENCE_S = 60
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # a test may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_ALLOWED: tuple[str, ...] = ("file:", "about:", "data:")

# The browser reads from 3 and writes to 4. The pipes may have these numbers: move them first.
_CONNECT = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    """Return the path of an installed browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser that shows one page at a time; `problems` collects its errors and requests."""

    def __init__(self, path: str) -> None:
        self.problems: list[str] = []
        self._profile = tempfile.TemporaryDirectory(
            prefix="tidegraph-browser-", ignore_cleanup_errors=True
        )
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [path, *_OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CONNECT, str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self._allowed = _ALLOWED
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command, and search the messages before it for problems."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], _PATIENCE_S)[0]:
                raise RuntimeError(f"the browser has been silent for {_PATIENCE_S} s")
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("the browser has gone")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        method, details = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.problems.append(details["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = details["request"]["url"]
            if not url.startswith(self._allowed):
                self.problems.append(f"asks for {url}")
        return message

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file, or a page of a server, on a screen of this width.

        A page of a server may ask that server.
        """
        if isinstance(page, str):
            self._allowed = (*_ALLOWED, "/".join(page.split("/")[:3]) + "/")
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # nothing moves from a click
        self._ask("Emulation.setEmulatedMedia", features=[scheme, still])
        self._ask("Page.navigate", url=page if isinstance(page, str) else page.absolute().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str, patience_s: float = 20) -> Any:
        """Return the value of an expression once it is truthy."""
        deadline = time.monotonic() + patience_s
        while not (found := self.evaluate(expression)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{expression} is {found!r} after {patience_s} s")
            time.sleep(0.05)
        return found

    def click(self, selector: str) -> None:
        """Click on the middle of an element with the mouse."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self._ask("Input.dispatchMouseEvent", type=kind, **at)

    def type_in(self, text: str, *, submit: bool = False) -> None:
        """Type text into what was clicked on, and press Enter if wanted."""
        self._ask("Input.insertText", text=text)
        if submit:
            key = {"key": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            for kind in ("keyDown", "keyUp"):
                self._ask("Input.dispatchKeyEvent", type=kind, **key)

    def screenshot(self, path: Path, *, top: int = 0, height: int | None = None) -> None:
        """Write the page, or a part of it, as a PNG picture."""
        whole = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": whole["width"],
            "height": height or whole["height"],
            "scale": 1,
        }
        answer = self._ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self._ask("Page.printToPDF", printBackground=True)["data"])

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()
