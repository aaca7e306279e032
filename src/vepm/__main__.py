"""Run the command line as ``python -m vepm``."""

from vepm.cli import main

if __name__ == "__main__":
    main()
