"""`python -m outlast`: same as the command `outlast`."""

from outlast.cli.main import main

if __name__ == "__main__":
    main(prog_name="outlast")
