"""`python -m fedlama`, and the command `fedlama`."""

from fedlama.processes.signals import ignore_signals, interrupt_once


def start() -> None:
    """Run the command line as a program of its own, in which signals end it with its own exit code."""
    interrupt_once()
    try:
        from fedlama.cli import main  # after the signals: it takes a moment

        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        ignore_signals()


if __name__ == "__main__":
    start()
