"""Models on disk: one safetensors file whose header carries a JSON description. No pickle.

The tensors are the arrays an estimator lists in ``_persistent``; the description holds format,
version, class, parameters and small fitted values. Reading runs no code from the file: the class
must be one of this package's own, and every array's dtype, shape and finiteness is checked. A
checksum shows damage that would still read as numbers.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dscca import integrity

FORMAT = "dscca-model"
VERSION = 2
FILE_NAME = "model.safetensors"
_UNSAVED = "__unsaved__"


class ModelFileError(ValueError):
    """A file is no model of this package, or a damaged one."""


def model_path(path: str | PathLike[str]) -> Path:
    """Return the file meant by `path`: itself, or ``model.safetensors`` in a folder."""
    path = Path(path)
    return path if path.suffix == ".safetensors" and not path.is_dir() else path / FILE_NAME


def save(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator; see :meth:`dscca.base.TwoViewEstimator.save`."""
    description, arrays = describe(model)
    text = json.dumps(description)
    metadata = {"format": FORMAT, "version": str(VERSION), "model": text}
    metadata[integrity.KEY] = integrity.checksum([text], arrays)
    write_atomically(model_path(path), to_bytes(arrays, metadata=metadata))


def describe(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return what a fitted estimator consists of: a JSON description and arrays."""
    arrays, values = {}, {}
    for name, value in model.fitted_state().items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = np.asarray(value, order="C")
        else:
            values[name] = encode(value)
    description = {
        "class": type(model).__name__,
        "parameters": {k: _encode_parameter(v) for k, v in model.get_params(deep=False).items()},
        "fitted": values,
    }
    return description, arrays


def check_target(path: str | PathLike[str]) -> None:
    """Refuse, before any work, a place where :func:`save` could not write after it."""
    folder = model_path(path).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"cannot save to {path}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot save to {path}: no permission to write in {folder}")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` in one step: a reader, or a crash, sees the old file or the new one."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends without an error."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write to, which then replaces `path` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load(path: str | PathLike[str], **parameters: Any) -> Any:
    """Read a model written by ``save``.

    Parameters
    ----------
    path : the file, or the folder that holds it
    parameters : values for parameters that could not be written, such as callables; an error says
        which are needed
    """
    file = model_path(path)
    description, arrays = _read(file)
    return restore(file, description, arrays, parameters)


def restore(
    file: Path, description: Any, arrays: dict[str, np.ndarray], parameters: dict[str, Any]
) -> Any:
    """Make the estimator that :func:`describe` described, as read from `file`."""
    try:
        cls = _estimators()[description["class"]]
        params = {k: decode(v) for k, v in description["parameters"].items()}
        fitted = {k: decode(v) for k, v in description["fitted"].items()}
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{file} describes no model of this package ({type(error).__name__}: {error}): "
            f"was it written by a newer version of dscca?"
        ) from error
    known = set(cls._get_param_names())
    if not set(params) <= known or not set(parameters) <= known:
        unknown = sorted((set(params) | set(parameters)) - known)
        raise ModelFileError(f"{file}: {cls.__name__} has no parameters {unknown}.")
    params |= parameters
    for name in cls._training_only:  # these do not matter to a fitted model
        if isinstance(params.get(name), _Unsaved):
            del params[name]
    missing = sorted(k for k, v in params.items() if isinstance(v, _Unsaved))
    if missing:
        raise ModelFileError(
            f"{file} was fitted with {', '.join(missing)}, which cannot be stored: pass "
            f"load(path, {'=..., '.join(missing)}=...)."
        )
    model = cls(**params)
    _check_shapes(file, cls._persistent, arrays)
    try:
        model._validate_params()
        model.restore_state({**fitted, **arrays})
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise ModelFileError(f"{file} is incomplete or damaged: {error}") from error
    return model


def _read(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not file.is_file():
        raise FileNotFoundError(f"no model at {file}: give the path that was passed to save.")
    try:
        with safe_open(file, framework="numpy") as source:
            metadata = source.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ModelFileError(f"{file} is a safetensors file, but no dscca model.")
            if metadata.get("version") != str(VERSION):
                raise ModelFileError(
                    f"{file} has format version {metadata.get('version')!r:.20}, this dscca reads "
                    f"{VERSION}: use the version of dscca that wrote it."
                )
            arrays = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
            if metadata[integrity.KEY] != integrity.checksum([metadata["model"]], arrays):
                raise ModelFileError(f"{file} is damaged: its content does not fit its checksum.")
            description = json.loads(metadata["model"])
    except (SafetensorError, json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{file} is not a whole model file: {error}") from error
    if not isinstance(description, dict):
        raise ModelFileError(f"{file} is not a whole model file: its description is no object.")
    return description, arrays


def _check_shapes(file: Path, shapes: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    sizes: dict[str, int] = {}
    for name, symbols in shapes.items():
        if name not in arrays:
            raise ModelFileError(f"{file} lacks the array {name}.")
        array, axes = arrays[name], symbols.split()
        if array.dtype != np.float64:
            raise ModelFileError(f"{file}: {name} has dtype {array.dtype}, not float64.")
        expected = tuple(sizes.setdefault(a, n) for a, n in zip(axes, array.shape, strict=False))
        if array.ndim != len(axes) or array.shape != expected:
            raise ModelFileError(
                f"{file}: {name} has shape {array.shape}, which does not fit ({symbols}) with "
                f"{sizes}."
            )
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ModelFileError(f"{file}: {name} holds values that are not finite.")


def _estimators() -> dict[str, Any]:
    import dscca

    return dscca.all_estimators()


class _Unsaved:
    """Stands for a parameter that has no JSON form until a value is given on loading."""


def _encode_parameter(value: Any) -> Any:
    encoded = encode(value)
    return {_UNSAVED: type(value).__name__} if _UNSAVED in json.dumps(encoded) else encoded


def encode(value: Any) -> Any:
    """Return a JSON form of parameters and small fitted values."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"__tuple__": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"__dict__": {k: encode(v) for k, v in value.items()}}
    if isinstance(value, np.ndarray):
        return {"__array__": encode(value.tolist()), "dtype": value.dtype.name}
    return {_UNSAVED: type(value).__name__}


def decode(value: Any) -> Any:
    """Undo :func:`encode`."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "__tuple__" in value:
        return tuple(decode(v) for v in value["__tuple__"])
    if "__dict__" in value:
        return {k: decode(v) for k, v in value["__dict__"].items()}
    if "__array__" in value:
        dtype = value["dtype"]
        if dtype != "object" and np.dtype(dtype).kind not in "biuf":
            raise ValueError(f"unexpected dtype {dtype!r}")
        return np.array(decode(value["__array__"]), dtype=dtype)
    if _UNSAVED in value:
        return _Unsaved()
    raise ValueError("unexpected object")
