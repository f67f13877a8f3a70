"""mdBook's preprocessor: gives each diagram a frame and its form in text, and makes links to files of the repository links of the book.

mdBook calls it with `supports RENDERER`, then with the book as JSON: https://rust-lang.github.io/mdBook/for_developers/preprocessors.html
"""

import html
import json
import re
import sys

sys.dont_write_bytecode = True

from repository import DOCS, IMAGE, rewrite  # noqa: E402

# An image, so that the page shows it elsewhere, too. The book has it inlined, in the colours of the page.
DIAGRAM = re.compile(rf"^{IMAGE}$", re.MULTILINE)


def framed(page, renderer):
    """What stands in the place of a diagram: the picture, or its text where there are no pictures."""

    def place(found):
        drawn = (DOCS / page).parent / found[1] if found[1] else DOCS / found[2]
        text = drawn.with_suffix(".txt").read_text().rstrip()
        if renderer != "html":
            return f"```text\n{text}\n```"
        picture = drawn.with_suffix(".svg").read_text().strip()
        # A blank line would end the block of HTML.
        shown = html.escape(text).replace("\n\n", "\n&#32;\n")
        return f'<figure class="diagram">\n{picture}\n<details><summary>The diagram as text</summary>\n<pre>{shown}</pre>\n</details>\n</figure>\n'

    return place


def changed(item, renderer):
    chapter = item.get("Chapter")
    if not chapter:
        return
    page = chapter.get("path")
    if page:
        chapter["content"] = DIAGRAM.sub(framed(page, renderer), rewrite(page, chapter["content"]))
    for inner in chapter["sub_items"]:
        changed(inner, renderer)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    for item in book["items"]:
        changed(item, context["renderer"])
    json.dump(book, sys.stdout)


main()
