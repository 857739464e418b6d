"""A real browser, driven through Chromium's own protocol over a pair of pipes: no driver, no port, no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

CHROMIUM = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
OPTIONS = """--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"""
# Chromium reads from 3 and writes to 4, whatever numbers the pipes have; high numbers first, as ours may be 4 and 3.
START = """import os, sys
os.dup2(int(sys.argv[1]), 100), os.dup2(int(sys.argv[2]), 101)
os.dup2(100, 3), os.dup2(101, 4)
os.execv(sys.argv[3], sys.argv[3:])"""
PATIENCE = 60.0  # seconds for an answer


class Browser:
    """One page of a browser. What the page logs, and what it throws, is kept in `complaints`."""

    def __init__(self, process, write, read):
        self.process, self.write, self.read = process, write, read
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints, self.loaded = [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        os.write(
            self.write,
            json.dumps(
                {**message, **({"sessionId": self.session} if self.session else {})}
            ).encode()
            + b"\0",
        )
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer}"
                return answer["result"]

    def _message(self):
        limit = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            assert select.select(
                [self.read], [], [], max(0.0, limit - time.monotonic())
            )[0], "chromium does not answer"
            chunk = os.read(self.read, 1 << 20)
            assert chunk, "chromium has ended"
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self._notice(message.get("method"), message.get("params", {}))
        return message

    def _notice(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(
                str([value.get("value") for value in params["args"]])
            )
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])

    def open(
        self, path, *, width=1280, height=900, dark=False, scripts=True, touch=False
    ):
        screen = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        scheme = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        ]
        self.call("Emulation.setEmulatedMedia", media="", features=scheme)
        self.loaded = False
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for_load()

    def wait_for_load(self):
        while not self.loaded:
            self._message()

    def value(self, expression):
        """What a JavaScript expression is, through JSON."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition):
        """Wait for a JavaScript condition; false if it does not come true."""
        look = (
            f"const look = () => ({condition}) ? done(true) : "
            "Date.now() > limit ? done(false) : setTimeout(look, 20)"
        )
        return self.value(
            f"new Promise(done => {{ const limit = Date.now() + 10000; {look}; look(); }})"
        )

    def hover(self, x, y):
        for place in (x - 3, x):  # a pointer that comes from somewhere
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=place, y=y)

    def tap(self, x, y):
        self.call(
            "Input.dispatchTouchEvent",
            type="touchStart",
            touchPoints=[{"x": x, "y": y}],
        )
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def screenshot(self, path):
        made = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser(profile):
    """A browser with a profile of its own, ended with everything it started."""
    to_chromium, ours = os.pipe()
    from_chromium, theirs = os.pipe()
    words = [
        sys.executable,
        "-c",
        START,
        str(to_chromium),
        str(theirs),
        CHROMIUM,
        *OPTIONS.split(),
    ]
    words.append(f"--user-data-dir={profile}")
    process = subprocess.Popen(
        words,
        pass_fds=(to_chromium, theirs),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_chromium)
    os.close(theirs)
    try:
        page = Browser(process, ours, from_chromium)
        yield page
        page.session = None
        page.call("Browser.close")
    finally:
        os.close(ours)  # chromium ends when its pipe does
        os.close(from_chromium)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
