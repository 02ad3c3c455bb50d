"""Data sets that can be downloaded by name: `mini-bert data list`, `mini-bert data get wikitext-2`.

    from mini_bert.corpora.downloads import get

    folder = get("sst2")  # downloaded once, then found in the cache folder

A data set is stored in `data/NAME/` in the cache folder, complete or not at all. `data/NAME.json` beside it records the
sha256 of each file that was downloaded for it.

Checksums. Most files are *pinned*: their published sha256 is in the table below, and any other content is refused. For
the others no reliable value is known, so the first download is trusted, its sha256 is recorded in NAME.json, and later
downloads must match it. `data list` shows which is which.
"""

from __future__ import annotations

import difflib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mini_bert.common.atomic import put_in_place, recover_folder, unfinished_folder, write_atomic
from mini_bert.common.cache_folder import cache_folder, make_folder
from mini_bert.common.invocation import command
from mini_bert.common.json_values import read_json
from mini_bert.corpora.fetching import FULL, DownloadError, fetch, is_archive, unpack


@dataclass(frozen=True)
class Remote:
    url: str
    sha256: str | None = None  # None: unknown; the first download is trusted
    size: int | None = None

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Dataset:
    about: str
    licence: str
    files: tuple[Remote, ...]
    text: dict[str, str]  # part -> pattern of the files that `read("NAME:part")` reads; empty: not a text corpus
    begins: str | None = None  # regular expression of a document's first paragraph; None: each is a document

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)

    @property
    def pinned(self) -> bool:
        return all(file.sha256 for file in self.files)


GLUE = "https://dl.fbaipublicfiles.com/glue/data/"
SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
WNUT = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master/"
UD_EWT = (
    "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/15d613d8447b3478787d4c278730a1e48a945efb/"
)
WIKITEXT_PARTS = {"train": "*/wiki.train.raw", "validation": "*/wiki.valid.raw", "test": "*/wiki.test.raw"}
WIKITEXT_TITLE = r"= [^=].* =$"  # "= Gold dollar =" is an article, "= = Origins = =" a section of it
GLUE_PARTS = {"train": "*/train.tsv", "validation": "*/dev.tsv", "test": "*/test.tsv"}

