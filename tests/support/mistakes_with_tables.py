"""Files of rows that nobody can train on as the config says."""

from __future__ import annotations

from pathlib import Path

import pytest

from .mistakes import Prepare, stored_mistakes

TABLES: dict[str, str | bytes] = {
    "a picture of a table that is not there": "a,y\n1.png,u\n2.png,v\n",
    "a target that the file does not have": "a,b,y\n1,2,u\n2,3,v\n",
    "a row with a cell too many": "a,y\n1,u\n2,v,3\n",
    "numbers to predict that are taken for classes": "a,y\n1,0.5\n2,0.25\n",
    "a loss for classes and targets that are numbers": "a,y\n1,0.5\n2,0.25\n",
    "a layer with fewer outputs than the file has classes": "a,y\n1,u\n2,u\n2,v\n3,w\n",
    "a value that is missing": "a,y\n1,u\n,v\n3,w\n",
    "a file in another encoding": b"a,y\n1,\xe9\n2,v\n",
    "a file without a line of names": "1,2\n2,3\n",
    "a target among the inputs": "a,y\n1,u\n2,v\n",
    "two columns for one class": "a,y\n1,u\n2,v\n",
    "a quote that is not closed": 'a,y\n1,u\n"2,v\n',
    "a text in a column of numbers": "a,y\n1,u\n2,v\n3_,v\n",
}


def _written(content: str | bytes) -> Prepare:
    def prepare(patch: pytest.MonkeyPatch) -> None:
        Path("data.csv").write_bytes(content if isinstance(content, bytes) else content.encode())

    return prepare


ROWS = stored_mistakes(
    "mistakes_with_tables.txt", {title: _written(each) for title, each in TABLES.items()}
)
