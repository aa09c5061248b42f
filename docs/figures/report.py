"""The picture of a report: a log of the built-in shop, as docs/states.md makes it, learned from and reported on.

Needs a Chromium: make chromium installs one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
COLUMNS = "action=item,reward=click,propensity=p,time=ts"
# As wide as a window, and as high as the answer and the states over time.
SIZE = "1280,1500"


def main() -> None:
    """Draw report.png beside this file."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    example = re.search(r"```python\n(.*?)```", (HERE.parent / "states.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example, "the page about states begins with the log of the shop"
    with TemporaryDirectory() as folder:
        commands = (
            [sys.executable, "-c", example[1]],
            [sys.executable, "-m", "seachange", "learn", "shop.parquet", "--columns", COLUMNS, "-o", "shop.seachange"],
            [sys.executable, "-m", "seachange", "report", "shop.parquet", "shop.seachange", "-o", "shop.html"],
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}",
                f"--user-data-dir={folder}/profile", f"--screenshot={HERE / 'report.png'}",
                (Path(folder) / "shop.html").as_uri(),
            ],
        )  # fmt: skip
        for command in commands:
            subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main()
