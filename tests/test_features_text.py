import csv
import gzip
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dscca import LinearCCA
from dscca.features import (
    UnusableItemError,
    read_captions,
    read_features,
    read_word_vectors,
    text_features,
)
from dscca.features.captions import CaptionFileError
from dscca.features.word_vectors import WordVectorFileError
from feature_problems import word2vec_binary

CAPTIONS = {"a.jpg": ["Two dogs are running .", "A dog's run"], "b, c.jpg": ['He said "yes"']}


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Captions


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", ["token", "csv", "tsv", "jsonl", "jsonl of lists"])
def test_every_format_holds_the_same_captions(tmp_path, kind, zipped):
    pairs = [(name, text) for name, texts in CAPTIONS.items() for text in texts]
    numbered = [f"{name}#{i}\t{t}\n" for name, ts in CAPTIONS.items() for i, t in enumerate(ts)]
    path = tmp_path / f"captions.{kind.split()[0]}"
    if kind == "token":
        path.write_text("".join(numbered))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({"id": n, "caption": t}) + "\n\n" for n, t in pairs))
    elif kind == "jsonl of lists":
        lines = [json.dumps({"image": n, "captions": t}) for n, t in CAPTIONS.items()]
        path.write_text("\r\n".join(lines))
    else:
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            writer.writerows([("number", "image", "caption"), *((0, *pair) for pair in pairs)])
    if zipped:
        path = written(path.with_name(path.name + ".gz"), gzip.compress(path.read_bytes()))
    assert read_captions(path) == CAPTIONS


