"""Where data sets lie: ``DSCCA_DATA/<name>`` first, then the cache directory."""

import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """Return ``DSCCA_CACHE`` if it is set, else the user's cache directory by convention."""
    chosen = os.environ.get("DSCCA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dscca"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "dscca" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The convention has relative paths ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "dscca"


def cache_folder(name: str) -> Path:
    """Return the folder that downloads of a data set go to."""
    return cache_directory() / "datasets" / name


class MissingDataError(FileNotFoundError):
    """Files of a data set are not where they are looked for."""


class DataFolder:
    """The folders that may hold a data set's files, in the order in which they are asked.

    `advice` says how to get the files; it ends the error about a missing one.
    """

    def __init__(self, name: str, advice: str = "") -> None:
        self.name, self.advice = name, advice
        data = os.environ.get("DSCCA_DATA")
        self.places = [Path(data).expanduser() / name] if data else []
        self.places.append(cache_folder(name))

    def find(self, *names: str) -> Path | None:
        """Return the first of these files or folders that is there, or None.

        Names are alternatives for the same thing; an absolute path is taken as it is.
        """
        paths = (place / name for place in self.places for name in names)
        return next((path for path in paths if path.exists()), None)

    def require(self, *names: str) -> Path:
        """Return the first of these files or folders that is there."""
        found = self.find(*names)
        if found is None:
            raise MissingDataError(self.missing(" or ".join(names)))
        return found

    def missing(self, what: str) -> str:
        """Say what to put where."""
        places = " or ".join(str(place) for place in self.places)
        hint = "" if os.environ.get("DSCCA_DATA") else " (or set DSCCA_DATA to a folder of them)"
        return f"{self.name} lacks {what}: put it in {places}{hint}. {self.advice}".strip()
