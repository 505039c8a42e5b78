"""The one place of the version number."""

VERSION = "0.1.0"
