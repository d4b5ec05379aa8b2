"""`python -m engine` is the command `engine`."""

from engine.cli.main import main

if __name__ == "__main__":
    main()