def test_columns_are_named_where_they_are_not_plain(tmp_path):
    path = written(tmp_path / "c.csv", "image,file,text\n1,a.jpg,one\n2,b.jpg,two\n")
    with pytest.raises(CaptionFileError, match=r"more than one .*name it by id_column"):
        read_captions(path)
    assert read_captions(path, id_column="file") == {"a.jpg": ["one"], "b.jpg": ["two"]}
    with pytest.raises(CaptionFileError, match="none of the columns image, file, text is called"):
        read_captions(path, id_column="file", text_column="caption")
    plain = written(tmp_path / "captions.txt", "image,caption\na.jpg,one\n")
    assert read_captions(plain, format="csv") == {"a.jpg": ["one"]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.txt", "a.jpg#0\tone\na.jpg two\n", r"line 2: 'a.jpg two' is not NAME#NUMBER<TAB>"),
        ("c.txt", "a.jpg#0\tone\na.jpg#0\ttwo\n", r"line 2: a second caption called a.jpg#0"),
        ("c.txt", "", "holds no captions"),
        ("c.txt", b"a.jpg#0\t\xff\n", "not in UTF-8"),
        ("c.csv", "id,caption\na.jpg,one,two\n", "line 2: 3 fields under 2 columns.*quoted"),
        ("c.csv", "id,caption\n,one\n", "line 2: a caption without an id"),
        ("c.csv", 'id,caption\na,"one\n', "no whole table"),
        ("c.jsonl", '{"id": 1, "caption": "x"}\n{"id"', "line 2: no JSON"),
        ("c.jsonl", "[1]", "line 1: no object but list"),
        ("c.jsonl", '{"id": 1, "caption": 2}', "the id or a caption is no text"),
        (
            "c.txt.gz",
            gzip.compress(b"a.jpg#0\tone\nb.jpg#0\ttwo\n")[:-9],
            "truncated or damaged gzip",
        ),
        ("c.doc", "", "its name tells no format"),
    ],
)
def test_what_is_wrong_with_captions_is_told(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_captions(written(tmp_path / name, content))


# Word vectors


@given(
    st.lists(
        st.text(
            st.characters(exclude_characters=" \n", exclude_categories=["Cs"]),
            min_size=1,
            max_size=99,
        ),
        unique=True,
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 20),
    st.booleans(),
    st.integers(400, 2000),
)
def test_binary_vectors_come_back(tmp_path_factory, words, width, newlines, chunk):
    vectors = np.random.default_rng(0).normal(size=(len(words), width)).astype(np.float32)
    path = tmp_path_factory.mktemp("vectors") / "v.bin"
    path.write_bytes(word2vec_binary(words, vectors, newlines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dscca.features.word_vectors._CHUNK", chunk)
        read = read_word_vectors(path)
        some = read_word_vectors(path, words[::2])
    assert list(read.rows) == words
    np.testing.assert_array_equal(read.vectors, vectors)
    assert list(some.rows) == words[::2]
    np.testing.assert_array_equal(some.vectors, vectors[::2])


@pytest.mark.parametrize("name", ["v.vec", "v.txt", "v.txt.gz"])
def test_text_vectors(tmp_path, name):
    header = "" if name == "v.txt" else "3 2\n"  # GloVe has no header, fastText has one
    content = f"{header}dog 1 2.5\n. . 3 -4\ncat 5e-1 6\n".encode()
    path = written(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    read = read_word_vectors(path)
    assert list(read.rows) == ["dog", ". .", "cat"]
    np.testing.assert_array_equal(read.vectors, [[1, 2.5], [3, -4], [0.5, 6]])


VECTORS = np.arange(6, dtype=np.float32).reshape(2, 3)
GOOD = word2vec_binary(["dog", "cat"], VECTORS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.bin", GOOD[:-8], "truncated"),
        ("v.bin", b"2 3\ndog " + b"x" * 90, "word 2 of 2 is cut off"),
        ("v.bin", GOOD + b"more", "goes on after the 2 words"),
        ("v.bin", b"999999999999 300\n" + GOOD, "fewer than 999999999999 words"),
        ("v.bin", b"2 999999999\n" + GOOD, "does not begin with a line of two numbers"),
        ("v.bin", b"\x80\x04.", "does not begin with a line of two numbers"),
        ("v.bin", b"2 3\n" + b"x" * 9000, "has no end"),
        ("v.bin", gzip.compress(GOOD)[:-9], "truncated or damaged gzip"),
        ("v.bin", word2vec_binary(["dog"], VECTORS[:1] * np.nan), "'dog' is not finite"),
        ("v.txt", b"dog 1 2\ncat 1\n", "line 2: not a word and 2 numbers"),
        ("v.txt", b"dog 1 2\ncat 1 x\n", "line 2: .*'?x'?"),
        ("v.txt", b"3 2\ndog 1 2\n", "announces 3 words, but holds 1"),
        ("v.txt", b"dog\n", "line 1: no word with its numbers"),
        ("v.npy", b"", "ends in none of .bin"),
    ],
)
def test_what_is_wrong_with_vectors_is_told(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_word_vectors(written(tmp_path / name, content))
    assert issubclass(WordVectorFileError, ValueError)


def test_memory_holds_the_wanted_words_only(tmp_path):
    words = [f"w{i}" for i in range(40_000)]
    vectors = np.random.default_rng(0).normal(size=(len(words), 300)).astype(np.float32)
    path = written(tmp_path / "v.bin", word2vec_binary(words, vectors))  # 48 MB
    tracemalloc.start()
    read = read_word_vectors(path, words[::400])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(read.vectors, vectors[::400])
    assert peak < 2**24


# The paper's features


@pytest.fixture
def vectors(tmp_path):
    pytest.importorskip("spacy")
    words = ["dog", "run", "Paris", "wear", "the", "be", "hat"]
    values = np.eye(7, dtype=np.float32)
    return words, values, written(tmp_path / "v.bin", word2vec_binary(words, values))


def test_the_mean_of_the_lemmas_that_are_no_stop_words(tmp_path, vectors):
    _, values, path = vectors
    dog, run, paris, wear, *_, hat = values
    captions = {
        "a": ["The dogs were running.", "A dog is RUNNING!"],  # be and the are stop words
        "b": ["Hats: wearing hats", ""],
        "c": ["", "in Paris"],
        "d": ["Is it?"],
        "e": ["", "  "],
        "f": ["zebras, zebra"],
    }
    report = text_features(captions, tmp_path / "f.npz", vectors=path)
    features = read_features(tmp_path / "f.npz")
    assert list(features.ids) == ["a", "b", "c"]
    expected = [(2 * dog + 2 * run) / 4, (2 * hat + wear) / 3, paris]
    np.testing.assert_allclose(features.features, expected, atol=1e-7)
    assert report.left_out == {
        "d": "stop words only",
        "e": "no caption has any text",
        "f": "no word has a vector: zebra",
    }
    notes = json.loads(report.path.read_text())["notes"]
    assert notes["items_with_an_empty_caption"] == ["b", "c", "e"]
    assert notes["words"]["most_frequent_without_vector"] == {"zebra": 2}
    assert (notes["words"]["in_captions"], notes["words"]["without_vector"]) == (10, 2)
    zeroed = text_features(captions, tmp_path / "z.npz", vectors=path, on_error="zero")
    assert zeroed.zero_filled == report.left_out
    rows = read_features(tmp_path / "z.npz").features
    np.testing.assert_array_equal(rows[:3], features.features)
    assert not rows[3:].any()
    with pytest.raises(UnusableItemError, match="d: stop words only"):
        text_features(captions, tmp_path / "f.npz", vectors=path, on_error="fail")


def test_a_spacy_pipeline_can_take_the_place_of_the_table(tmp_path, vectors):
    spacy = pytest.importorskip("spacy")
    words, values, path = vectors
    pipeline = spacy.blank("en")
    # A lemmatiser that makes every word a hat stands for a trained one.
    pipeline.add_pipe("lemmatizer", config={"mode": "lookup"})
    pipeline.initialize()
    table = pipeline.get_pipe("lemmatizer").lookups.get_table("lemma_lookup")
    table.set("trilbies", "hat")
    pipeline.to_disk(tmp_path / "pipeline")
    captions = {"a": ["dogs in trilbies."]}
    arguments = {"vectors": path, "lemmatizer": str(tmp_path / "pipeline")}
    text_features(captions, tmp_path / "f.npz", **arguments)
    features = read_features(tmp_path / "f.npz")
    expected = (values[words.index("dog")] + values[words.index("hat")]) / 2
    np.testing.assert_allclose(features.features, [expected])
    assert features.about["lemmatizer"] == str(tmp_path / "pipeline")
    spacy.blank("en").to_disk(tmp_path / "blank")
    for name, message in (("blank", "has no lemmatiser"), ("nothing", "no spaCy pipeline")):
        arguments["lemmatizer"] = str(tmp_path / name)
        with pytest.raises(ValueError, match=message):
            text_features(captions, tmp_path / "f.npz", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": None}, "needs word vectors"),
        ({"encoder": "some/model"}, "go with the encoder word2vec"),
        ({"language": "tlh"}, "no language 'tlh'"),
        ({"language": "ja"}, "Japanese|SudachiPy|no lemma table|no language"),
    ],
)
def test_impossible_arguments(tmp_path, vectors, arguments, message):
    with pytest.raises(ValueError, match=message):
        text_features({"a": ["dog"]}, tmp_path / "f.npz", **{"vectors": vectors[2], **arguments})


def test_sentence_embeddings_are_averaged_per_item(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    transformers = pytest.importorskip("transformers")
    import torch

    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "cat"]
    written(tmp_path / "vocab.txt", "\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    modules = library.sentence_transformer.modules
    tower = modules.Transformer(str(tmp_path / "bert"))
    plain = library.SentenceTransformer(modules=[tower, modules.Pooling(16)], device="cpu")
    plain.save(str(tmp_path / "model"))
    captions = {"a": ["a dog", "", "a dog runs"], "b": [" "], "c": ["a cat"], "d": ["cat", "dog"]}
    report = text_features(
        captions, tmp_path / "f.npz", encoder=str(tmp_path / "model"), batch_size=2
    )
    features = read_features(tmp_path / "f.npz")
    assert list(features.ids) == ["a", "c", "d"]
    assert report.left_out == {"b": "no caption has any text"}
    for name, row in zip(features.ids, features.features, strict=True):
        texts = [text for text in captions[str(name)] if text.strip()]
        expected = np.mean([plain.encode(text) for text in texts], axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-5)
    with pytest.raises(ValueError, match="cannot load the text encoder"):
        text_features(captions, tmp_path / "f.npz", encoder=str(tmp_path / "vocab.txt"))


def test_flickr8k_s_captions_give_the_reference_features(real_data, tmp_path):
    pytest.importorskip("spacy")
    folder = real_data / "flickr8k"
    report = text_features(
        folder / "Flickr8k.token.txt.gz", tmp_path / "f.npz", vectors=folder / "word_vectors.bin"
    )
    assert (report.rows, report.width, report.left_out) == (8091, 300, {})
    made = read_features(tmp_path / "f.npz")
    with np.load(folder / "text300.npz") as archive:
        files, reference = archive["files"], archive["features"].astype(np.float32)
    np.testing.assert_array_equal(made.ids, files)
    lengths = np.linalg.norm(made.features, axis=1) * np.linalg.norm(reference, axis=1)
    cosines = (made.features * reference).sum(axis=1) / lengths
    assert np.median(cosines) >= 0.97
    with np.load(folder / "resnet50.npz") as archive:
        images = archive["features"].astype(np.float32)
    rows = {
        part: np.isin(files, (folder / f"Flickr_8k.{part}Images.txt").read_text().split())
        for part in ("train", "test")
    }
    assert [rows[part].sum() for part in rows] == [6000, 1000]
    scores = []
    for text in (made.features, reference):
        model = LinearCCA(128, reg=(0.3, 0.01)).fit(images[rows["train"]], text[rows["train"]])
        scores.append(model.score(images[rows["test"]], text[rows["test"]]))
    assert scores[0] == pytest.approx(scores[1], abs=1)
    assert min(scores) > 40
