"""`python -m arrn`: the command line, also without installation."""

from arrn.cli import main

if __name__ == "__main__":
    main()
