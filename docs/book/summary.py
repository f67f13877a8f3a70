"""The chapters of the book, as docs/SUMMARY.md lists them."""

import re
from dataclasses import dataclass

from repository import DOCS


@dataclass
class Chapter:
    part: str
    title: str
    page: str

    def description(self):
        """The first sentence of the page."""
        paragraphs = (DOCS / self.page).read_text().split("\n\n")
        is_prose = lambda text: text and not text.startswith(("#", "|", "```", "{{", "-", "<"))
        first = next((text for text in map(str.strip, paragraphs) if is_prose(text)), "")
        words = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", " ".join(first.split()))
        return re.split(r"(?<=\.) ", words)[0]


def chapters():
    part = "Introduction"
    found = []
    for line in (DOCS / "SUMMARY.md").read_text().splitlines():
        if line.startswith("# ") and line != "# Summary":
            part = line[2:]
        elif link := re.search(r"\[(.*)\]\((.*)\)", line):
            found.append(Chapter(part, *link.groups()))
    return found


def pages():
    return [chapter.page for chapter in chapters()]
