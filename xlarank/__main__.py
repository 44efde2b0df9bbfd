"""``python -m xlarank``."""

from xlarank.cli import main

if __name__ == "__main__":
    main()
