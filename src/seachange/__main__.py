"""``python -m seachange``."""

from seachange.cli import main

if __name__ == "__main__":
    main()
