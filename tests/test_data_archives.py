"""Archives that mean harm."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from dscca.datasets.archives import ArchiveError, Bounds, is_archive, unpack

GOOD = {"one.txt": b"1", "folder/two.txt": b"22"}


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make_tar(path, members, extra=()):
    mode = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}[path.suffix]
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return path


def link(name, target, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def target(tmp_path):
    return tmp_path / "in" / "target"


def assert_refused(archive, target, message, **options):
    with pytest.raises(ArchiveError, match=message):
        unpack(archive, target, **options)
    assert list(target.rglob("*")) == []
    assert sorted(p.name for p in target.parent.iterdir()) == ["target"]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz"])
def test_good_archives(tmp_path, target, name):
    archive = (make_zip if name.endswith("zip") else make_tar)(tmp_path / name, GOOD)
    assert is_archive(archive)
    written = unpack(archive, target)
    found = {p.relative_to(target).as_posix(): p.read_bytes() for p in written}
    assert found == GOOD
    assert sorted(p.name for p in target.iterdir()) == ["folder", "one.txt"]


def test_one_gzipped_file(tmp_path, target):
    (tmp_path / "list.txt.gz").write_bytes(gzip.compress(b"content"))
    assert unpack(tmp_path / "list.txt.gz", target) == [target / "list.txt"]
    assert (target / "list.txt").read_bytes() == b"content"


def test_selected_members(tmp_path, target):
    archive = make_zip(tmp_path / "a.zip", GOOD)
    written = unpack(archive, target, lambda n: "2" if n.endswith("two.txt") else None)
    assert written == [target / "2"]


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:\\evil", "C:/evil", "a/.."]
)
@pytest.mark.parametrize("kind", ["a.zip", "a.tar"])
def test_paths_outside(tmp_path, target, name, kind):
    make = make_zip if kind.endswith("zip") else make_tar
    archive = make(tmp_path / kind, {**GOOD, name: b"evil"})
    assert_refused(archive, target, "points outside")
    assert not list(tmp_path.rglob("evil"))
    # Also where nobody asked for that member, and where the selection itself points outside.
    assert_refused(archive, target, "points outside", select=lambda n: None)
    good = make(tmp_path / f"good-{kind}", GOOD)
    assert_refused(good, target, "points outside", select=lambda n: name)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices(tmp_path, target, kind):
    archive = make_tar(tmp_path / "a.tar", GOOD, [link("evil", "/etc/passwd", kind)])
    assert_refused(archive, target, "a link or device")


def test_symbolic_links_in_zips(tmp_path, target):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        info = zipfile.ZipInfo("evil")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    assert_refused(archive, target, "a link or device")


def test_bombs(tmp_path, target):
    zeros = bytes(5_000_000)
    bounds = Bounds(size=1_000_000)
    for name in ("a.zip", "a.tar.gz"):
        archive = (make_zip if name.endswith("zip") else make_tar)(tmp_path / name, {"a": zeros})
        assert archive.stat().st_size < 50_000
        assert_refused(archive, target, "more than 1000000 bytes", bounds=bounds)
        # Passing over it would decompress it too.
        assert_refused(archive, target, "more than 1000000", bounds=bounds, select=lambda n: None)
    (tmp_path / "a.gz").write_bytes(gzip.compress(zeros))
    assert_refused(tmp_path / "a.gz", target, "more than 1000000 bytes", bounds=bounds)


def test_a_zip_that_lies_about_its_sizes(tmp_path, target):
    archive = make_zip(tmp_path / "a.zip", {"a": bytes(5_000_000)})
    raw = archive.read_bytes()
    true = (5_000_000).to_bytes(4, "little")
    assert raw.count(true) == 2
    archive.write_bytes(raw.replace(true, (10).to_bytes(4, "little")))
    assert_refused(archive, target, "cannot be unpacked|more than", bounds=Bounds(size=1_000_000))


def test_too_many_members(tmp_path, target):
    members = {f"{i}": b"" for i in range(20)}
    for name in ("a.zip", "a.tar"):
        archive = (make_zip if name.endswith("zip") else make_tar)(tmp_path / name, members)
        assert_refused(archive, target, "more than 10 members", bounds=Bounds(count=10))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_comes_twice(tmp_path, target):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("a", "2")
    assert_refused(tmp_path / "a.zip", target, "more than once")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.xz", "a.gz"])
@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.9])
def test_truncated(tmp_path, target, name, keep):
    content = Path(__file__).read_bytes()
    archive = tmp_path / name
    if name == "a.gz":
        archive.write_bytes(gzip.compress(content))
    else:
        (make_zip if name.endswith("zip") else make_tar)(archive, {"a": content, "b": content})
    raw = archive.read_bytes()
    archive.write_bytes(raw[: int(keep * len(raw)) if keep < 1 else keep])
    if name == "a.gz" and keep == 0:
        return  # an empty file is an empty gzip file
    assert_refused(archive, target, "cannot be unpacked")


def test_other_files(tmp_path, target):
    (tmp_path / "a.rar").write_bytes(b"Rar!")
    assert_refused(tmp_path / "a.rar", target, "ends in none of")
    (tmp_path / "a.zip").write_bytes(b"no zip")
    assert_refused(tmp_path / "a.zip", target, "cannot be unpacked")
    assert_refused(tmp_path / "absent.zip", target, "no archive at")
