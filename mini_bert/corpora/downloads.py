"""Data sets by name, from their publishers: `mini-bert data list`, `mini-bert data get wikitext-2`.

    from mini_bert.corpora.downloads import get

    folder = get("sst2")  # fetched once, then found in the cache folder

They lie in `data/NAME/` in the cache folder (MINI_BERT_HOME, or the system's place for caches), with `data/NAME.json`
beside: where each file came from, its sha256, and the size and sha256 of everything that was unpacked from it.

Checksums. Most files are *pinned*: their sha256, published elsewhere, stands in the table below, and any other content
is refused. For the others no value is known with certainty, so the first download is trusted, its sha256 is written
down in NAME.json, and later downloads must agree with it. `data list` says which is which.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mini_bert.common.atomic import put_in_place, recover_folder, unfinished_folder, write_atomic
from mini_bert.common.cache_folder import cache_folder, make_folder
from mini_bert.common.invocation import command
from mini_bert.common.progress import counted
from mini_bert.corpora.fetching import DiskFull, DownloadError, fetch, hash_file, locked
from mini_bert.corpora.unpacking import is_archive, unpack


@dataclass(frozen=True)
class Remote:
    url: str
    sha256: str | None = None  # None: not known; the first download is trusted
    size: int | None = None

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Dataset:
    about: str
    licence: str
    files: tuple[Remote, ...]
    text: dict[str, str]  # what `corpora.read("NAME:part")` reads: part -> pattern; empty: not a corpus of text
    begins: str | None = None  # how the paragraph looks that begins a document, a regular expression; None: each does

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
        "CC BY-SA",
        (
            Remote(
                "https://wikitext.smerity.com/wikitext-2-raw-v1.zip",
                "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
                4_721_645,
            ),
        ),
        WIKITEXT_PARTS,
        WIKITEXT_TITLE,
    ),
    "wikitext-103": Dataset(
        "Good and featured Wikipedia articles, 103 million words (Merity et al. 2016)",
        "CC BY-SA",
        (
            Remote(
                "https://wikitext.smerity.com/wikitext-103-raw-v1.zip",
                "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
                191_984_949,
            ),
        ),
        WIKITEXT_PARTS,
        WIKITEXT_TITLE,
    ),
    "tiny-shakespeare": Dataset(
        "40,000 lines of Shakespeare (Karpathy 2015)",
        "public domain",
        (
            Remote(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                1_115_394,
            ),
        ),
        {"train": "input.txt"},
    ),
    "imdb": Dataset(
        "100,000 film reviews, 50,000 of them with a verdict (Maas et al. 2011)",
        "for research; no explicit licence",
        (
            Remote(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                84_125_825,
            ),
        ),
        {"train": "*/train/*/*.txt", "test": "*/test/*/*.txt"},
    ),
    "sst2": Dataset(
        "Sentiment of sentences from film reviews, two classes (Socher et al. 2013, as in GLUE)",
        "for research; no explicit licence",
        (
            Remote(
                GLUE + "SST-2.zip",
                "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
                7_439_277,
            ),
        ),
        GLUE_PARTS,
    ),
    "stsb": Dataset(
        "Pairs of sentences, how similar they are from 0 to 5 (Cer et al. 2017, as in GLUE)",
        "CC BY-SA 4.0; sentences from several sources",
        (Remote(GLUE + "STS-B.zip", "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85", 802_872),),
        {},
    ),
    "cola": Dataset(
        "Is this sentence English? (Warstadt et al. 2018, as in GLUE)",
        "for research; no explicit licence",
        (Remote(GLUE + "CoLA.zip", "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff", 376_971),),
        {},
    ),
    "mnli": Dataset(
        "Does one sentence follow from another? (Williams et al. 2018, as in GLUE)",
        "OANC and others",
        (Remote(GLUE + "MNLI.zip", "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633", 312_783_507),),
        {},
    ),
    "squad": Dataset(
        "Questions on Wikipedia paragraphs, answers in the text, version 1.1 (Rajpurkar et al. 2016)",
        "CC BY-SA 4.0",
        (
            Remote(
                SQUAD + "train-v1.1.json",
                "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
                30_288_272,
            ),
            Remote(
                SQUAD + "dev-v1.1.json",
                "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
                4_854_279,
            ),
        ),
        {},
    ),
    "squad2": Dataset(
        "SQuAD with questions that have no answer, version 2.0 (Rajpurkar et al. 2018)",
        "CC BY-SA 4.0",
        (
            Remote(
                SQUAD + "train-v2.0.json",
                "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
                42_123_633,
            ),
            Remote(
                SQUAD + "dev-v2.0.json",
                "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
                4_370_528,
            ),
        ),
        {},
    ),
    "wnut17": Dataset(
        "Named entities in noisy text, six types (Derczynski et al. 2017)",
        "CC BY 4.0",
        (
            Remote(
                WNUT + "wnut17train.conll",
                "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
                493_781,
            ),
            Remote(
                WNUT + "emerging.dev.conll",
                "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
                114_749,
            ),
            Remote(
                WNUT + "emerging.test.annotated",
                "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
                192_425,
            ),
        ),
        {},
    ),
    "ud-ewt": Dataset(
        "English web text with parts of speech and dependencies (Universal Dependencies EWT)",
        "CC BY-SA 4.0; texts partly of their authors",
        (
            Remote(
                UD_EWT + "en_ewt-ud-train.conllu",
                "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
                14_203_025,
            ),
            Remote(UD_EWT + "en_ewt-ud-dev.conllu"),
            Remote(UD_EWT + "en_ewt-ud-test.conllu"),
        ),
        {},
    ),
}


def data_folder() -> Path:
    return cache_folder("data")


def _known(name: str) -> Dataset:
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"there is no download named {name!r}; {hint}There are {', '.join(DATASETS)}")
    return DATASETS[name]


def _record(name: str) -> dict[str, Any]:
    """What was written down at the last download: {"sources": {url: sha256}, "files": {name: [size, sha256]}}"""
    with suppress(OSError, ValueError):
        record = json.loads((data_folder() / f"{name}.json").read_text(encoding="utf-8"))
        if isinstance(record, dict) and {"sources", "files"} <= set(record):
            return record
    return {"sources": {}, "files": {}}


def installed(name: str, thorough: bool = False) -> bool:
    """Is it there, every file of its size (thorough: and of its sha256)?"""
    folder, files = data_folder() / name, _record(name)["files"]
    if not files or not folder.is_dir():
        return False
    for file, (size, sha256) in files.items():
        path = folder / file
        if not path.is_file() or path.stat().st_size != size or (thorough and hash_file(path) != sha256):
            return False
    return True


def get(name: str, force: bool = False) -> Path:
    """The folder of a data set, fetched if it is not there, or not as it was. `force`: fetch it in any case."""
    dataset, folder = _known(name), data_folder() / name
    make_folder(data_folder())
    with locked(data_folder() / f".{name}.lock", lambda: print(f"waiting: another process is fetching {name} ...")):
        recover_folder(folder)
        if not force and installed(name, thorough=True):
            return folder
        sources = _record(name)["sources"]
        try:
            with unfinished_folder(folder) as new:
                for remote in dataset.files:
                    arrived = data_folder() / f".{name}-{remote.name}"
                    known = remote.sha256 or sources.get(remote.url)
                    advice = "" if remote.sha256 else f"If you trust the new one, delete {name}.json in {data_folder()}"
                    sources[remote.url] = fetch(remote.url, arrived, known, remote.size, advice)
                    if is_archive(Path(remote.name)):
                        unpack(arrived, new)
                        arrived.unlink()
                    else:
                        os.replace(arrived, new / remote.name)
                files = {
                    path.relative_to(new).as_posix(): (path.stat().st_size, hash_file(path))
                    for path in sorted(new.rglob("*"))
                    if path.is_file()
                }
                put_in_place(new, folder)
            record = {"sources": sources, "files": files}
            write_atomic(data_folder() / f"{name}.json", json.dumps(record, indent=1).encode())
        except OSError as error:
            if isinstance(error, DownloadError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DiskFull(f"the disk is full while {name} is installed in {data_folder()}; free some space") from error
    return folder


def corpus_files(source: str) -> list[Path]:
    """The files of a data set that hold text: "wikitext-2" or "wikitext-2:train", "wikitext-2:validation", …"""
    name, _, part = source.partition(":")
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, 1)
        hint = (
            f" Did you mean the download {close[0]}?"
            if close
            else f" (`{command('data', 'list')}` shows what can be had)"
        )
        raise FileNotFoundError(f"there is no file, folder or download {source!r}.{hint}")
    dataset, folder = DATASETS[name], data_folder() / name
    if not installed(name):
        state = "has changed since it was fetched" if folder.exists() else "is not here yet"
        raise FileNotFoundError(f"the data set {name} {state}; fetch it: `{command('data', 'get', name)}`")
    if not dataset.text:
        raise ValueError(f"{name} is data for a task, not a corpus to read; its files are in {folder}")
    if (part or "train") not in dataset.text:
        raise ValueError(f"{name} has no part {part!r}; expected {', '.join(dataset.text)}")
    pattern = dataset.text[part or "train"]
    return [folder / file for file in sorted(_record(name)["files"]) if fnmatch(file, pattern)]


# --- the commands ------------------------------------------------------------------------------------------


def list_command() -> None:
    """Print every data set: how large, whether it is here, how its content is checked."""
    for name, dataset in DATASETS.items():
        state = "here" if installed(name) else ""
        check = "pinned" if dataset.pinned else "first use"
        more = " " if all(file.size for file in dataset.files) else "+"  # of some files the size is not known
        size = f"{dataset.size / 1e6:.1f}{more}MB"
        print(f"{name:<17}{size:>9}  {check:<10}{state:<5} {dataset.about} [{dataset.licence}]")
    print("\npinned: the sha256 of every file is known and checked.")
    print("first use: for some files none is known; the first download is trusted, later ones must agree with it.")
    print(f"They are kept in {data_folder()}. Fetch one: {command('data', 'get', 'NAME')}")


def get_command(names: list[str], force: bool = False) -> None:
    """Fetch data sets and print where they are."""
    for name in names:
        _known(name)  # before the first download begins
    for name in names:
        here = not force and installed(name)
        folder = get(name, force)
        count = len(_record(name)["files"])
        print(f"{name}: {counted(count, 'file')} in {folder}{' (was here, checked)' if here else ''}")
