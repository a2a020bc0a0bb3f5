"""The data sets: where they come from, what they are made of, who reads them."""

from dscca.datasets import flickr, iapr, mnist, mocha, xrmb
from dscca.datasets.records import DataFile, Dataset, Source

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://azureopendatastorage.blob.core.windows.net/mnist/",
)
_KARPATHY = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
_XRMB = "https://home.ttic.edu/~klivescu/XRMB_data/full/"
_FLICKR_LICENCE = "captions and images for non-commercial research; images belong to their authors"
_FEATURES = (
    DataFile(("resnet50.npz",), "image features: features (n, p) and files (n,)"),
    DataFile(("text300.npz",), "text features: features (n, q) and files (n,)"),
)
_MAKE = "Make features of your own from images and captions with `dscca features`."


def _mnist_file(part: str, kind: str, size: int, sha256: str, content: str) -> DataFile:
    names = mnist.names(part, kind)
    urls = tuple(mirror + names[0] for mirror in _MNIST_MIRRORS)
    what = f"{kind} of the {'training' if part == 'train' else 'test'} digits, idx"
    return DataFile(names, what, True, Source(names[0], urls, sha256, size), content)


def _karpathy(layout: flickr.Layout) -> Source:
    return Source(layout.json, (_KARPATHY,))


DATASETS = (
    Dataset(
        "mnist",
        "MNIST, left and right halves",
        ("left half, 392", "right half, 392"),
        (50_000, 10_000, 10_000),
        "lecun1998gradient",
        mnist.LICENCE,
        "dscca.datasets.mnist:load",
        (
            _mnist_file(
                "train",
                "images",
                9912422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            _mnist_file(
                "train",
                "labels",
                28881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            _mnist_file(
                "t10k",
                "images",
                1648877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            _mnist_file(
                "t10k",
                "labels",
                4542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        "The four original files, gzipped or not, are on many servers: `dscca data fetch mnist`.",
        mnist.N_FOLDS,
    ),
    Dataset(
        "xrmb",
        "Wisconsin X-Ray Microbeam",
        ("acoustics, 273", "articulation, 112"),
        xrmb.SIZES,
        "westbury1994x",
        "redistributed by permission for research; cite Westbury (1994) and Wang et al. (2015)",
        "dscca.datasets.xrmb:load",
        tuple(
            DataFile((name,), what, True, Source(name, (_XRMB + name,)))
            for name, what in zip(
                xrmb.FILES, ("acoustic view", "articulatory view, phones, speakers"), strict=True
            )
        ),
        f"The two files of about 1 GB are described at {_XRMB}README; `dscca data fetch xrmb` asks "
        "there.",
        xrmb.N_FOLDS,
    ),
    Dataset(
        "mocha",
        "MOCHA-TIMIT, one speaker",
        ("acoustics, 273", "articulation, 98"),
        mocha.SIZES,
        "wrench1999mocha",
        "research, education and individual use only; not commercial",
        "dscca.datasets.mocha:load",
        (DataFile(("fsew0.npz",), "frames: mfcc, ema, utterance, phone and their names"),),
        "MOCHA-TIMIT is at https://data.cstr.ed.ac.uk/mocha/; docs/data.md says what fsew0.npz is "
        "made of.",
        mocha.N_FOLDS,
    ),
    Dataset(
        "flickr8k",
        "Flickr8k, images and captions",
        ("image features, 2048", "text features, 300"),
        (6000, 1000, 1000),
        "hodosh2013framing",
        _FLICKR_LICENCE,
        "dscca.datasets.flickr:load_8k",
        (
            *(
                DataFile((name, flickr.FLICKR8K.json), what, True, _karpathy(flickr.FLICKR8K))
                for name, what in zip(
                    flickr.FLICKR8K.lists,
                    ("training images", "validation images", "test images"),
                    strict=True,
                )
            ),
            DataFile(
                (*flickr.FLICKR8K.tokens, flickr.FLICKR8K.json),
                "captions",
                False,
                _karpathy(flickr.FLICKR8K),
            ),
            *_FEATURES,
        ),
        "Images and captions are given on request by the authors (Hodosh et al. 2013); `dscca data "
        f"fetch flickr8k` gets captions and split in Karpathy's format. {_MAKE}",
        flickr.N_FOLDS,
    ),
    Dataset(
        "flickr30k",
        "Flickr30k, images and captions",
        ("image features, 2048", "text features, 300"),
        (29_783, 1000, 1000),
        "young2014image",
        _FLICKR_LICENCE,
        "dscca.datasets.flickr:load_30k",
        (
            DataFile(
                (*flickr.FLICKR30K.tokens, flickr.FLICKR30K.json),
                "captions",
                True,
                _karpathy(flickr.FLICKR30K),
            ),
            *(
                DataFile((name, flickr.FLICKR30K.json), f"{what}, for split_by='official'", False)
                for name, what in zip(
                    flickr.FLICKR30K.lists,
                    ("training images", "validation images", "test images"),
                    strict=True,
                )
            ),
            *_FEATURES,
        ),
        "Images and captions are given on request by the authors (Young et al. 2014); `dscca data "
        f"fetch flickr30k` gets captions in Karpathy's format. {_MAKE}",
    ),
    Dataset(
        "iapr",
        "IAPR TC-12, images and descriptions",
        ("image features, 2048", "text features, 300"),
        (17_000, 2000, 1000),
        "grubinger2006iapr",
        "free of charge and without copyright restrictions",
        "dscca.datasets.iapr:load",
        (
            DataFile((*iapr.ANNOTATIONS, *iapr.TOKENS), "annotations or captions"),
            *(
                DataFile((name,), f"{what}, for split_by='lists'", False)
                for name, what in zip(iapr.LISTS, ("training images", "test images"), strict=True)
            ),
            *_FEATURES,
        ),
        "The archive iaprtc12.tgz is described at https://www.imageclef.org/photodata; unpack its "
        f"annotations with `dscca data fetch iapr --from iaprtc12.tgz`. {_MAKE}",
        aliases=("iapr-tc-12", "iaprtc12"),
    ),
    Dataset(
        "embedded-digits",
        "MNIST's test digits, in the package",
        ("left half, 392", "right half, 392"),
        (8000, 1000, 1000),
        "lecun1998gradient",
        mnist.LICENCE,
        "dscca.datasets.mnist:load_embedded",
    ),
    *(
        Dataset(
            f"synthetic-{kind}",
            title,
            views,
            (8000, 1000, 1000),
            None,
            "none: generated",
            f"dscca.datasets.synthetic:load_{kind}",
        )
        for kind, title, views in (
            ("linear", "Gaussian, known correlations", ("20", "15")),
            ("nonlinear", "warped Gaussian, known correlations", ("20", "15")),
            ("classes", "pairing depends on a class", ("9", "9")),
        )
    ),
)


def find_dataset(name: str) -> Dataset:
    """Return the data set of that name; case and hyphens do not matter."""
    wanted = _normal(name)
    for dataset in DATASETS:
        if wanted in map(_normal, (dataset.name, *dataset.aliases)):
            return dataset
    raise ValueError(f"no data set {name}: there are {', '.join(d.name for d in DATASETS)}")


def _normal(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
