"""`lamina migrate`: brings the tables of an older release in PostgreSQL up to date, while they are in use."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import anyio

from lamina.cli.output import emit, tell
from lamina.cli.parser import add_json
from lamina.errors import BadInput
from lamina.settings import load_settings

if TYPE_CHECKING:
    from lamina.stores.postgres.migrate import MigrationPlan
    from lamina.stores.postgres.schema import TableVersion

_EXAMPLES = """\
Without --yes it only prints the plan. With --yes it adds the new columns and fills them in small steps, while
programs of the older release and of this one read and write. When no program of the older release runs any
more, --finish --yes takes away what only that release needed. A run that was interrupted is continued by the
next. It needs the address of the server, not that of a pooler.

Other stores need no migration: they are brought up to date by their first write.

examples:
  lamina migrate --store postgresql://lamina@db/chats
  lamina migrate --store postgresql://lamina@db/chats --yes
  lamina migrate --store postgresql://lamina@db/chats --finish --yes

exit status: 0 done, or nothing to do, 2 input that cannot be used, 4 the store refuses it
"""


def describe(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lamina migrate [--store STORE] [--finish] [--yes] [--json]"
    parser.epilog = _EXAMPLES
    parser.add_argument("--store", metavar="STORE", help="postgresql://...; by default, your store")
    parser.add_argument("--finish", action="store_true", help="no program of the older release runs any more")
    parser.add_argument("--yes", action="store_true", help="do it, instead of printing the plan")
    add_json(parser, "the version of the tables, and what is left to do")


def run(arguments: argparse.Namespace) -> int:
    address = arguments.store or load_settings().store_address()
    if not address.startswith(("postgresql://", "postgres://")):
        hint = "other stores are brought up to date by their first write"
        raise BadInput("only tables in PostgreSQL are migrated", place="store", hint=hint)
    return anyio.run(_migrate, address, arguments)


async def _migrate(address: str, arguments: argparse.Namespace) -> int:
    try:
        from lamina.stores.postgres.migrate import migrate_tables, plan_migration  # noqa: PLC0415 - an extra
    except ImportError:
        hint = "pip install 'lamina-context[postgres]'"
        raise BadInput("the PostgreSQL store needs psycopg", place="store", hint=hint) from None
    plan = await plan_migration(address)
    tables = plan.tables
    if arguments.yes:
        tables = await migrate_tables(address, finish=arguments.finish, report=tell)
        plan = await plan_migration(address)
    if arguments.json:
        emit(_as_json(plan))
    else:
        _print_plan(plan, tables, was_run=arguments.yes)
    return 0


def _as_json(plan: MigrationPlan) -> dict[str, Any]:
    return {
        "version": plan.tables.finished,
        "expanded": plan.tables.expanded,
        "newest": plan.newest,
        "before": list(plan.before),
        "after": list(plan.after),
    }


def _print_plan(plan: MigrationPlan, tables: TableVersion, *, was_run: bool) -> None:
    if not tables.finished:
        print("there are no tables yet: the first program makes them")
        return
    if tables.finished == plan.newest:
        print(f"the tables are of version {plan.newest}, the newest: nothing is left to do")
        return
    print(f"the tables are of version {tables.finished}, and this release writes version {plan.newest}")
    print("while programs of the older release run (--yes):")
    for purpose in plan.before:
        print(f"  {purpose}")
    print("when none of them runs any more (--finish --yes):")
    for purpose in plan.after:
        print(f"  {purpose}")
    if was_run:
        tell("programs of both releases can write; end the older ones, then: lamina migrate --finish --yes")
