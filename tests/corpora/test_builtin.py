"""The built-in corpus: documentation becomes prose, no code is run to get it, and the result is always the same."""

import builtins
import doctest
import itertools
import json
import math
import re
import sys
import textwrap
import zipfile
from contextlib import nullcontext
from functools import partial

import pytest

from mini_bert.corpora import builtin, prose
from mini_bert.corpora.builtin import (
    Novelty,
    build,
    compiled_texts,
    in_validation,
    source_texts,
    sources,
    wheel_sources,
)
from mini_bert.corpora.prose import english, paragraphs, sentences
from mini_bert.corpora.reading import Report, identity, read

# --- from documentation to prose ---------------------------------------------------------------------------


def prose_of(text):
    return paragraphs(textwrap.dedent(text).strip("\n"))


def test_lines_are_joined_and_layout_goes():
    """Hard line breaks are removed; headings, underlines and signatures are dropped; paragraphs stay separate."""
    assert prose_of("""
        open(file, mode='r') -> file object

        Heading of a section
        ********************

        The file is opened for
        reading by default.

        A second paragraph follows on the first one.
        """) == ["The file is opened for reading by default.", "A second paragraph follows on the first one."]


def test_code_goes():
    """Doctests with their output, literal blocks after `::`, code directives and tables are removed."""
    assert prose_of("""
        Return the sum of all the items. For example::

            total = add_up(list of words that looks like a sentence)
            and this is a line of the block, too

        >>> add_up([1, 2])
        This is the output of the example

        .. code-block:: python

            The body of a directive is not read as text.

        =====  =========================
        name   This is the meaning of it
        =====  =========================

        The rest of the text is here again.
        """) == ["Return the sum of all the items.", "The rest of the text is here again."]


def test_parameter_lists_keep_their_sentences():
    """In a NumPy parameter list, the descriptions stay; names, types, See Also and References are dropped."""
    assert prose_of("""
        Parameters
        ----------
        axis : int, optional
            The axis along which the sum is taken. By default it is
            the last one.
        keepdims : bool
            If this is set, the axes are left in the result.

        Returns
        -------
        out : ndarray
            An array of the same shape as the input.

        See Also
        --------
        mean : the mean of all the items of an array

        References
        ----------
        .. [1] A book that is not in the corpus of the text.

        Notes
        -----
        The result is exact for integers [1]_.
        """) == [
        "The axis along which the sum is taken. By default it is the last one.",
        "If this is set, the axes are left in the result.",
        "An array of the same shape as the input.",
        "The result is exact for integers.",
    ]


def test_lists_and_fields_become_paragraphs():
    """Bullets, numbers and `:param x:` fields are removed; each item becomes a paragraph."""
    assert prose_of("""
        * the first of the items in
          the list
        2. Then there is a second item.

        :param name: the name of the file to be read
        :type name: a string that is not read
        """) == [
        "The first of the items in the list.",
        "Then there is a second item.",
        "The name of the file to be read.",
    ]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("Use :func:`~random.Random.seed` to set the ``state`` of it.", "Use seed to set the state of it."),
        ("This is *not* the **same** as `other`.", "This is not the same as other."),
        ("See `the manual <https://example.org>`_ for the rest.", "See the manual for the rest."),
        ('The "else" clause and the range() function are in it.', "The else clause and the range function are in it."),
        ("It’s a “quoted thing” – of a kind…", 'It\'s a "quoted thing" - of a kind...'),
        ("The mean :math:`\\mu` is one of the parameters.", "The mean mu is one of the parameters."),
    ],
)
def test_markup_goes(marked, plain):
    """Roles, links, emphasis, code marks and typographic quotes are removed; the text they marked stays."""
    assert sentences(marked) == [plain]


@pytest.mark.parametrize(
    "code",
    [
        "x = foo(bar) + the_rest of it",
        "int PyArg_ParseTuple(PyObject *args, const char *format)",
        "for i in range(10): print(i)",
        "if a[i] == b[j]: return the index of it",
        "-rw-r--r-- 1 root root 4096 the file",
        "alpha beta gamma delta epsilon zeta",
        "See https://example.org for all of the rest.",
        "where the mean is the first of them",
        "The density of the distribution is",
        "Gur Mra bs Clguba, ol Gvz Crgref",
        "Copyright (C 2001 by the authors of it",
    ],
)
def test_what_is_not_english_goes(code):
    """Code, listings, lists of names, addresses and incomplete sentences are dropped."""
    assert english(code) == ""


