"""What it takes to prove a store, or a program that uses one: fakes, an oracle and a test suite."""
