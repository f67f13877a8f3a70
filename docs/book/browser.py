"""Opens each page of the book, and of rustdoc, in a real Chromium: no error on its console, nothing loaded from elsewhere; nothing of the
book is wider than a phone. Presses each button of the playground, and sends it what pages from elsewhere could.

    browser.py               all pages
    browser.py shots DIR     the book's pages and the playground as pictures, on a phone and on a screen, light and dark
    browser.py playground    the buttons
"""

import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from repository import DOCS, IMAGE, ROOT
from summary import pages

PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
SCREEN = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
# What reaches beyond this width, and isn't inside something of the page that scrolls by itself. What is around `main` scrolls, too, but
# there it is the whole page that the reader would move.
TOO_WIDE = """
const clips = e => ['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(e).overflowX);
const scrolls = e => e && e.tagName !== 'MAIN' && (clips(e) || scrolls(e.parentElement));
return [...document.querySelectorAll('main *')]
    .filter(e => e.getBoundingClientRect().right > arguments[0] + 1 && !scrolls(e.parentElement))
    .map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40));
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def served(folder):
    """Serves a folder on a free port, and says where."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def chromium():
    options = Options()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    # What a page loads from elsewhere is an error, with a network as without one.
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def errors(browser):
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def opened(browser, address):
    """Opens a page; what its console has to complain of, and the pictures that it doesn't show."""
    browser.get(address)
    blank = browser.execute_script("return [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.alt || i.src)")
    return errors(browser) + [f"a picture isn't shown: {picture}" for picture in blank]


def looked_up(browser, address, word):
    """Searches the book for a word; the titles that are found."""
    browser.get(f"{address}/introduction.html?search={word}")
    results = "return [...document.querySelectorAll('#mdbook-searchresults a, #searchresults a')].map(a => a.textContent)"
    return WebDriverWait(browser, 20).until(lambda browser: browser.execute_script(results))


def check(browser):
    wrong = []
    book = served(ROOT / "target" / "book" / "html")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    listed = [page.removesuffix(".md") + ".html" for page in pages()]
    diagrams = 0
    for page in listed:
        wrong += [f"{page}: {error}" for error in opened(browser, f"{book}/{page}")]
        wrong += [f"{page}: wider than a phone: {element}" for element in browser.execute_script(TOO_WIDE, PHONE["width"])]
        # mdBook has each image twice: on the page, and over it once it is clicked.
        diagrams += browser.execute_script("return document.querySelectorAll('img[src*=\"diagrams/\"]:not(.img-wrapper *)').length")
    assert looked_up(browser, book, "lease"), "the search finds nothing"
    print(f"{len(listed)} pages of the book, {diagrams} diagrams")
    expected = sum(len(re.findall(rf"^{IMAGE}$", (DOCS / page).read_text(), re.MULTILINE)) for page in pages())
    assert diagrams == expected > 0, f"{expected} diagrams are in the pages' sources"
    rustdoc = ROOT / "target" / "doc"
    modules = sorted((rustdoc / "lambda_idempotency").rglob("index.html"))
    assert modules, "rustdoc's pages are missing: run `make doc` first"
    address = served(rustdoc)
    for module in modules:
        wrong += [f"{module.relative_to(rustdoc)}: {error}" for error in opened(browser, f"{address}/{module.relative_to(rustdoc)}")]
    print(f"{len(modules)} pages of rustdoc")
    if wrong:
        sys.exit("\n".join(wrong))


# What is pressed; how often the two handlers charge then; a word of the drawing.
PRESSED = {
    "deliver": ((1, 1), "the handler runs"),
    "deliver,deliver": ((1, 2), "(replayed)"),
    "two": ((1, 2), "another attempt is in flight"),
    "lose-reply": ((1, 1), "the reply is lost"),
    "kill-before,deliver": ((0, 1), "is killed before the charge"),
    "kill-before,pass-lease,deliver": ((1, 1), "62 s after the start"),
    "deliver,kill-before,deliver": ((1, 2), "Lambda 1\nDynamoDB"),
    "kill-after,pass-lease,deliver": ((1, 2), "is killed after the charge"),
    "freeze": ((1, 2), "goes on"),
    "deliver,other-payload": ((1, 2), "payload 2"),
    "store-down": ((0, 1), "500"),
    "store-down,deliver": ((1, 2), "the handler runs"),
}


@contextmanager
def playground():
    """The playground as a process; its address, and the process's id."""
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "playground"
    process = subprocess.Popen([program, "0"], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.kill()
        process.wait()


def posted(address, path, headers=None, body=None):
    """Sends what a button sends, or a page from elsewhere; the status of the answer."""
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=60)
    connection.request("POST", path, body, headers or {})
    status = connection.getresponse().status
    connection.close()
    return status


