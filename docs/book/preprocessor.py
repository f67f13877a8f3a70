"""mdBook's preprocessor: shows the text of each diagram, too, and makes links to files of the repository links of the book.

mdBook calls it with `supports RENDERER`, then with the book as JSON: https://rust-lang.github.io/mdBook/for_developers/preprocessors.html
"""

import json
import re
import sys

sys.dont_write_bytecode = True

from repository import DOCS, IMAGE, rewrite  # noqa: E402

DIAGRAM = re.compile(rf"^{IMAGE}$", re.MULTILINE)


def with_text(page, renderer):
    """What stands instead of a diagram: the picture and its text, or the text where there are no pictures."""

    def place(found):
        picture = (DOCS / page).parent / found[1] if found[1] else DOCS / found[2]
        text = picture.with_suffix(".mmd").read_text().rstrip()
        if renderer != "html":
            return f"```mermaid\n{text}\n```"
        text = text.replace("<br/>", " ")
        return f"{found[0]}\n\n<details><summary>The diagram as text</summary>\n\n```text\n{text}\n```\n\n</details>"

    return place


def changed(item, renderer):
    chapter = item.get("Chapter")
    if not chapter:
        return
    page = chapter.get("path")
    if page:
        chapter["content"] = DIAGRAM.sub(with_text(page, renderer), rewrite(page, chapter["content"]))
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
