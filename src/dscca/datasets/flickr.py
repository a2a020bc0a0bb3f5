"""Images and their five captions: Flickr8k (Hodosh et al. 2013), Flickr30k (Young et al. 2014)."""

from dataclasses import dataclass

from dscca.datasets.cache import DataFolder
from dscca.datasets.captions import Captions, read_karpathy, read_list, read_tokens
from dscca.datasets.images import positions, samples_of
from dscca.datasets.samples import Samples
from dscca.datasets.splits import fold_of, sized

FEATURES = ("resnet50.npz", "text300.npz")
N_FOLDS = 8


@dataclass(frozen=True)
class Layout:
    """How the files of one of the two data sets are called."""

    tokens: tuple[str, ...]
    lists: tuple[str, str, str]
    """Training, validation and test images."""
    json: str


FLICKR8K = Layout(
    ("Flickr8k.token.txt", "Flickr8k.token.txt.gz"),
    ("Flickr_8k.trainImages.txt", "Flickr_8k.devImages.txt", "Flickr_8k.testImages.txt"),
    "dataset_flickr8k.json",
)
FLICKR30K = Layout(
    ("results_20130124.token", "results_20130124.token.gz"),
    ("train.txt", "val.txt", "test.txt"),
    "dataset_flickr30k.json",
)


def load_8k(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    captions: bool = False,
    features: tuple[str, str] = FEATURES,
) -> Samples:
    """Read features of the 8,000 listed images and of their captions.

    The standard split is the official one, 6,000/1,000/1,000, from the three lists or Karpathy's
    JSON, which has the same. Eight folds over the listed images, in the order of their names, keep
    these sizes.

    Parameters
    ----------
    captions : whether to return the captions too
    features : file names or absolute paths of image and text features
    """
    parts = official(folder, FLICKR8K)
    images = sorted(name for part in parts.values() for name in part)
    if fold is None:
        split = positions(images, parts)
    else:
        split = fold_of(len(images), N_FOLDS, fold, seed, len(images) // N_FOLDS)
    texts = read_captions(folder, FLICKR8K) if captions else None
    return samples_of(folder, images, split, features, texts)


def load_30k(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    captions: bool = False,
    features: tuple[str, str] = FEATURES,
    split_by: str = "random",
    sizes: tuple[int, int] = (1000, 1000),
) -> Samples:
    """Read features of Flickr30k's images and of their captions.

    Parameters
    ----------
    captions, features : as for Flickr8k
    split_by : "random" draws `sizes` validation and test images by the seed, as the paper;
        "official" takes the lists train.txt, val.txt and test.txt, or Karpathy's JSON
    sizes : validation and test images
    """
    if fold is not None:
        raise ValueError(f"fold={fold}: flickr30k has no folds in the paper; take another seed.")
    if split_by not in ("random", "official"):
        raise ValueError(f"split_by={split_by!r}: take 'random' or 'official'.")
    texts = read_captions(folder, FLICKR30K) if captions or split_by == "random" else None
    if split_by == "official":
        parts = official(folder, FLICKR30K)
        images = sorted(name for part in parts.values() for name in part)
        split = positions(images, parts)
    else:
        images = sorted(texts or ())
        split = sized(len(images), *sizes, seed)
    return samples_of(folder, images, split, features, texts if captions else None)


def official(folder: DataFolder, layout: Layout) -> dict[str, list[str]]:
    """Return the training, validation and test images of the lists, or of Karpathy's JSON."""
    paths = [folder.find(name) for name in layout.lists]
    if None in paths:
        karpathy = folder.require(layout.lists[paths.index(None)], layout.json)
        source, parts = str(karpathy), read_karpathy(karpathy)[1]
        if sorted(parts) != ["test", "train", "val"]:
            raise ValueError(f"{karpathy} has the splits {', '.join(sorted(parts))}.")
    else:
        source = ", ".join(layout.lists)
        lists = [[_with_suffix(name) for name in read_list(path)] for path in paths if path]
        parts = dict(zip(("train", "val", "test"), lists, strict=True))
    everything = [name for part in parts.values() for name in part]
    if len(set(everything)) < len(everything):
        twice = next(name for name in everything if everything.count(name) > 1)
        raise ValueError(f"{source}: {twice} is in two parts of the split.")
    return parts


def read_captions(folder: DataFolder, layout: Layout) -> Captions:
    """Return the captions by image, from the token file or Karpathy's JSON."""
    path = folder.require(*layout.tokens, layout.json)
    return read_karpathy(path)[0] if path.suffix == ".json" else read_tokens(path)


def _with_suffix(name: str) -> str:
    """Flickr30k's lists have numbers where its captions have file names."""
    return name if name.endswith(".jpg") else f"{name}.jpg"
