"""Safety checks of the node, each taken out by itself. Code that moves one of them changes this list with it."""

from mutate import Mutant

ANSWERS = "ottla.broker.network.answers"
HALF_FRAME = "ottla.broker.network.half_frame"
PARTITION = "ottla.broker.partitions.partition"
PRODUCE = "ottla.broker.handlers.produce"
RAFT_LOG = "ottla.broker.controller.raft_log"
PRODUCERS = "ottla.core.log.producers"
TRANSACTIONS = "ottla.core.transactions.shard"
HOSTED = "ottla.broker.coordinators.hosted_shard"

MUTANTS = [
    # Writing.
    Mutant(
        "duplicates-appended",
        PRODUCERS,
        "if origin is AppendOrigin.CLIENT and (duplicate := _find_duplicate(known, header)):",
        "if False and (duplicate := _find_duplicate(known, header)):",
        "a batch sent again is refused or stands twice",
    ),
    Mutant("sequence-unchecked", PRODUCERS, "self._check_sequence(known, header, offset)", "pass", "gaps accepted"),
    Mutant(
        "sequences-lost-on-restart",
        PRODUCERS,
        "restored.by_id = {producer.producer_id: producer for producer in producers}",
        "restored.by_id = {}",
        "a node that comes back has forgotten its producers",
    ),
    Mutant(
        "acknowledged-before-sync",
        PRODUCE,
        "if acks and (commit := partition.committed(partition.leader_epoch, appended.last_offset + 1)) is not None:",
        "if commit := None:",
        "acks taken back",
    ),
    Mutant(
        "lane-past-the-sync",
        PARTITION,
        "self.takes_runs = not self.log.state.flushes_messages and self._is_enough_in_sync",
        "self.takes_runs = self._is_enough_in_sync",
        "acks of the short way taken back",
    ),
    Mutant(
        "storage-error-swallowed",
        PRODUCE,
        "if refusal is not None:",
        "if False:",
        "an answer that the disk cannot keep is given all the same",
    ),
    # Reading.
    Mutant(
        "readable-before-sync",
        PARTITION,
        "elif size:",
        "if size:",
        "reads taken back",
    ),
    Mutant(
        "recovered-readable-before-sync",
        PARTITION,
        "log.advance_high_watermark(log.recovery_point)",
        "log.advance_high_watermark(log.end_offset)",
        "what a killed process left is read before it is synced",
    ),
    Mutant(
        "fetch-above-watermark",
        PARTITION,
        "return log.last_stable_offset if committed_only else log.high_watermark",
        "return log.end_offset",
        "what may be lost is read",
    ),
    Mutant(
        "waiter-never-woken",
        PARTITION,
        "waiter.grown(grown, stable_grown)",
        "pass",
        "long polls end by time only",
        test="broker/partitions/test_broker_long_poll.py::test_the_end_of_a_transaction_answers_a_reader_of_what_is_committed",
    ),
    Mutant(
        "waiter-left-behind",
        "ottla.broker.partitions.waiters",
        'is gone."""\n        self._leave()',
        'is gone."""',
        "waiters of clients that are gone pile up",
    ),
    # Connections.
    Mutant(
        "answers-out-of-order",
        ANSWERS,
        'waiting.answer = cast("Frame | Hangup", result)',
        'waiting.answer = cast("Frame | Hangup", result)\n'
        "        if waiting in self._open:\n"
        "            self._open.remove(waiting)\n"
        "            self._open.appendleft(waiting)",
        "an answer passes those before it",
    ),
    Mutant(
        "half-frame-lost",
        HALF_FRAME,
        "self._buffer[: self._filled] = begun",
        "pass",
        "garbage is read",
    ),
    Mutant(
        "shared-buffer-kept",
        HALF_FRAME,
        "self._buffer: PooledBuffer = pool.take(needed)\n        self._buffer[: self._filled] = begun",
        "self._buffer: PooledBuffer = begun.obj\n        self._buffer[: self._filled] = bytes(begun)",
        "the buffer is used again while half a frame is in it",
    ),
    Mutant(
        "no-back-pressure",
        ANSWERS,
        "self._alone > 0 or len(self._open) >= _OPEN_REQUESTS_MAX or self._writer.queued_bytes >= _QUEUED_BYTES_MAX",
        "self._alone > 0",
        "a client that does not read fills the memory",
        "broker/network/test_broker_connection.py::test_a_reader_that_does_not_take_its_answers_is_not_read_from_until_it_does",
    ),
    # Metadata.
    Mutant(
        "metadata-not-synced",
        RAFT_LOG,
        "await self._log.flush_in_thread()",
        "self._log.state.flushed(self._log.state.end_offset)",
        "topics that were made are gone after a power loss",
    ),
    Mutant("epoch-not-raised", RAFT_LOG, "self._snapshot.epoch, 0) + 1", "self._snapshot.epoch, 1)", "two in one"),
    Mutant(
        "served-before-registered",
        "ottla.broker.node",
        "        await self._register()\n",
        "        self.spawn(self._register())\n",
        "the first client is told that no broker is there",
    ),
    Mutant(
        "log-made-anew",
        "ottla.broker.partitions.registry",
        "if not is_new and (unusable := self._store.unusable):",
        "if False and (unusable := self._store.unusable):",
        "an empty log takes the place of one whose disk is offline",
    ),
    Mutant(
        "topic-id-not-synced",
        "ottla.storage.partition_files",
        "if files.PARTITION_METADATA in names and not settled:",
        "if False:",
        "after a kill and a power loss nobody knows whose log it is",
    ),
    # Transactions.
    Mutant(
        "timed-out-without-new-epoch",
        TRANSACTIONS,
        "client_version=version if raises_always else 0,\n"
        "            next_producer_id=next_producer_id,\n"
        "            fence=True,",
        "client_version=0,\n            next_producer_id=NO_PRODUCER_ID,\n            fence=False,",
        "KAFKA-6119: who was timed out goes on in the same epoch, and commits half of its transaction",
    ),
    Mutant(
        "late-batch-not-verified",
        TRANSACTIONS,
        "return {one: Error.NONE if one in known.partitions else Error.TRANSACTION_ABORTABLE for one in partitions}",
        "return dict.fromkeys(partitions, Error.NONE)",
        "KAFKA-14402: a batch that comes after the abort opens a transaction that nobody ends",
        "core/transactions/test_transaction_shard.py::test_only_what_was_added_is_verified",
    ),
    Mutant(
        "late-end-ends-the-next",
        TRANSACTIONS,
        "or (is_retry and is_ended)):",
        "or is_retry):",
        "KAFKA-17754: an EndTxn that was sent twice ends the transaction after its own",
    ),
    Mutant(
        "complete-before-offsets-can-be-seen",
        HOSTED,
        "self.shard.replay_marker(producer.producer_id, producer.producer_epoch, committed=committed)",
        "asyncio.get_running_loop().call_later(0.3, lambda: self.shard.replay_marker(\n"
        "            producer.producer_id, producer.producer_epoch, committed=committed))",
        "KAFKA-17507: the transaction is complete before its offsets count",
    ),
    Mutant(
        "marker-cleaned-before-its-data",
        "ottla.core.log.cleaning",
        "return not had_data",
        "return True",
        "KAFKA-14055: without its marker, a committed transaction is open for ever after a restart",
    ),
    Mutant(
        "cleaned-past-the-stable-offset",
        "ottla.core.log.cleaning",
        "end_offset = min(log.last_stable_offset, log.active.base_offset)",
        "end_offset = log.active.base_offset",
        "KAFKA-13194: an open transaction takes the place of what is committed, and is aborted",
    ),
    Mutant(
        "zombie-not-fenced",
        TRANSACTIONS,
        "if producer.epoch != known.producer_epoch:",
        "if producer.epoch > known.producer_epoch:",
        "a producer that was replaced writes into its successor's transaction, and ends it",
    ),
    Mutant("never-timed-out", TRANSACTIONS, "if known.is_timed_out(now_ms):", "if False:", "readers wait for ever"),
    Mutant(
        "prepared-forgotten-at-load",
        TRANSACTIONS,
        "for transactional_id in self._unmarked:",
        "for transactional_id in ():",
        "nobody writes the markers that a crash prevented",
    ),
    Mutant(
        "aborted-not-told",
        "ottla.broker.handlers.fetch",
        "for txn in found]",
        "for txn in found[1:]]",
        "a reader keeps what was aborted",
    ),
    Mutant(
        "open-transaction-readable",
        PARTITION,
        "return log.last_stable_offset if committed_only else log.high_watermark",
        "return log.high_watermark",
        "a reader at read_committed is given what nobody has committed",
    ),
    Mutant(
        "producer-forgotten-with-its-epoch",
        PRODUCERS,
        "producer.coordinator_epoch = marker.coordinator_epoch\n        producer.last_timestamp = header.max_timestamp",
        "producer.coordinator_epoch = marker.coordinator_epoch\n"
        "        producer.last_timestamp = header.max_timestamp if producer.batches else NO_TIMESTAMP",
        "KAFKA-9144: after a marker that raises its epoch a producer is taken for old, and forgotten; a coordinator "
        "that was replaced is believed",
    ),
    Mutant(
        "old-coordinator-believed",
        PRODUCERS,
        "if marker.coordinator_epoch < known.coordinator_epoch:",
        "if False:",
        "the epoch of coordinators goes back",
    ),
    Mutant(
        "epochs-without-end",
        "ottla.core.transactions.transaction",
        "return self.producer_epoch >= EPOCH_MAX - 1",
        "return False",
        "a producer that has used up its epochs is given the one that fences it",
    ),
    Mutant(
        "no-producer-id-in-stock",
        TRANSACTIONS,
        "return not self.spare_producer_ids and any(",
        "return False and any(",
        "a transaction in the last epoch is open for ever when its producer is gone",
    ),
    # Groups.
    Mutant(
        "offsets-expire-while-loading",
        "ottla.broker.coordinators.coordinator",
        "                position += header.size\n",
        "                position += header.size\n"
        "                if hasattr(hosted.shard, 'offset_requests'):\n"
        "                    for old in hosted.shard.offset_requests.expired(self._now_ms()):\n"
        "                        hosted.shard.replay(old, Origin(header.base_offset, 0))\n",
        "KAFKA-8069: offsets are taken for those of no group before their group is read",
    ),
    Mutant(
        "no-expiry-taken-for-one",
        "ottla.core.groups.offset_requests",
        "if value.expire_timestamp != NO_EXPIRY:",
        "if True:",
        "KAFKA-8069: an offset that says nothing of its expiry is gone with the first look",
    ),
    Mutant(
        "static-member-rebalances",
        "ottla.core.groups.classic",
        "if group.selected_protocol() == group.protocol_name:",
        "if False:",
        "KIP-345: a restart within the session costs a rebalance",
    ),
    Mutant(
        "static-place-given-away",
        "ottla.core.groups.consumer.heartbeat",
        "leave_for_a_while(group, member)",
        "fence(here, group, [member], now_ms)",
        "who leaves for a moment finds another in its place",
    ),
    Mutant(
        "migrated-with-nothing",
        "ottla.core.groups.consumer.migration",
        "assigned=owned(assignment, epoch),",
        "assigned={},",
        "what classic members own is given away when the group goes to the consumer protocol",
    ),
    Mutant(
        "pending-only-in-the-log",
        HOSTED,
        "self.shard.replay(record, RecordOrigin(offset, now_ms, *producer))",
        "self.shard.replay(record, RecordOrigin(offset, now_ms))",
        "a coordinator knows something else than its log, and than the one after it",
    ),
    Mutant(
        "answered-before-committed",
        HOSTED,
        "return self.partition.high_watermark >= self._end_offset",
        "return True",
        "KAFKA-20634: what a coordinator has acknowledged is lost",
    ),
    Mutant(
        "stale-generation-commits",
        "ottla.core.groups.classic_group",
        "self.check_member(committer.member_id, committer.group_instance_id)\n"
        "            self.check_generation(committer.generation_id)",
        "pass",
        "a member that was replaced commits over its successor",
    ),
    Mutant(
        "two-owners",
        "ottla.core.groups.consumer.reconciliation",
        "free = lacks.difference(self.owned(topic_id))",
        "free = set(lacks)",
        "a partition is given away before its owner has returned it",
    ),
    Mutant(
        "aborted-offsets-count",
        "ottla.core.groups.offsets",
        "if committed and (known is None",
        "if (known is None",
        "records are skipped whose output was aborted",
    ),
    Mutant(
        "pending-offsets-ignored",
        "ottla.core.groups.offset_requests",
        "if require_stable and self._offsets.is_pending(group_id, topic, index):",
        "if False:",
        "a member goes on from before a transaction that is about to count",
    ),
    Mutant(
        "markers-not-loaded",
        "ottla.broker.coordinators.coordinator",
        "shard.replay_marker(header.producer_id, header.producer_epoch, committed=committed)",
        "pass",
        "offsets that a transaction committed are pending for ever after a restart",
    ),
    # What fresh seeds have found.
    Mutant(
        "told-synced-too-early",
        PARTITION,
        "self._commit(log.recovery_point, None)",
        "self._commit(log.end_offset, None)",
        "who wrote during a sync is answered at its end, though it was not part of it",
    ),
    Mutant(
        "stale-answer-taken",
        "ottla.client.fetcher",
        " and cursor.fetch_offset == asked.offset",
        "",
        "what was fetched before a seek is given out after it",
    ),
    Mutant(
        "target-taken-for-owned",
        "ottla.core.groups.consumer.migration",
        "_owned_by(one) if rebalances else group.target_of(one)",
        "group.target_of(one)",
        "a classic member's partitions are given away when its group goes to the classic protocol and back",
        "core/groups/test_consumer_migration.py::test_what_a_classic_member_still_owns_survives_the_way_there_and_back",
    ),
    Mutant(
        "outdated-marker-tried-for-ever",
        "ottla.broker.coordinators.transactions",
        "if refusal.error is Error.INVALID_PRODUCER_EPOCH:",
        "if False:",
        "an id whose coordinator lost its end can never be used again",
        "broker/coordinators/test_broker_transactions_crashes.py::test_an_id_whose_log_lost_its_end_can_be_used_again",
    ),
    Mutant(
        "swap-left-at-a-clean-stop",
        "ottla.storage.partition_log",
        "            here.void_swaps()\n            here.of(log.active).finish_indexes()",
        "            here.of(log.active).finish_indexes()",
        "the next start finds other segments than were summarized, and refuses the log",
        "storage/test_storage_cleaner_meanwhile.py::test_a_log_is_closed_without_what_a_cleaner_was_about_to_swap_in",
    ),
    Mutant(
        "not-loaded-again",
        "ottla.broker.coordinators.coordinator",
        "if isinstance(error, OutOfFiles):",
        "if False:",
        "a coordinator that lacked descriptors stays away until the next restart",
        "broker/coordinators/test_broker_groups.py::"
        "test_a_group_that_cannot_be_loaded_for_want_of_descriptors_is_loaded_when_there_are_some",
    ),
    Mutant(
        "coordinator-comes-back",
        "ottla.broker.coordinators.coordinator",
        "if self._is_closed:",
        "if False:",
        "while a node stops, a coordinator writes to logs that are closed",
        "broker/coordinators/test_broker_groups.py::test_a_coordinator_that_was_closed_loads_nothing_any_more",
    ),
    Mutant(
        "told-its-part-and-not-heard",
        "ottla.core.groups.classic",
        "            self._heard(group, member, now_ms, out)\n"
        "            return self._decision(group, synced(group, member), out)",
        "            return self._decision(group, synced(group, member), out)",
        "a member is out right after it was told its part",
        "core/groups/test_classic_groups.py::test_who_is_told_its_part_again_is_heard",
    ),
]