DATASETS = {
    "wikitext-2": Dataset(
        "Good and featured Wikipedia articles, 2 million words (Merity et al. 2016)",
        "CC BY-SA", (
            Remote("https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
                   "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11", 4_721_645),
        ), WIKITEXT_PARTS, WIKITEXT_TITLE),
    "wikitext-103": Dataset(
        "Good and featured Wikipedia articles, 103 million words (Merity et al. 2016)",
        "CC BY-SA", (
            Remote("https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
                   "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794", 191_984_949),
        ), WIKITEXT_PARTS, WIKITEXT_TITLE),
    "tiny-shakespeare": Dataset(
        "40,000 lines of Shakespeare (Karpathy 2015)",
        "public domain", (
            Remote("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                   "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", 1_115_394),
        ), {"train": "input.txt"}),
    "imdb": Dataset(
        "100,000 film reviews, 50,000 of them labelled (Maas et al. 2011)",
        "for research; no explicit licence", (
            Remote("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                   "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe", 84_125_825),
        ), {"train": "*/train/*/*.txt", "test": "*/test/*/*.txt"}),
    "sst2": Dataset(
        "Sentiment of sentences from film reviews, two classes (Socher et al. 2013, as in GLUE)",
        "for research; no explicit licence", (
            Remote(GLUE + "SST-2.zip",
                   "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa", 7_439_277),
        ), GLUE_PARTS),
    "stsb": Dataset(
        "Sentence pairs with similarity scores from 0 to 5 (Cer et al. 2017, as in GLUE)",
        "CC BY-SA 4.0; sentences from several sources", (
            Remote(GLUE + "STS-B.zip",
                   "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85", 802_872),
        ), {}),
    "cola": Dataset(
        "Is this sentence grammatical? (Warstadt et al. 2018, as in GLUE)",
        "for research; no explicit licence", (
            Remote(GLUE + "CoLA.zip",
                   "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff", 376_971),
        ), {}),
    "mnli": Dataset(
        "Does one sentence follow from another? (Williams et al. 2018, as in GLUE)",
        "OANC and others", (
            Remote(GLUE + "MNLI.zip",
                   "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633", 312_783_507),
        ), {}),
    "squad": Dataset(
        "Questions on Wikipedia paragraphs, answers in the text, version 1.1 (Rajpurkar et al. 2016)",
        "CC BY-SA 4.0", (
            Remote(SQUAD + "train-v1.1.json",
                   "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955", 30_288_272),
            Remote(SQUAD + "dev-v1.1.json",
                   "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9", 4_854_279),
        ), {}),
    "squad2": Dataset(
        "SQuAD with questions that have no answer, version 2.0 (Rajpurkar et al. 2018)",
        "CC BY-SA 4.0", (
            Remote(SQUAD + "train-v2.0.json",
                   "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002", 42_123_633),
            Remote(SQUAD + "dev-v2.0.json",
                   "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8", 4_370_528),
        ), {}),
    "wnut17": Dataset(
        "Named entities in noisy text, six types (Derczynski et al. 2017)",
        "CC BY 4.0", (
            Remote(WNUT + "wnut17train.conll",
                   "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5", 493_781),
            Remote(WNUT + "emerging.dev.conll",
                   "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8", 114_749),
            Remote(WNUT + "emerging.test.annotated",
                   "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0", 192_425),
        ), {}),
    "ud-ewt": Dataset(
        "English web text with parts of speech and dependencies (Universal Dependencies EWT)",
        "CC BY-SA 4.0; some texts belong to their authors", (
            Remote(UD_EWT + "en_ewt-ud-train.conllu",
                   "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b", 14_203_025),
            Remote(UD_EWT + "en_ewt-ud-dev.conllu"),
            Remote(UD_EWT + "en_ewt-ud-test.conllu"),
        ), {}),
}  # fmt: skip


def data_folder() -> Path:
    return cache_folder("data")


def dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise ValueError(f"there is no data set named {name!r}. {_hint(name)}")
    return DATASETS[name]


def _hint(name: str) -> str:
    close = difflib.get_close_matches(name, DATASETS, 1)
    return f"Did you mean {close[0]}?" if close else f"`{command('data', 'list')}` lists the data sets"


def _record(name: str) -> dict[str, str]:
    """The sha256 of each address of the last download."""
    with suppress(OSError, ValueError):
        return dict(read_json(data_folder() / f"{name}.json")["sources"])
    return {}


def installed(name: str) -> list[Path]:
    """The files of a data set, sorted; an empty list if it is not installed."""
    return sorted(path for path in (data_folder() / name).rglob("*") if path.is_file())


def get(name: str, force: bool = False) -> Path:
    """The folder of a data set. It is downloaded if it is missing, or in any case with `force`."""
    from filelock import FileLock, Timeout

    files, folder = dataset(name).files, data_folder() / name
    make_folder(data_folder())
    lock = FileLock(data_folder() / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting: another process is downloading {name} ...")
        lock.acquire()
    try:
        recover_folder(folder)
        if force or not installed(name):
            _download(name, files, folder)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DownloadError(
            f"the disk is full, cannot install {name} in {data_folder()}; free some space and try again, or set "
            "MINI_BERT_HOME to a folder on another disk"
        ) from error
    finally:
        lock.release()
    return folder


def _download(name: str, files: tuple[Remote, ...], folder: Path) -> None:
    sources = _record(name)
    with unfinished_folder(folder) as new:
        for remote in files:
            path = data_folder() / f".{name}-{remote.name}"
            known = remote.sha256 or sources.get(remote.url)
            advice = "" if remote.sha256 else f"If you trust the new file, delete {name}.json in {data_folder()}"
            sources[remote.url] = fetch(remote.url, path, known, advice)
            if is_archive(remote.name):
                unpack(path, new)
                path.unlink()
            else:
                os.replace(path, new / remote.name)
        put_in_place(new, folder)
    write_atomic(data_folder() / f"{name}.json", json.dumps({"sources": sources}, indent=1).encode())


def corpus_files(source: str) -> list[Path]:
    """The text files of a data set: "wikitext-2" or "wikitext-2:train", "wikitext-2:validation", …"""
    name, _, part = source.partition(":")
    if name not in DATASETS:
        raise FileNotFoundError(f"there is no file, folder or data set {source!r}. {_hint(name)}")
    parts, folder, files = DATASETS[name].text, data_folder() / name, installed(name)
    if not files:
        raise FileNotFoundError(f"the data set {name} is not installed; download it: `{command('data', 'get', name)}`")
    if not parts:
        raise ValueError(f"{name} is a labelled data set, not a text corpus; its files are in {folder}")
    if (part or "train") not in parts:
        raise ValueError(f"{name} has no part {part!r}; expected {', '.join(parts)}")
    return [path for path in files if fnmatch(path.relative_to(folder).as_posix(), parts[part or "train"])]


def overview() -> str:
    """A line for each data set: its size, how its content is checked, whether it is installed."""
    lines = []
    for name, data in DATASETS.items():
        check = "pinned" if data.pinned else "first use"
        more = " " if all(file.size for file in data.files) else "+"  # some sizes are unknown
        state = "installed" if installed(name) else ""
        size = f"{data.size / 1e6:.1f}{more}MB"
        lines.append(f"{name:<17}{size:>9}  {check:<10}{state:<10}{data.about} [{data.licence}]")
    return "\n".join(lines) + (
        "\n\npinned: the sha256 of every file is known and checked.\n"
        "first use: some sha256 are unknown; the first download is trusted, and later ones must match it.\n"
        f"Data sets are stored in {data_folder()}. Download one: {command('data', 'get', 'NAME')}"
    )
