"""`lamina rekey`: gives every conversation of a sealed store a new key, while it is in use."""

from __future__ import annotations

import argparse

import anyio

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.cli.stored import add_store, find_key, open_named_store, read_or_make_key
from lamina.errors import BadInput

_EXAMPLES = """\
The new key is added and made the primary one, every conversation gets a new data key, its records are sealed
anew in small steps, and the old key is retired once nothing needs it. Readers and writers go on; a run that
was interrupted is continued by the next.

examples:
  lamina rekey --store chats.db --key-file old.key --new-key-file new.key
  lamina rekey --store chats.db --key-file new.key   # new data keys, same key

exit status: 0 done, 2 input that cannot be used, 4 the store refuses it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "lamina rekey [--new-key-file FILE] [--store STORE] [--workspace NAME]\n"
        "             [--key-file FILE] [--json]"
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--new-key-file", metavar="FILE", help="the key to go over to; made if it is not there"
    )
    add_store(parser)
    add_json(parser, "how many conversations and records were sealed anew")


def run(arguments: argparse.Namespace) -> int:
    if anyio.run(find_key, arguments.key_file) is None:
        hint = "give --key-file, or LAMINA_KEY; to seal a plain store, copy it: lamina conversations copy"
        raise BadInput("there is no key", place="rekey", hint=hint)
    return anyio.run(_rekey_store, arguments)


async def _rekey_store(arguments: argparse.Namespace) -> int:
    from lamina.stores.sealed import (  # noqa: PLC0415 - an extra
        Sealed,
        add_key,
        conversations,
        finish,
        make_primary,
        rekey,
        retire,
        rewrap,
    )

    async with open_named_store(arguments) as (store, _):
        if not isinstance(store, Sealed):
            raise BadInput("the store is not sealed", place="rekey", hint="give the store and its key")
        old = (await store.vault.primary()).id
        new = old
        if arguments.new_key_file:
            key = await anyio.to_thread.run_sync(read_or_make_key, arguments.new_key_file)
            new = await add_key(store, key)
            await make_primary(store, new)
            await rewrap(store)
        places = [where async for where in conversations(store)]
        records = 0
        for done, where in enumerate(places, start=1):
            records += await rekey(store, where)
            await finish(store, where)
            tell(f"{done} of {len(places)} conversations")
        if new != old:
            await retire(store, old)
        scrub = getattr(store.store, "scrub", None)
        if scrub is not None:
            await scrub()  # else what was sealed under the old key may still stand in the file
    if arguments.json:
        emit({"conversations": len(places), "records": records})
    return 0
