"""``python run.py COMMAND``: the command line of xlarank, straight from a clone."""

from xlarank.cli.app import main

if __name__ == "__main__":
    main()
