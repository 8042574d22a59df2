"""Runs what a page computes by Node.js, and a page in a headless Chromium."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NODE, BROWSER = shutil.which("node"), shutil.which("chromium")
_RUNNER = """
const { readFileSync } = require("fs");
const code = (text) => text.match(/<script>\\n([^]*?)const SERVER/)[1];
const block = (text, id) => text.match(new RegExp(`id="${id}">([^]*?)</script>`))[1];
const asked = JSON.parse(readFileSync(0, "utf8"));
(async () => {
  const found = [];
  for (const { page, given, ask } of asked) {
    const text = readFileSync(page, "utf8");
    const body = `${code(text)}; return (async () => { ${ask} })()`;
    const use = new Function("text", "block", "given", body);
    found.push(await use(text, block, given));
  }
  console.log(JSON.stringify(found, (_, v) => (ArrayBuffer.isView(v) ? [...v] : v)));
})();
"""
ANSWERS = """
const model = JSON.parse(block(text, "model"));
const arrays = await unpacked(model.arrays, block(text, "weights"));
return given.map((raw) => [...run(model, arrays, raw)].at(-1)[1].data);
"""


def by_node(asked: list[dict[str, Any]]) -> list[Any]:
    """What ``ask`` returns, a function's body that knows the functions of a ``page``; ``given``."""
    words = [str(NODE), "-e", _RUNNER]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def answered_by_node(asked: list[tuple[Path, Any]]) -> list[Any]:
    """What pages answer to samples, (N, C, H, W) each."""
    rows = [(str(page), raw.reshape(len(raw), -1).tolist()) for page, raw in asked]
    return by_node([{"page": page, "given": given, "ask": ANSWERS} for page, given in rows])


class Tab:
    """A page in a browser, spoken to by the Chrome DevTools Protocol."""

    def __init__(self, write: Any, read: Any) -> None:
        self._write, self._read, self._id, self.requests = write, read, 0, list[str]()
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self.session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self(f"{domain}.enable")

    def call(self, method: str, params: dict[str, Any], **rest: Any) -> Any:
        self._id += 1
        message = {"id": self._id, "method": method, "params": params, **rest}
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            text = b"".join(iter(lambda: self._read.read(1), b"\0"))
            answer = json.loads(text)
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._id:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def __call__(self, method: str, **params: Any) -> Any:
        return self.call(method, params, sessionId=self.session)

    def open(self, page: Path) -> None:
        self.go(page.as_uri())

    def go(self, address: str) -> None:
        self("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, code: str) -> Any:
        answer = self("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, code: str) -> None:
        wait = "new Promise((d) => { const t = () => ((%s) ? d(1) : setTimeout(t, 20)); t(); })"
        self.value(wait % code)

    def choose(self, file: Path, selector: str = "#file") -> None:
        node = self("DOM.getDocument")["root"]["nodeId"]
        found = self("DOM.querySelector", nodeId=node, selector=selector)["nodeId"]
        self("DOM.setFileInputFiles", nodeId=found, files=[str(file)])

    def draw(self, selector: str, *strokes: list[tuple[float, float]]) -> None:
        """Strokes of the mouse between points of the element, from 0 to 1 each."""
        box = self.value(f"(({selector}).getBoundingClientRect()).toJSON()")
        at = [
            [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            for stroke in strokes
        ]
        for (begin, *rest), mouse in ((each, "Input.dispatchMouseEvent") for each in at):
            held: dict[str, Any] = {"button": "left", "clickCount": 1}
            self(mouse, type="mousePressed", x=begin[0], y=begin[1], **held)
            for x, y in rest:
                self(mouse, type="mouseMoved", x=x, y=y, buttons=1, button="left")
            self(mouse, type="mouseReleased", x=rest[-1][0], y=rest[-1][1], **held)

    def screenshot(self, path: Path, width: int, height: int, scheme: str = "light") -> None:
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            mobile=width < 600,
            deviceScaleFactor=1,
        )
        self(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.value("new Promise((d) => setTimeout(d, 400))")
        shot = self("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(shot))


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A tab of a new browser, whose files lie in ``folder``."""
    given, to = os.pipe()
    back, taken = os.pipe()

    def plumb() -> None:
        # Copies first: 3 or 4 may be one of them.
        copies = os.dup(given), os.dup(taken)
        for copy, to_be in zip(copies, (3, 4), strict=True):
            os.dup2(copy, to_be)

    words = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
    more = "--disable-background-networking --disable-component-update --remote-debugging-pipe"
    started = subprocess.Popen(
        [str(BROWSER), *words.split(), *more.split(), f"--user-data-dir={folder}", "about:blank"],
        preexec_fn=plumb,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(given)
    os.close(taken)
    with os.fdopen(to, "wb") as write, os.fdopen(back, "rb") as read:
        try:
            yield Tab(write, read)
        finally:
            started.terminate()
            started.wait(20)
