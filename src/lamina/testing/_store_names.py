"""What a store promises about names: any text can be one, names stay apart, and lists are in their order."""

from __future__ import annotations

from lamina.errors import BadInput
from lamina.stores.paging import every_conversation
from lamina.stores.port import (
    HEADER,
    OWN_PREFIXES,
    RECORDED,
    ListedConversation,
    Once,
    OwnName,
    RecordPage,
    Rekeyable,
    StoredHead,
    Where,
)
from lamina.testing._store_trial import (
    StorePromise,
    StoreTrial,
    expect_bodies,
    expect_count,
    expect_error,
    expect_names,
    expect_value,
    make_bodies,
    number_bodies,
)
from lamina.testing.cases import expect_equal

ODD_NAMES = (
    "ünï·cødé 漢字 🦉",
    "a/b",
    "..",
    "../../x",
    "a\\b",
    "'",
    '"; DROP TABLE record; --',
    "%",
    "_",
    "*",
    "CON",
    " ",
    "a.b",
    "A",
    "a",
    "~",
    "\n\t",
    "\x01",
    "e\u0301",
    "\u00e9",
    "\u202e",
    "-",
    "x" * 200,
    "é" * 120,
)
NO_NAMES = ("nul\0", "\ud800", "")


async def workspaces_are_apart(trial: StoreTrial) -> None:
    """The same name in two workspaces is two conversations."""
    here = trial.where
    there = Where(f"{trial.workspace}-other", here.conversation)
    once = Once(key="k", digest=b"d")
    async with trial.open() as store:
        await store.append(here, [b"here"], once=once, state=b"mine")
        await expect_value(store.read(there), RecordPage())
        await expect_value(store.list(there.workspace), [])
        await expect_value(store.append(there, [b"1", b"2"], expect=0, once=once), StoredHead(count=2))
        await expect_value(store.delete(there), value=True)
        await expect_value(
            store.read(here),
            RecordPage(records=number_bodies(b"here"), head=StoredHead(count=1, state=b"mine")),
        )


async def a_list_goes_page_by_page(trial: StoreTrial) -> None:
    """Names in the order of their characters, each once, with their counts."""
    names = ["b", "a", "é", "Z", "a/b", "aa", "漢", "🦉", "_", "10", "9"]
    async with trial.open() as store:
        for count, name in enumerate(names, 1):
            await store.append(Where(trial.workspace, name), make_bodies(count))
        whole = [ListedConversation(conversation=name, count=names.index(name) + 1) for name in sorted(names)]
        await expect_value(store.list(trial.workspace), whole)
        pages = [each async for each in every_conversation(store, trial.workspace, page=3)]
        expect_equal(pages, whole)
        await expect_value(store.list(trial.workspace, limit=3), whole[:3])
        await expect_value(store.list(trial.workspace, limit=0), [])
        await expect_value(store.list(trial.workspace, limit=2**70), whole)
        await expect_value(
            store.list(trial.workspace, after="b\0"), [one for one in whole if one.conversation > "b"]
        )


async def odd_names_stay_apart(trial: StoreTrial) -> None:
    """Any text names a conversation, a workspace or a key; what cannot be kept as it is, is refused."""
    async with trial.open() as store:
        places = [Where(trial.workspace, name) for name in ODD_NAMES]
        places += [Where(f"{trial.workspace}/{name}", "c") for name in ODD_NAMES]
        for where in places:
            await store.append(
                where, [repr(where).encode()], expect=0, once=Once(key=where.conversation, digest=b"d")
            )
        for where in places:
            await expect_bodies(store.read(where), [repr(where).encode()], repr(where))
        await expect_names(store.list(trial.workspace), sorted(ODD_NAMES))
        for where in places:
            await expect_value(store.delete(where), value=True)
        await expect_value(store.list(trial.workspace), [])


async def names_that_cannot_be_kept_are_refused(trial: StoreTrial) -> None:
    """NUL, lone surrogates and nothing at all are BadInput; a name may be too long, never be cut."""
    async with trial.open() as store:
        for name in NO_NAMES:
            where = Where(trial.workspace, name)
            await expect_error(store.append(where, [b"x"]), BadInput)
            await expect_error(store.read(where), BadInput)
            await expect_error(store.delete(where), BadInput)
        for end in ("a", "b"):
            try:
                await store.append(Where(trial.workspace, "n" * 100_000 + end), [end.encode()], expect=0)
            except BadInput:
                continue
            await expect_bodies(store.read(Where(trial.workspace, "n" * 100_000 + end)), [end.encode()])


async def names_of_lamina_are_refused(trial: StoreTrial) -> None:
    """A workspace that only lamina itself uses is BadInput for every caller that names it by a string."""
    async with trial.open() as store:
        for prefix in OWN_PREFIXES:
            workspace = f"{prefix}{trial.workspace}"
            where = Where(workspace, "c")
            await expect_error(store.append(where, [b"x"]), BadInput)
            await expect_error(store.read(where), BadInput)
            await expect_error(store.delete(where), BadInput)
            await expect_error(store.list(workspace), BadInput)
            if isinstance(store, Rekeyable):
                await expect_error(store.replace(where, {}, expect=0), BadInput)
        await expect_error(store.append(Where(str(HEADER.workspace), "header"), [b"x"]), BadInput)
        record = Where(OwnName(f"{RECORDED}{trial.workspace}"), "c")
        await expect_count(store.append(record, [b"request"]), 1)
        await expect_value(store.list(record.workspace), [ListedConversation(conversation="c", count=1)])
        await expect_value(store.delete(record), value=True)


NAMES: tuple[StorePromise, ...] = (
    workspaces_are_apart,
    a_list_goes_page_by_page,
    odd_names_stay_apart,
    names_that_cannot_be_kept_are_refused,
    names_of_lamina_are_refused,
)
