"""The command line: `holdfast worker …`."""