def answers_to_others(address):
    """The requests that are answered, and must not be: a page from elsewhere could send them; and the others that are not answered."""
    own = address.removeprefix("http://").rstrip("/")
    port = own.split(":")[1]
    expected = [
        ({}, 200),
        ({"Origin": f"http://{own}"}, 200),
        ({"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, 200),
        ({"Origin": f"http://localhost:{port}"}, 403),
        ({"Origin": f"https://{own}"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": f"example.org:{port}"}, 403),
        ({"Host": f"example.org:{port}", "Origin": f"http://example.org:{port}"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": ""}, 403),
    ]
    answered = [(headers, status, posted(address, "/act/pass-lease", headers)) for headers, status in expected]
    return [f"{headers}: {status}, expected {wanted}" for headers, wanted, status in answered if status != wanted]


def ports(process):
    """The ports that a process listens on."""
    files = f"/proc/{process}/fd"
    own = {os.path.realpath(f"{files}/{file}") for file in os.listdir(files)}
    rows = [row.split() for row in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"{files}/socket:[{row[9]}]" in own]


def drawn_by_others(address, process):
    """What is wrong where a page from elsewhere sends each port what it may send without being asked: that it draws a line."""
    def state():
        return urllib.request.urlopen(f"{address}state").read()

    before = state()
    listening = ports(process)
    assert len(listening) > 1, "the page's port, and those behind it"
    for port in listening:
        posted(f"http://127.0.0.1:{port}", "/", {"Origin": "https://example.org", "Content-Type": "text/plain"}, '{"TableName": "t"}')
    return [] if state() == before else ["a page from elsewhere draws lines"]


def held(process):
    """How many threads and open files a process has."""
    return sum(len(os.listdir(f"/proc/{process}/{kind}")) for kind in ("task", "fd"))


def press(browser):
    wrong = []
    pressed = set()

    def until(condition):
        WebDriverWait(browser, 60).until(lambda browser: browser.execute_script(f"return {condition}"))

    with playground() as (address, process):
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        browser.get(address)
        for scenario, (charged, word) in PRESSED.items():
            for count, name in enumerate(["reset", *scenario.split(",")]):
                until("!document.querySelector('button:disabled') && document.body.dataset.done")
                browser.find_element("css selector", f"[data-act={name}]").click()
                until(f"document.body.dataset.done == {count} && !document.querySelector('button:disabled')")
                pressed.add(name)
            sums = [int(browser.find_element("css selector", f"#{side} .sum").text.split()[0]) for side in ("protected", "unprotected")]
            drawn = browser.find_element("id", "lines").text
            if tuple(sums) != charged or word not in drawn:
                wrong.append(f"{scenario}: charged {sums}, expected {charged}, and `{word}` in:\n{drawn}")
            wrong += [f"{scenario}: wider than a phone: {element}" for element in browser.execute_script(TOO_WIDE, PHONE["width"])]
        # The address has the last scenario: opened anew, the page plays it.
        browser.refresh()
        until(f"document.body.dataset.done == {len(scenario.split(','))}")
        buttons = {button.get_attribute("data-act") for button in browser.find_elements("css selector", "button")}
        wrong += [f"not pressed: {name}" for name in buttons - pressed] + errors(browser)
        wrong += answers_to_others(address) + drawn_by_others(address, process)
        # A session that is over, and an environment that was killed, keep nothing.
        before = held(process)
        rounds = 20
        for _ in range(rounds):
            statuses = [posted(address, f"/act/{name}") for name in ("kill-before", "reset")]
            wrong += [f"kill, and start over: {statuses}"] if statuses != [200, 200] else []
        WebDriverWait(browser, 60).until(lambda _: held(process) < before + rounds)
    print(f"{len(PRESSED)} scenarios, {len(pressed)} buttons")
    if wrong:
        sys.exit("\n".join(wrong))


def shots(browser, folder):
    folder.mkdir(parents=True, exist_ok=True)
    book = served(ROOT / "target" / "book" / "html")
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        for device, metrics in (("phone", PHONE), ("screen", SCREEN)):
            for page in pages():
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                browser.get(f"{book}/{page.removesuffix('.md')}.html")
                height = browser.execute_script("return document.documentElement.scrollHeight")
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": min(height, 6000)})
                browser.save_screenshot(folder / f"{page.removesuffix('.md').replace('/', '-')}-{device}-{scheme}.png")
            with playground() as (address, _):
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": 2000})
                browser.get(f"{address}#kill-after,pass-lease,deliver")
                WebDriverWait(browser, 60).until(lambda browser: browser.execute_script("return document.body.dataset.done == 3"))
                browser.save_screenshot(folder / f"playground-{device}-{scheme}.png")


def main():
    browser = chromium()
    try:
        match sys.argv[1:]:
            case []:
                check(browser)
            case ["playground"]:
                press(browser)
            case ["shots", folder]:
                shots(browser, Path(folder))
            case _:
                sys.exit(__doc__)
    finally:
        browser.quit()


main()
