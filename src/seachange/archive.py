"""One file of one manifest.json and .npy arrays, in a zip. Nothing in it is ever executed."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.errors import ModelFileError
from seachange.outputs import written_whole

MANIFEST = "manifest.json"
Arrays = dict[str, npt.NDArray[Any]]
# What reading a zip that was cut, damaged or encrypted may raise.
BROKEN = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)


def write_archive(path: str | Path, manifest: bytes, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write the file, whole or not at all."""
    with written_whole(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, manifest)
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def read_archive(path: str | Path, check: Callable[[bytes], None]) -> tuple[bytes, Arrays]:
    """The manifest, which ``check`` sees first, and the arrays of the file; one from a stranger is safe to read."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError as error:
        raise ModelFileError("there is no such file.") from error
    except BROKEN as error:
        raise ModelFileError(f"it is not a whole model file: {error}.") from error
    manifest = content.pop(MANIFEST, None)
    if manifest is None:
        raise ModelFileError(f"it is no model file: it has no {MANIFEST}.")
    check(manifest)
    return manifest, {name.removesuffix(".npy"): _array(name, data) for name, data in content.items()}


def _array(name: str, data: bytes) -> npt.NDArray[Any]:
    if not name.endswith(".npy"):
        raise ModelFileError(f"it holds {name!r}; a model holds only {MANIFEST} and .npy arrays.")
    try:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ModelFileError(f"its {name} is no plain array: {error}.") from error
