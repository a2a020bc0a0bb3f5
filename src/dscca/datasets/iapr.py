"""Images and a long caption each: the IAPR TC-12 benchmark (Grubinger et al. 2006)."""

from dscca.datasets.cache import DataFolder
from dscca.datasets.captions import Captions, read_iapr, read_list, read_tokens
from dscca.datasets.images import positions, samples_of
from dscca.datasets.samples import Samples
from dscca.datasets.splits import Split, permutation, sized

ANNOTATIONS = ("annotations_complete_eng", "iaprtc12/annotations_complete_eng")
TOKENS = ("captions.token", "captions.token.gz")
LISTS = ("iaprtc12_train_list.txt", "iaprtc12_test_list.txt")
FEATURES = ("resnet50.npz", "text300.npz")
SIZES = (2000, 1000)


def load(
    folder: DataFolder,
    fold: int | None,
    seed: int,
    *,
    captions: bool = False,
    features: tuple[str, str] = FEATURES,
    split_by: str = "random",
    sizes: tuple[int, int] = SIZES,
) -> Samples:
    """Read features of the images and of their descriptions.

    Parameters
    ----------
    captions : whether to return the descriptions too
    features : file names or absolute paths of image and text features
    split_by : "random" draws `sizes` validation and test images by the seed and trains on the rest
        of the 20,000, as the paper; "lists" tests on the images of ``iaprtc12_test_list.txt`` and
        draws validation images from the training list
    sizes : validation and test images; the lists have their own test images
    """
    if fold is not None:
        raise ValueError(f"fold={fold}: iapr has no folds in the paper; take another seed.")
    if split_by not in ("random", "lists"):
        raise ValueError(f"split_by={split_by!r}: take 'random' or 'lists'.")
    texts = read_captions(folder) if captions or split_by == "random" else None
    if split_by == "random":
        images = sorted(texts or ())
        split = sized(len(images), *sizes, seed)
    else:
        images, split = _by_lists(folder, sizes[0], seed)
    return samples_of(folder, images, split, features, texts if captions else None)


def read_captions(folder: DataFolder) -> Captions:
    """Return the descriptions by image: ``00/25.jpg`` of annotations, any name of a token file."""
    path = folder.require(*ANNOTATIONS, *TOKENS)
    return read_iapr(path) if path.is_dir() else read_tokens(path)


def _by_lists(folder: DataFolder, n_val: int, seed: int) -> tuple[list[str], Split]:
    train, test = ([f"{n}.jpg" for n in read_list(folder.require(name))] for name in LISTS)
    both = set(train) & set(test)
    if both:
        raise ValueError(f"{', '.join(LISTS)}: {min(both)} is in both lists.")
    if not 0 < n_val < len(train):
        raise ValueError(f"{n_val} validation images: the training list has {len(train)}.")
    drawn = [train[i] for i in permutation(len(train), seed)]
    images = sorted(train + test)
    return images, positions(images, {"train": drawn[n_val:], "val": drawn[:n_val], "test": test})
