"""A headless Chromium, driven through its pipe: real pointers and keys, and everything that it says or asks for."""

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 300
PLACE = "import os, sys; [os.dup2(int(sys.argv[i]), 2 + i) for i in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"


def find_chromium():
    """The path of a browser, None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page at a time; ``complaints`` and ``requests`` are of all since it was opened."""

    def __init__(self, path, profile):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # The browser reads its commands from 3 and answers on 4: they are moved there from where nothing else is.
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD, 20) for each in (theirs_in, theirs_out)]
        command = [
            sys.executable, "-c", PLACE, *map(str, moved),
            path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={profile}",
        ]  # fmt: skip
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, pass_fds=moved, **quiet)
        for each in (theirs_in, theirs_out, *moved):
            os.close(each)
        self.incoming, self.outgoing = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self.numbers, self.unread, self.session = itertools.count(1), b"", None
        self.complaints, self.requests = [], []

    def ask(self, method, **parameters):
        """Send a command and wait for its answer."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.outgoing.write(json.dumps(message).encode() + b"\0")
        self.outgoing.flush()
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def open(self, path, width=1280, height=900, media=(), scripts=True):
        """Show a file; everything that goes wrong on the way is a complaint."""
        if self.session is None:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        self.complaints, self.requests = [], []
        touch = width < 700
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=touch, maxTouchPoints=2)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in media])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.ask("Page.navigate", url=path.as_uri())
        self.wait('document.readyState === "complete"')

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression):
        """Until it is true."""
        end = time.monotonic() + SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"not within {SECONDS} s: {expression}"
            time.sleep(0.05)

    def box(self, selector):
        """Left, top, width and height of an element, scrolled into view."""
        return self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const b = e.getBoundingClientRect();"
            f" return [b.left, b.top, b.width, b.height] }})(document.querySelector({selector!r}))"
        )

    def mouse(self, kind, x, y, **more):
        """A real event of the mouse: mouseMoved, mousePressed, mouseReleased."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start, end, y):
        """The left button from one place to another."""
        held = {"button": "left", "clickCount": 1}
        self.mouse("mouseMoved", start, y)
        self.mouse("mousePressed", start, y, buttons=1, **held)
        for step in range(1, 6):
            self.mouse("mouseMoved", start + step * (end - start) / 5, y, buttons=1, button="left")
        self.mouse("mouseReleased", end, y, **held)

    def pinch(self, starts, ends, y):
        """Two fingers from two places to two others."""

        def fingers(share):
            ways = enumerate(zip(starts, ends, strict=True))
            return [{"x": a + share * (b - a), "y": y, "id": i} for i, (a, b) in ways]

        self.ask("Input.dispatchTouchEvent", type="touchStart", touchPoints=fingers(0))
        for step in range(1, 6):
            self.ask("Input.dispatchTouchEvent", type="touchMove", touchPoints=fingers(step / 5))
        self.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def key(self, key, text=""):
        """A key, pressed and let go."""
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def pdf(self):
        """The page as it is printed."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])

    def close(self):
        self.outgoing.close()
        self.incoming.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _read(self):
        while b"\0" not in self.unread:
            part = self.incoming.read1(1 << 20)
            assert part, "the browser has gone"
            self.unread += part
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, said = event.get("method"), event.get("params", {})
        if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.complaints.append(said)
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
