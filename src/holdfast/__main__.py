"""`python -m holdfast`: the same as the command `holdfast`."""

from holdfast.cli.main import main

if __name__ == "__main__":
    main(prog_name="holdfast")
