"""Each link of the built book leads to a page that is there, and to a place on it; nothing is loaded from elsewhere."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from repository import ROOT

BOOK = ROOT / "target" / "book" / "html"


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        self.loaded += [attributes[name] for name in ("src", "href") if tag != "a" and attributes.get(name)]


def is_elsewhere(address):
    return address.startswith(("http:", "https:", "//", "mailto:"))


def main():
    pages = {path: Page(path) for path in BOOK.rglob("*.html")}
    wrong, looked_at = [], 0
    for path, page in pages.items():
        name = path.relative_to(BOOK)
        if name.name == "404.html":
            continue  # Its links begin at the site's root, wherever the book is put.
        wrong += [f"{name} loads {address}" for address in page.loaded if is_elsewhere(address)]
        for link in page.links + page.loaded:
            if is_elsewhere(link) or link.startswith(("data:", "#!")):
                continue
            target, anchor = urldefrag(link)
            place = (path.parent / unquote(target)).resolve() if target else path
            looked_at += 1
            if not place.exists():
                wrong.append(f"{name} links to {link}, which isn't there")
            elif anchor and place in pages and unquote(anchor) not in pages[place].anchors:
                wrong.append(f"{name} links to {link}, whose place isn't on the page")
    print(f"{len(pages)} pages, {looked_at} links")
    assert looked_at > len(pages), "hardly a link was looked at"
    if wrong:
        sys.exit("\n".join(wrong))


main()
