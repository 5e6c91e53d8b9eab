"""The TLS options of an etcd URL: `tls`, `ca`, `cert` and `key`."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from outlast.errors import ConfigurationError
from outlast.store.url_options import read_flag

FILES = ("ca", "cert", "key")


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context that the options ask for, or None.

    Raises ConfigurationError if they contradict each other or a file cannot be used.
    """
    _check(options)
    if not (
        read_flag(options, "tls", where="the etcd URL") or "ca" in options or "cert" in options
    ):
        return None
    for name in FILES:
        if name in options and not Path(options[name]).is_file():
            raise ConfigurationError(f"{name} is {options[name]!r:.80}, and there is no such file")
    try:
        context = ssl.create_default_context(cafile=options.get("ca"))
        if "cert" in options:
            context.load_cert_chain(options["cert"], options.get("key"), _refuse_passphrase)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigurationError(
            f"the TLS files of the etcd URL cannot be used: {getattr(error, 'reason', error)}; ca "
            "and cert are PEM certificates, and key is the private key of cert"
        ) from error
    return context


def _check(options: Mapping[str, str]) -> None:
    given = [name for name in FILES if name in options]
    if options.get("tls") == "false" and given:
        raise ConfigurationError(
            f"tls=false contradicts {', '.join(given)}; leave tls out to use TLS, or remove the "
            "files"
        )
    if "key" in options and "cert" not in options:
        raise ConfigurationError(
            "key is given without cert: a private key needs its certificate; add cert=me.pem"
        )


def _refuse_passphrase() -> NoReturn:
    raise ConfigurationError(
        "key is encrypted, and no one can be asked for its passphrase; store it without one, "
        "readable by its owner only"
    )
