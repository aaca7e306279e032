"""Where the command ``vepm`` starts: help, version and completion come without PyTorch."""


def main() -> None:
    """Run the command line."""
    from vepm.cli import main as run

    run()
