"""Completes the built book: the repository's files that it links to, its pages as Markdown, and llms.txt (https://llmstxt.org)."""

import shutil
from itertools import groupby

import repository
from repository import DOCS, ROOT
from summary import chapters

BOOK = ROOT / "target" / "book"
HEAD = """# lambda-idempotency

> A Rust toolkit for idempotency on AWS Lambda, backed by DynamoDB: a delivery that comes twice takes effect once.
"""


def main():
    book = BOOK / "html"
    listed = chapters()
    unlisted = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {chapter.page for chapter in listed} - {"SUMMARY.md"}
    if unlisted:
        raise SystemExit(f"docs/SUMMARY.md doesn't list {', '.join(sorted(unlisted))}")
    repository.write([chapter.page for chapter in listed], book)
    index, whole = [HEAD], [HEAD]
    for part, members in groupby(listed, key=lambda chapter: chapter.part):
        index.append(f"\n## {part}\n\n")
        for chapter in members:
            source = BOOK / "markdown" / chapter.page
            shutil.copy(source, book / chapter.page)
            index.append(f"- [{chapter.title}]({chapter.page}): {chapter.description()}\n")
            whole.append(f"\n{source.read_text()}")
    (book / "llms.txt").write_text("".join(index))
    (book / "llms-full.txt").write_text("".join(whole))


main()
