"""A headless Chromium, driven by its DevTools protocol over a pair of pipes: what a person does at a page, and what the page complains of.

Only real keys and clicks of the mouse: what cannot be reached by them fails. Nothing waits for a time: what a test expects has to come true.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from lab import DEADLINE

KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowDown": (40, ""), "Escape": (27, "")}
CENTRE = """
(() => {
  if (document.readyState !== "complete") return null;  // the style can still move it
  const found = [...document.querySelectorAll(%s)].filter((one) => one.checkVisibility() && one.textContent.includes(%s));
  if (found.length === 0) return null;
  found[0].scrollIntoView({ block: "center" });
  const box = found[0].getClientRects()[0];
  return found[0].disabled ? null : [box.x + box.width / 2, box.y + box.height / 2];
})()
"""


class Browser:
    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        assert program, "there is no Chromium: `make setup` brings one"
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        (theirs, self._out), (self._in, ours) = os.pipe(), os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
                 "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}"]
        # It reads from 3 and writes to 4.
        script = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, program, *flags], pass_fds=(theirs, ours), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self._rest, self._last, self._pages = b"", 0, {}

    def page(self, url, user=None, password=None):
        """A window that shares nothing with others. Whoever asks for a login gets this one, once each time."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context, (user, password))
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.call("Fetch.enable", handleAuthRequests=True)
        page.go(url)
        return page

    def call(self, method, session=None, **parameters):
        number = self.send(method, session, **parameters)
        deadline = time.monotonic() + DEADLINE
        while True:
            said = self._read(deadline)
            if said.get("id") == number:
                if "error" in said:
                    raise Refused(said["error"]["message"])
                return said["result"]
            self._take(said)

    def send(self, method, session=None, **parameters):
        self._last += 1
        said = {"id": self._last, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(said).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        return self._last

    def work(self):
        """Takes what has come, and waits a moment if nothing has."""
        if b"\0" in self._rest or select.select([self._in], [], [], 0.02)[0]:
            self._take(self._read(time.monotonic() + DEADLINE))

    def _take(self, said):
        if page := self._pages.get(said.get("sessionId")):
            page.hear(said.get("method", ""), said.get("params", {}))

    def _read(self, deadline):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has ended"
            self._rest += more
        said, _, self._rest = self._rest.partition(b"\0")
        return json.loads(said)

    def close(self):
        self.process.terminate()
        self.process.wait(DEADLINE)
        os.close(self._in)
        os.close(self._out)
        self.folder.cleanup()


class Refused(Exception):
    """What the browser says no to: often since the page has just gone."""


class Page:
    def __init__(self, browser, session, context, login):
        self.browser, self.session, self.context, self.login = browser, session, context, login
        self.asked = set()
        self.loaded = 0
        self.problems = []
        """Of the console: errors, what scripts threw, what the policy of the page forbade. And every dialog."""
        self.requests = []
        """Each method and path."""

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def hear(self, event, said):
        if event == "Page.loadEventFired":
            self.loaded += 1
        elif event == "Runtime.exceptionThrown":
            self.problems.append(said["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.problems.append(str(said["args"]))
        elif event == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.problems.append(said["entry"]["text"])
        elif event == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {said['message']}")
            self.browser.send("Page.handleJavaScriptDialog", self.session, accept=False)
        elif event == "Fetch.requestPaused":
            if "responseStatusCode" not in said:
                self.requests.append((said["request"]["method"], said["request"]["url"].split("/", 3)[-1]))
            self.browser.send("Fetch.continueRequest", self.session, requestId=said["requestId"])
        elif event == "Fetch.authRequired":
            # Asked again, a person would give up.
            again = said["requestId"] in self.asked or self.login[0] is None
            self.asked.add(said["requestId"])
            login = {"response": "CancelAuth"} if again else {"response": "ProvideCredentials", "username": self.login[0], "password": self.login[1]}
            self.browser.send("Fetch.continueWithAuth", self.session, requestId=said["requestId"], authChallengeResponse=login)

    # === what a person does

    def go(self, url):
        before = self.loaded
        self.call("Page.navigate", url=url)
        self.until(lambda: self.loaded > before, url)

    def click(self, selector, text=""):
        """Clicks on the first that is visible, is not disabled, and has this text."""
        script = CENTRE % (json.dumps(selector), json.dumps(text))
        x, y = self.until(lambda: self.run(script), f"{selector} with {text!r}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        self.click(selector)
        self.type(text)

    def press(self, key, *, shift=False):
        code, text = KEYS[key]
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def tab_to(self, selector, text="", most=80):
        """Presses Tab until what has the focus is this."""
        test = f"(() => {{ const on = document.activeElement; return on.matches({json.dumps(selector)}) && on.textContent.includes({json.dumps(text)}) }})()"
        for _ in range(most):
            self.press("Tab")
            if self.run(test):
                return
        raise AssertionError(f"{selector} with {text!r} is not among {most} stops of Tab; the last is {self.run('document.activeElement.outerHTML')}")

    # === what there is to see

    def run(self, script):
        """The value of an expression; none while there is no page."""
        try:
            result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        except Refused:
            return None
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self, selector="main"):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText") or ""

    def until(self, condition, what):
        deadline = time.monotonic() + DEADLINE
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what} at {self.run('location.href')}: {self.text('body')[:2000]}\n{self.problems}"
            self.browser.work()
        return found

    def reads(self, *texts, selector="main"):
        """Until these texts are there."""
        self.until(lambda: all(text in (shown := self.text(selector)) for text in texts), f"{texts}")

    def looks(self, width, height=900, scheme="light"):
        """The size of the window, and what the person prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, name):
        """A picture of the whole page, where DLX_TEST_PICTURES says."""
        if folder := os.environ.get("DLX_TEST_PICTURES"):
            os.makedirs(folder, exist_ok=True)
            data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            with open(os.path.join(folder, f"{name}.png"), "wb") as file:
                file.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.browser._pages.pop(self.session)