def test_a_paragraph_of_scraps_goes_as_a_whole():
    """A paragraph of which less than half reads as English is dropped entirely, because the rest would make no
    sense."""
    assert sentences("x = a[0] + b[1] * foo(c, d=e); y -> z; {k: v}. This is fine to read.") == []


def test_examples_in_docstrings():
    """Examples in docstrings give the outputs shown."""
    assert doctest.testmod(prose).failed == 0


# --- from installation to corpus ---------------------------------------------------------------------------

SOURCE = '''
"""The docstring of the module: it's \\"quoted\\"."""
raise SystemExit("this module was run")
# The first line of a comment, and
# a second one of it's kind.
x = "a short 'string' # with signs"  # a remark
def f():
    \'\'\'The docstring of a function.\'\'\'
    return f"""not {this}""", b"""nor this""", r"""A raw \\\\string is fine."""
'''


def test_strings_and_comments_are_found():
    """Strings and comments are found as by Python's lexer; quotes in comments, hash signs in strings and escapes do not
    confuse it."""
    assert list(source_texts(SOURCE)) == [
        'The docstring of the module: it\'s "quoted".',
        "The first line of a comment, and\na second one of it's kind.",
        "The docstring of a function.",
        "A raw \\\\string is fine.",
    ]


def test_sources_are_read_not_run(tmp_path):
    """A module that would exit the program when imported is read like any other. Tests and data are left out."""
    for name in ("pkg/__init__.py", "pkg/a.py", "pkg/test/b.py", "pkg/data.txt", "odd-name/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    assert [name for name, _ in sources(tmp_path, "top")] == ["top.pkg", "top.pkg.a"]
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in ("pip/b.py", "pip/__init__.py", "pip/tests/c.py", "pip/LICENSE"):
            wheel.writestr(name, SOURCE)
    assert [name for name, _ in wheel_sources(tmp_path / "a.whl")] == ["pip", "pip.b"]
    (tmp_path / "a.whl").write_bytes(b"no zip")
    assert list(wheel_sources(tmp_path / "a.whl")) == []


def test_near_duplicates_are_noticed():
    """A paragraph that differs by a name or a number, or has a few more words, is a duplicate. A different sentence is
    not."""
    new = Novelty()
    assert new("Refer to numpy.sum for the full documentation of this function.")
    assert not new("Refer to numpy.cumprod for the full documentation of this function.")
    assert not new("Please refer to ndarray.any for the full documentation of this function.")
    assert new("The array is sorted along the axis that was given.")
    assert new("Short one.") and not new("short one")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """An installation of forty modules, with its own cache folder."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    counts = itertools.count()

    def collected(notes):
        notes.append("the sources of nothing are not installed")
        next(counts)
        for number in range(40):
            words = ["alpha", "beta", "gamma", "delta", "omega", "kappa", "sigma", "theta", "lambda", "epsilon"]
            name = words[number % 10] + words[number // 10]
            yield f"source/{name}", [f"The {name} of {w} is {name} for the {w} and {name}." * 2 for w in words]
            yield "source/tiny", ["This one is too short."]

    monkeypatch.setattr(builtin, "collected", collected)
    monkeypatch.setattr(builtin, "helpers", lambda *_: nullcontext([]))  # a helper process would build the real corpus
    yield counts


def built(counts):
    return int(re.search(r"\d+", repr(counts))[0])


def test_it_is_split_by_document(small):
    """The name alone decides whether a document is in training or validation; documents that are too short are in
    neither."""
    everything = builtin.documents()
    train, validation = builtin.documents("train"), builtin.documents("validation")
    assert len(everything) == 40 and sorted(train + validation) == sorted(everything) and train
    assert all(in_validation(document.name) for document in validation)
    with pytest.raises(ValueError, match="no part 'test'"):
        builtin.documents("test")


def test_one_document_in_twenty_is_for_validation():
    """Of ten thousand names, about five hundred are in validation."""
    assert 420 < sum(in_validation(f"source/module{number}") for number in range(10_000)) < 600


def test_it_is_built_once(small, tmp_path):
    """The second time, the corpus comes from the cache. A damaged entry is rebuilt; it also works without a cache."""
    first = builtin.corpus()
    (entry,) = (tmp_path / "home" / "builtin").iterdir()
    assert builtin.corpus() == first and built(small) == 1
    lines = entry.read_text().splitlines()
    for damaged in (lines[:-1], [*lines[:-1], lines[-1][:50]], ["{}"], []):
        entry.write_text("\n".join(damaged))
        assert builtin.corpus() == first
    assert built(small) == 5
    assert json.loads(entry.read_text().splitlines()[0])["fingerprint"] == first.fingerprint
    entry.unlink()
    entry.parent.rmdir()
    entry.parent.write_text("a file where a folder should be")
    assert builtin.corpus() == first


def test_it_is_read_like_any_source(small):
    """`read("builtin:train")` gives its documents; the report lists what this installation lacks."""
    report = Report()
    passages = list(read("builtin:train", report))
    assert all(passage.first for passage in passages)
    assert [passage.text for passage in passages] == [document.text for document in builtin.documents("train")]
    assert "sources of nothing are not installed" in str(report) and str(report).startswith(
        f"{len(passages)} documents"
    )
    names = {identity("builtin"), identity("builtin:train"), identity("builtin:validation")}
    assert len(names) == 3 and identity("builtin") in names


def test_a_stripped_installation_says_so(monkeypatch, tmp_path):
    """Without sources and without the language reference, the docstrings of compiled modules remain, with a note about
    what is missing."""
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr("numpy.__file__", str(tmp_path / "numpy" / "__init__.py"))
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr(builtin, "C_MODULES", ())
    monkeypatch.setattr(builtin, "NUMPY_MODULES", ())
    corpus = build()
    assert sorted(corpus.notes) == [
        "the sources of NumPy are not installed",
        "the sources of Python's standard library are not installed",
        "this Python has no language reference (pydoc_data.topics)",
    ]
    assert any(document.name == "compiled/builtins" for document in corpus.documents)


def test_what_a_program_puts_into_a_module_is_not_python_s(monkeypatch):
    """Hooks in `sys` or a translator in `builtins`, written in Python, in C, or as methods, do not change the
    corpus."""

    class Host:
        """A callable object"""

        def hook(self, *error):
            """This is the hook of the host, and it is not in the corpus."""

        __call__ = hook

    before = [list(compiled_texts(module)) for module in (sys, builtins)]
    assert any("Handle an exception" in text for text in before[0]) and len(before[1]) > 500
    for hook in (Host().hook, Host(), Host.hook, math.sin, [].append, partial(Host().hook)):
        monkeypatch.setattr(sys, "excepthook", hook)
        monkeypatch.setattr(sys, "added", hook, raising=False)
        monkeypatch.setattr(builtins, "_", hook, raising=False)
        after = [list(compiled_texts(module)) for module in (sys, builtins)]
        assert [set(filter(None, texts)) for texts in after] == [set(filter(None, texts)) for texts in before]


SMALL_WORDS = re.compile(r"\b(?:the|a|an|of|to|is|are|in|for|and|or|not|that|this|it|with|as|if|by|on|be)\b", re.I)


def check_prose(documents):
    """What must hold for every line, and for the whole corpus."""
    text = "\n".join(document.text for document in documents)
    assert not re.search(r"[`{}<>\\|@^~]|>>>|::|==", text)
    lines = text.split("\n")
    assert all(line[0].isupper() or not line[0].isalpha() for line in lines)
    assert all(line[-1] in ".!?)\"'" for line in lines)
    assert len(set(lines)) == len(lines)
    words = text.split()
    assert sum(word.strip(".,;:()\"'").replace("-", "").isalpha() for word in words) > 0.93 * len(words)
    assert len(SMALL_WORDS.findall(text)) > 0.25 * len(words)


def test_the_reference_of_this_python_is_prose(monkeypatch):
    """The cleaned language reference has English lines, no code, no markup and no repeated line."""
    everything = builtin.collected
    reference = lambda notes: itertools.islice(everything(notes), 60)  # noqa: E731
    monkeypatch.setattr(builtin, "collected", reference)
    first, second = build(), build()
    assert first == second and sum(len(document.text) for document in first.documents) > 60_000
    assert all(document.name.startswith("reference/") for document in first.documents)
    check_prose(first.documents)


@pytest.mark.slow
def test_the_whole_corpus():
    """A full installation gives more than a million characters of English, 3 to 8 % for validation, and the same result
    twice."""
    first, second = build(), build()
    assert first == second
    check_prose(first.documents)
    size = {split: 0 for split in (False, True)}
    for document in first.documents:
        size[in_validation(document.name)] += len(document.text)
    print(f"{len(first.documents):,} documents, {sum(size.values()):,} characters, {size[True]:,} for validation")
    if first.notes:
        pytest.skip("; ".join(first.notes))
    assert sum(size.values()) > 1_000_000 and 0.03 < size[True] / sum(size.values()) < 0.08
    names = [document.name for document in first.documents]
    assert len(set(names)) == len(names)
