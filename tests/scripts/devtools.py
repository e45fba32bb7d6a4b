"""Drives a headless Chromium through its DevTools protocol, with only Python's own modules."""

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import time
import urllib.request


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class WebSocket:
    """A minimal client for text messages, for one trusted local peer."""

    def __init__(self, url):
        host, port, path = re.match(r"ws://([^:/]+):(\d+)(/.*)", url).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n")[0], head

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xfe, size) \
            if size < 65536 else struct.pack("!BBQ", 0x81, 0xff, size)
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def take(self, count):
        while len(self.buffer) < count:
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionError("the browser has closed the connection")
            self.buffer += part
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def receive(self):
        text = b""
        while True:
            first, size = struct.unpack("!BB", self.take(2))
            if size == 126:
                size = struct.unpack("!H", self.take(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self.take(8))[0]
            data = self.take(size)
            if first & 15 in (0, 1):
                text += data
                if first & 128:
                    return text.decode()


class Page:
    """A page in its own browser process."""

    def __init__(self, url, profile):
        self.process = subprocess.Popen(
            [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on ws://([^/]+)", line):
                break
        else:
            raise AssertionError("the browser did not start")
        with urllib.request.urlopen(f"http://{found.group(1)}/json/list", timeout=60) as answer:
            target = next(each for each in json.load(answer) if each["type"] == "page")
        self.socket = WebSocket(target["webSocketDebuggerUrl"])
        self.number, self.messages = 0, []
        for domain in ("Runtime", "Log", "Page"):
            self.call(domain + ".enable")
        self.call("Page.navigate", url=url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        self.socket.socket.close()

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.messages.append(message)
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def run(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return result["result"].get("value"), "exceptionDetails" not in result

    def wait(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(expression) == (True, True):
                return
            time.sleep(0.05)
        raise AssertionError(f"{expression} never held; the page says {self.run('document.body.innerText')[0]!r}")

    def point(self, selector, x, y):
        box = self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView();"
                       " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")[0]
        return {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}

    def mouse(self, kind, at, **more):
        self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at, **more)

    def click(self, selector):
        at = self.point(selector, 0.5, 0.5)
        self.mouse("mousePressed", at)
        self.mouse("mouseReleased", at)

    def type(self, selector, text):
        self.click(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).value = ''")
        self.call("Input.insertText", text=text)

    def drag(self, selector, begin, end, steps=10):
        self.mouse("mousePressed", self.point(selector, *begin))
        for i in range(1, steps + 1):
            part = i / steps
            self.mouse("mouseMoved", self.point(selector, *(a + (b - a) * part for a, b in zip(begin, end))), buttons=1)
        self.mouse("mouseReleased", self.point(selector, *end))

    def console(self):
        """The errors and warnings of the page, without advice to its author."""
        def level(each):
            return each["params"].get("entry", each["params"]).get("level", "error")
        return [each for each in self.messages if level(each) != "verbose" and "favicon" not in json.dumps(each)]
