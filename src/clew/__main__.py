"""`python -m clew` is the command line."""

from clew.cli import main

if __name__ == "__main__":
    main()
