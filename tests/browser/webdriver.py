"""A headless Chromium through chromedriver, by the W3C WebDriver protocol and the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
KEYS = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "home": "\ue011", "end": "\ue010"}


class Browser:
    """One browser with a fresh profile in `folder`; use it as a context manager."""

    def __init__(self, folder: Path):
        assert CHROMIUM and CHROMEDRIVER
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._server = subprocess.Popen(
            [CHROMEDRIVER, f"--port={port}", "--silent"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        self._base = f"http://127.0.0.1:{port}/session"
        self._session = ""
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        try:
            deadline = time.monotonic() + 20
            while True:
                try:
                    self._session = "/" + self._call("POST", "", {"capabilities": wanted})["sessionId"]
                    break
                except urllib.error.URLError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        except BaseException:
            self._server.terminate()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._server.terminate()
            self._server.wait(10)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self._base + self._session + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file by its file:// address."""
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": page.absolute().as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value a script body returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def keys(self, *names: str) -> None:
        """Press keys, wherever the focus is."""
        actions = [{"type": kind, "value": KEYS.get(name, name)} for name in names for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self) -> list[str]:
        """Messages of the console since the last call."""
        return [f"{entry['level']} {entry['message']}" for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def emulate(self, width: int, height: int, *, dark: bool = False, scale: float = 1, mobile: bool = False) -> None:
        """Size of the page, its colour scheme, pixels per CSS pixel."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        scheme = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._cdp("Emulation.setDeviceMetricsOverride", size)
        self._cdp("Emulation.setEmulatedMedia", {"features": scheme})

    def _cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))
