"""What clients hear of the cluster's features."""

from broker_transaction_samples import ID, VERSION_2, Broker, Client, simulated

from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import Error


def test_clients_hear_of_what_is_built() -> None:
    """Not of share and streams groups, though the log has their levels."""

    async def scenario(broker: Broker) -> None:
        told = await broker.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        supported = {one.name: (one.min_version, one.max_version) for one in told.supported_features}
        finalized = {one.name: one.max_version_level for one in told.finalized_features}
        assert supported["group.version"] == (0, 1)
        assert supported["transaction.version"] == (0, 2)
        assert (finalized["group.version"], finalized["transaction.version"]) == (1, 2)
        assert not {"share.version", "streams.version"} & (supported.keys() | finalized.keys())
        assert broker.node.metadata.image.features["share.version"] == 1, "as Kafka's own nodes expect it"
        for level, error in ((0, Error.NONE), (1, Error.INVALID_UPDATE_VERSION)):
            update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=1 + (level == 0))
            assert (await broker.send(UpdateFeaturesRequest(feature_updates=[update]))).error_code == error

    simulated(scenario)


def test_a_cluster_below_transaction_version_2_raises_no_epoch_at_the_end() -> None:
    """The level is the cluster's: what was written before stays readable for nodes that know no more."""

    async def scenario(broker: Broker) -> None:
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=0, upgrade_type=2)
        assert (await broker.send(UpdateFeaturesRequest(feature_updates=[update]))).error_code == Error.NONE
        client = Client(broker, {"produce": 11, "end": 4, "offsets": 4})
        await client.take_over()
        before = client.me
        await client.write("a")
        assert await client.end(commit=True) is Error.NONE
        again = await broker.restarted()
        described = await again.send(DescribeTransactionsRequest(transactional_ids=[ID]))
        state = described.transaction_states[0]
        assert (state.producer_id, state.producer_epoch) == before
        assert await again.read() == ["a"]
        await Client(again, VERSION_2).take_over()

    simulated(scenario)
