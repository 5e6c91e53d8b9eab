"""Telling others what happens: each one a sink that an app may have, none of them needed."""
