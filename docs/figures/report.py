"""Draw states.png and report.png: a log of the built-in shop, created as in docs/states.md, its states and its report.

Needs Chromium, which `make chromium` installs.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
COLUMNS = "action=item,reward=click,propensity=p,time=ts"
# Window width, and enough height for the headline and the states over time.
SIZE = "1280,1500"


def main() -> None:
    """Draw both next to this file."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    example = re.search(r"```python\n(.*?)```", (HERE.parent / "states.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example, "docs/states.md must start with the code that creates the log"
    with TemporaryDirectory() as folder:
        commands = (
            [sys.executable, "-c", example[1]],
            [
                sys.executable, "-m", "seachange", "states", "shop.parquet", "--columns", COLUMNS, "--figure",
                str(HERE / "states.png"), "--force",
            ],
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
