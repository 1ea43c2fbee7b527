"""`python -m foretrace` is the program `foretrace`."""

from foretrace.cli.entry import main

if __name__ == "__main__":
    main()
