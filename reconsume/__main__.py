"""`python -m reconsume`."""

from reconsume.cli.entry import main

if __name__ == "__main__":
    main()
