"""The command line: `outlast worker …`."""
