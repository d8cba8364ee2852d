"""The primary is killed and its standby promoted: what was acknowledged is there, and writing goes on."""

from __future__ import annotations

import asyncio

from lamina.errors import StoreError
from lamina.stores import Once, Where, open_postgres
from tests.servers.postgres import postgres
from tests.servers.standby import promote, run_standby, url_of_both

GROUPS = 40
WHERE = Where("w", "c")


def test_nothing_that_was_acknowledged_is_lost_or_doubled() -> None:
    with postgres() as primary, run_standby(primary) as standby:

        async def fail_over() -> None:
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(promote, standby)

        async def write_groups() -> list[bytes]:
            async with open_postgres(url_of_both(primary, standby)) as store:
                trouble = None
                for number in range(GROUPS):
                    if number == GROUPS // 2:
                        trouble = asyncio.ensure_future(fail_over())
                    once = Once(key=str(number), digest=b"d" * 32)
                    while True:
                        try:
                            await store.append(WHERE, [b"%d" % number], once=once)
                            break
                        except StoreError:  # the connection was lost: a key makes it safe to try again
                            await asyncio.sleep(0.05)
                assert trouble is not None
                await trouble
                return [record.body for record in (await store.read(WHERE)).records]

        assert asyncio.run(write_groups()) == [b"%d" % number for number in range(GROUPS)]
