import zipfile

import numpy as np
import pytest

from dscca.features import image_features, read_features
from dscca.features.sources import UnreadableImageError, image_source
from feature_problems import encoded, folder_of_pictures, picture, small_resnet

transformers = pytest.importorskip("transformers")
pil_image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_resnet(tmp_path_factory.mktemp("model") / "resnet", size=32)


@pytest.fixture
def photos(tmp_path):
    return folder_of_pictures(tmp_path / "photos")


def test_folder_is_sorted_and_names_what_it_ignores(photos):
    (photos / "notes.txt").write_text("no image")
    (photos / ".hidden.png").write_bytes(b"")
    source = image_source(photos)
    assert list(source.items.ids) == sorted(source.items.ids)
    assert len(source.items.ids) == 12
    assert set(source.ignored) == {"notes.txt", ".hidden.png"}


def test_links_out_of_the_folder_are_refused(photos, tmp_path, model):
    outside = tmp_path / "outside.png"
    outside.write_bytes(encoded(picture()))
    (photos / "out.png").symlink_to(outside)
    (photos / "in.png").symlink_to(photos / "01.png")
    (photos / "away").symlink_to(tmp_path)
    report = image_features(photos, tmp_path / "f.npz", model=str(model))
    assert report.left_out == {"out.png": "leads out of the folder"}
    assert report.notes["ignored"] == {"away": "a link to a folder is not followed"}
    features = read_features(tmp_path / "f.npz")
    rows = dict(zip(features.ids, features.features, strict=True))
    np.testing.assert_allclose(rows["in.png"], rows["01.png"], rtol=1e-5)


def test_archive_gives_what_the_folder_gives(photos, tmp_path, model):
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(photos.rglob("*.png"), reverse=True):
            file.write(path, path.relative_to(photos).as_posix())
        file.writestr("__MACOSX/01.png", b"")
        file.writestr("readme.md", b"")
    before = set(tmp_path.iterdir())
    image_features(photos, tmp_path / "folder.npz", model=str(model))
    report = image_features(archive, tmp_path / "zip.npz", model=str(model))
    assert set(report.notes["ignored"]) == {"__MACOSX/01.png", "readme.md"}
    assert (tmp_path / "folder.npz").read_bytes() == (tmp_path / "zip.npz").read_bytes()
    new = {path.name for path in set(tmp_path.iterdir()) - before}
    assert new == {"folder.npz", "folder.json", "zip.npz", "zip.json"}


def test_links_in_circles_are_reported(photos):
    (photos / "a.png").symlink_to(photos / "b.png")
    (photos / "b.png").symlink_to(photos / "a.png")
    source = image_source(photos)
    with pytest.raises(UnreadableImageError):
        source.read(source.items.ids.index("a.png"))


def test_damaged_archive_entries_are_reported(tmp_path, monkeypatch):
    archive = tmp_path / "photos.zip"
    content = encoded(picture())
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.png", content)
        file.writestr("b.png", content)
        link = zipfile.ZipInfo("c.png")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "a.png")
    damaged = bytearray(archive.read_bytes())
    damaged[damaged.index(b"a.png") + 60] ^= 1
    archive.write_bytes(damaged)
    source = image_source(archive)
    with pytest.raises(UnreadableImageError, match="CRC"):
        source.read(0)
    assert source.read(1) == content
    with pytest.raises(UnreadableImageError, match="is a link"):
        source.read(2)
    monkeypatch.setattr("dscca.features.sources.MAX_FILE_BYTES", 100)
    with pytest.raises(UnreadableImageError, match="larger than"):
        source.read(1)
    (tmp_path / "cut.zip").write_bytes(damaged[:-30])
    with pytest.raises(ValueError, match=r"cut\.zip"):
        image_source(tmp_path / "cut.zip")


def test_lists_choose_and_order(photos, tmp_path):
    (photos / "list.txt").write_text("02.png\nsub/00.png\n\n")
    assert list(image_source(photos / "list.txt").items.ids) == ["02.png", "sub/00.png"]
    names = tmp_path / "names.txt"
    names.write_text("04.png\nabsent.png\n../photos.zip\n01.png\n")
    source = image_source(photos, names)
    assert list(source.items.ids) == ["04.png", "absent.png", "../photos.zip", "01.png"]
    assert source.read(0) == (photos / "04.png").read_bytes()
    with pytest.raises(UnreadableImageError, match="no such file"):
        source.read(1)
    with pytest.raises(UnreadableImageError, match="leads out"):
        source.read(2)
    names.write_text("04.png\n04.png\n")
    with pytest.raises(ValueError, match=r"two items are called 04\.png"):
        image_source(photos, names)
