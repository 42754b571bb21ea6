"""The failover of a run of chaos: data and times to live stay, ids step back, and other clients lose their connections."""

from typing import Any

from cluster_serving.client import keys
from cluster_serving.node.chaos.failover import fail_over
from support.private_redis import PrivateRedis


def test_a_failover_keeps_the_data_and_sets_ids_back(own_redis: PrivateRedis) -> None:
    key, observed = keys.reply_key("job", "client"), keys.reply_key("job", "observer")
    client: Any
    other: Any
    with own_redis.client() as client, own_redis.client() as other:
        before = [client.xadd(each, {keys.BATCH: b"{}", "u": b"1"}) for each in (key, observed)]
        client.pexpire(key, 60_000)
        other.ping()

        fail_over(client, "job", but={observed.encode()})
        after = client.xadd(key, {keys.BATCH: b"{}", "u": b"2"})
        now_ms = 1000 * client.time()[0]

        assert [entry for entry, _ in client.xrange(key)] == [before[0], after]
        assert [entry for entry, _ in client.xrange(observed)] == before[1:]
        assert int(after.partition(b"-")[0]) <= now_ms + 1000
        assert 0 < client.pttl(key) <= 60_000
        assert len(client.client_list()) == 1
