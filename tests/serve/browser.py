"""A headless Chromium, driven by the DevTools protocol over a pair of pipes: no driver, no port."""

import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    " --disable-extensions --disable-background-networking --disable-component-update"
    " --hide-scrollbars --mute-audio --remote-debugging-pipe about:blank"
)
KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39}


class Browser:
    """One page of one browser; events of the page are kept in `events`."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        (read_here, self._write), (self._read, write_there) = os.pipe(), os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        self._pid = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, f"--user-data-dir={profile}", *FLAGS.split()],
            {**os.environ, "HOME": str(profile)},
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, null, stream) for stream in (1, 2)),
                # first out of the way, then to the numbers that Chromium expects
                (os.POSIX_SPAWN_DUP2, read_here, 103),
                (os.POSIX_SPAWN_DUP2, write_there, 104),
                (os.POSIX_SPAWN_DUP2, 103, 3),
                (os.POSIX_SPAWN_DUP2, 104, 4),
            ],
            setsid=True,
        )
        for end in (read_here, write_there, null):
            os.close(end)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._number, self._session = b"", 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # keys need a focused page

    def close(self) -> None:
        """End the browser and every process that it started."""
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **params: Any) -> Any:
        """The result of a DevTools command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], 20)[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self._read, 1 << 20)
            if not got:
                raise RuntimeError("the browser has ended")
            self._buffer += got
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        how = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        result = self.call("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:600])
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"!!({script})"):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}\non the page: {self.text()[:1500]}")
            time.sleep(0.02)

    def text(self, selector: str = "body") -> str:
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def texts(self, selector: str) -> list[str]:
        return self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText)"
        )

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def press(self, *keys: str) -> None:
        for key in keys:
            code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def tab_to(self, name: str) -> None:
        """Press Tab until the element with this id has the focus."""
        for _ in range(60):
            if self.run("document.activeElement.id") == name:
                return
            self.press("Tab")
        raise AssertionError(f"Tab never reaches {name}")

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window and the preferred colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
