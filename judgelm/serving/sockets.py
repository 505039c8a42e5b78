"""The socket of a server."""

import socket

from judgelm.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address before the model is loaded; it does not listen yet.

    Raises:
        ConfigError: the address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port}: {error.strerror or error}; choose another port") from error
    return bound