FOUND_BY = {
    "duplicates-appended": 1,
    "sequence-unchecked": 8,
    "sequences-lost-on-restart": 1,
    "acknowledged-before-sync": 1,
    "lane-past-the-sync": 1,
    "storage-error-swallowed": 5,
    "readable-before-sync": 1,
    "recovered-readable-before-sync": 39,
    "fetch-above-watermark": 1,
    "waiter-left-behind": 14,
    "answers-out-of-order": 8,
    "half-frame-lost": 0,
    "shared-buffer-kept": 32,
    "metadata-not-synced": 0,
    "epoch-not-raised": 0,
    "served-before-registered": 0,
    "log-made-anew": 27,
    "topic-id-not-synced": 44,
    "timed-out-without-new-epoch": 68,
    "late-end-ends-the-next": 4,
    "complete-before-offsets-can-be-seen": 32,
    "marker-cleaned-before-its-data": 8,
    "cleaned-past-the-stable-offset": 49,
    "zombie-not-fenced": 49,
    "never-timed-out": 4,
    "prepared-forgotten-at-load": 65,
    "aborted-not-told": 4,
    "open-transaction-readable": 4,
    "producer-forgotten-with-its-epoch": 22,
    "old-coordinator-believed": 21,
    "epochs-without-end": 4,
    "no-producer-id-in-stock": 25,
    "offsets-expire-while-loading": 21,
    "no-expiry-taken-for-one": 1,
    "static-member-rebalances": 22,
    "static-place-given-away": 25,
    "migrated-with-nothing": 56,
    "pending-only-in-the-log": 19,
    "answered-before-committed": 24,
    "stale-generation-commits": 76,
    "two-owners": 23,
    "aborted-offsets-count": 19,
    "pending-offsets-ignored": 154,
    "markers-not-loaded": 4,
    "told-synced-too-early": 15,
    "stale-answer-taken": 28,
}
"""A seed that found it last time, played first."""
