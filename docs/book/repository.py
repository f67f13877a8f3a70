"""Links that lead out of the book: to files of the repository, which the book shows as their own pages, under repository/."""

import html
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
# The same in a definition, of a link by reference.
DEFINITION = re.compile(r"^\[([^\]]*)\]: ([^\s#]+)(#\S*)?$", re.MULTILINE)
# A diagram: by its place, or by reference to its place in docs/.
IMAGE = r"!\[[^\]]*\](?:\(([\w./-]*diagrams/[\w-]+)\.svg\)|\[(diagrams/[\w-]+)\])"
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 sans-serif; margin: 1em; }}
pre {{ font-size: 14px; overflow-x: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def outside(page, target):
    """The repository's file or folder that a page, named from docs/, links to; None for a page of the book."""
    if re.match(r"[a-z]+:|/", target):
        return None
    place = (DOCS / page).parent.joinpath(target).resolve()
    return None if place.is_relative_to(DOCS) else place


def address(place):
    """Where the book has this file, from the book's root. mdBook would take what has `.md` in its name for a chapter."""
    return f"repository/{str(place.relative_to(ROOT)).replace('.', '-')}.html"


def rewrite(page, text):
    """A page's text with its links out of the book as the book has them."""

    def replaced(link, form):
        place = outside(page, link[2])
        if place is None:
            return link[0]
        if link[3]:
            raise SystemExit(f"docs/{page} links to {link[2]}{link[3]}: the book shows this file as text, without places to link to")
        here = os.path.relpath(address(place), os.path.dirname(page) or ".")
        return form.format(link[1], here)

    text = LINK.sub(lambda link: replaced(link, "[{}]({})"), text)
    return DEFINITION.sub(lambda link: replaced(link, "[{}]: {}"), text)


def linked(pages):
    """All that these pages of docs/ link to outside of the book."""
    found = set()
    for page in pages:
        text = (DOCS / page).read_text()
        found |= {place for link in (*LINK.finditer(text), *DEFINITION.finditer(text)) if (place := outside(page, link[2]))}
    return found


def write(pages, book):
    """Writes a page into the book for each file that is linked to, and for each file of a folder that is."""
    waiting = linked(pages)
    written = set()
    while waiting:
        place = waiting.pop()
        if place in written:
            continue
        written.add(place)
        name = str(place.relative_to(ROOT))
        if place.is_dir():
            files = subprocess.check_output(["git", "ls-files", "."], cwd=place, text=True).split()
            waiting |= {place / file for file in files}
            link = lambda file: os.path.relpath(address(place / file), os.path.dirname(address(place)))
            rows = "".join(f'<li><a href="{html.escape(link(file))}">{html.escape(file)}</a></li>\n' for file in files)
            body = f"<ul>\n{rows}</ul>"
        else:
            body = f"<pre>{html.escape(place.read_text())}</pre>"
        page = book / address(place)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(PAGE.format(title=html.escape(name), body=body))
