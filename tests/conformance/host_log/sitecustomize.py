"""Writes the host of every look-up and connection of this process to the file that HOST_LOG names."""

import os
import sys


def _write(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):  # else a socket of this machine's files
        host = arguments[1][0]
    else:
        return
    with open(os.environ["HOST_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{host.decode() if isinstance(host, bytes) else host}\n")


sys.addaudithook(_write)
