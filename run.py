"""``python run.py COMMAND``: the command line of xlarank, straight from a clone."""

import signal


def main() -> None:
    """Run the command of ``sys.argv``."""
    from xlarank.cli import main as run

    run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while Python imports the package
    main()
