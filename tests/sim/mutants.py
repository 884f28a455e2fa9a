"""Safety checks, each taken out by itself. A change of the code that moves one of them changes this list with it."""

from mutate import Mutant

LOG = "ottla.core.log.state"
PRODUCERS = "ottla.core.log.producers"
CLEANING = "ottla.core.log.cleaning"
RECOVERY = "ottla.storage.recovery"
PARTITION_LOG = "ottla.storage.partition_log"
PARTITION_FILES = "ottla.storage.partition_files"
LOG_DIRECTORY = "ottla.storage.log_directory"
SEGMENT_FILES = "ottla.storage.segment_files"
CLEANER = "ottla.storage.cleaner"

MUTANTS = [
    # Producers and transactions.
    Mutant(
        "duplicates-appended",
        PRODUCERS,
        "if origin is AppendOrigin.CLIENT and (duplicate := _find_duplicate(known, header)):",
        "if False and (duplicate := _find_duplicate(known, header)):",
        "a batch sent again is refused or stands twice",
    ),
    Mutant("sequence-unchecked", PRODUCERS, "self._check_sequence(known, header, offset)", "pass", "gaps accepted"),
    Mutant("fencing-off", PRODUCERS, "if epoch < known.epoch:", "if False:", "zombies write"),
    Mutant(
        "ended-means-decided",
        PRODUCERS,
        "self._undecided[first_offset] = last_offset",
        "pass",
        "a transaction is read before its marker is below the watermark",
    ),
    Mutant(
        "open-transactions-readable",
        LOG,
        "unstable = self.producers.first_unstable_offset",
        "unstable = None",
        "uncommitted records are read",
    ),
    # Offsets.
    Mutant(
        "watermark-beyond-end",
        LOG,
        "self.high_watermark = min(self.high_watermark, offset)",
        "pass",
        "the watermark passes the end after a truncation",
    ),
    Mutant(
        "retention-beyond-watermark",
        "ottla.core.log.retention",
        "if log.end_of(index) > log.high_watermark or",
        "if",
        "what is not replicated is removed",
    ),
    # Durability.
    Mutant(
        "flush-without-sync",
        PARTITION_LOG,
        "syncs.append(here.of(log.active).begin_sync(indexes=False))",
        "pass",
        "nothing is durable",
    ),
    Mutant(
        "closed-segments-not-synced",
        PARTITION_LOG,
        "for segment in log.segments[first:-1]]",
        "for segment in log.segments[:0]]",
        "the recovery point passes what was never synced",
    ),
    Mutant(
        "sync-of-what-was-cut-off-counts",
        PARTITION_LOG,
        "if flush.generation == self.generation:",
        "if True:",
        "what took the place of truncated batches counts as synced",
    ),
    Mutant(
        "synced-when-begun",
        PARTITION_FILES,
        "names = self._names.made if self._names.are_unsynced or pending else None",
        "names = self._names.made if self._names.are_unsynced or pending else None; self._names.settle_all()",
        "a flush counts on another that has not run, or was refused",
    ),
    Mutant(
        "front-not-durable",
        PARTITION_FILES,
        "if not is_first and not self.front_is_durable:",
        "if False:",
        "the first segment is lost, the second is not",
        "storage/test_storage_power_loss.py::test_after_a_kill_a_new_segment_is_not_found_without_the_one_before_it",
    ),
    Mutant(
        "snapshot-before-its-indexes",
        PARTITION_LOG,
        "self.here.keep_snapshot(log.producers)",
        "self.here.write_snapshot(log.producers)",
        "indexes that were never synced are believed after a crash",
        "storage/test_storage_power_loss.py::test_a_snapshot_that_a_roll_made_does_not_vouch_for_the_indexes",
    ),
    Mutant(
        "names-not-synced",
        PARTITION_FILES,
        "names = self._names.made if self._names.are_unsynced or pending else None",
        "names = None",
        "a durable segment has no name",
    ),
    Mutant(
        "rename-before-sync", "ottla.storage.atomic", "        file.sync()\n", "        pass\n", "empty checkpoints"
    ),
    Mutant(
        "cut-keeps-checkpoints",
        LOG_DIRECTORY,
        "if offsets.get(partition, 0) > offset:",
        "if False:",
        "what was written after a truncation counts as synced",
    ),
    Mutant("directory-stays-online", LOG_DIRECTORY, "self.failure = error", "pass", "appends after an I/O error"),
    Mutant(
        "marker-of-clean-shutdown-stays",
        LOG_DIRECTORY,
        "self.disk.remove(marker)",
        "pass",
        "a crash counts as a clean shutdown",
    ),
    # Recovery.
    Mutant(
        "crc-unchecked-in-recovery",
        RECOVERY,
        "if is_checked and not crc_ok(batch.data, 0, header.size):",
        "if False:",
        "torn records are served",
    ),
    Mutant(
        "gaps-are-legal",
        RECOVERY,
        "return end_offset < segment.base_offset <= self._gaps_are_legal_below",
        "return True",
        "a hole in the log",
    ),
    Mutant(
        "aborts-looked-for-up-to-the-damage",
        RECOVERY,
        "BatchWalk(here.of(last).log, last.size).whole()",
        "BatchWalk(here.of(last).log, last.size)",
        "aborted records are served as committed",
        "storage/test_storage_lying_indexes.py::test_a_transaction_index_is_not_made_anew_from_a_damaged_log",
    ),
    Mutant("torn-tail-not-cut", RECOVERY, "opened.cut(damage.position)", "pass", "old bytes follow new batches"),
    Mutant(
        "cut-not-synced",
        SEGMENT_FILES,
        "        self.log.truncate(position)\n        self.log.sync()\n",
        "        self.log.truncate(position)\n",
        "what was cut off comes back",
    ),
    Mutant(
        "producers-outdated-after-a-loss",
        RECOVERY,
        "return Producers(self._name, base_offset) if is_loss else producers",
        "return producers",
        "a producer is known by what it wrote long ago",
        "storage/test_storage_power_loss.py::test_what_was_lost_below_the_log_start_leaves_no_outdated_producers",
    ),
    Mutant(
        "epochs-stay-behind",
        PARTITION_LOG,
        "log.epochs.reach_back(end_offset)",
        "pass",
        "records that a half-done truncation brings back have no epoch",
    ),
    # Compaction.
    Mutant(
        "cleaner-passes-open-transactions",
        CLEANING,
        "end_offset = min(log.last_stable_offset, log.active.base_offset)",
        "end_offset = log.active.base_offset",
        "undecided records are cleaned",
    ),
    Mutant(
        "aborted-records-supersede",
        CLEANER,
        "is_data = not (header.is_control or aborted)",
        "is_data = not header.is_control",
        "a committed value gives way to an aborted one",
    ),
    Mutant(
        "markers-go-at-once",
        CLEANING,
        "discard=may_go and (past_horizon or not header.is_control)",
        "discard=may_go",
        "a marker goes before delete.retention.ms",
    ),
    Mutant(
        "cleaner-asks-files-that-are-gone",
        CLEANER,
        "        if not self._are_there(group):\n            return\n",
        "        self._are_there(group)\n",
        "a segment that retention took counts as a failure of the disk",
        "storage/test_storage_cleaner_meanwhile.py::test_retention_may_take_segments_while_the_cleaner_rests_or_works",
    ),
    # Damage.
    Mutant(
        "produced-crc-unchecked",
        "ottla.kernel.reference.produce",
        "if fault := crc_fault(header, batch_crc(view, 0, header.size)):",
        "if fault := None:",
        "damaged batches are accepted",
    ),
    Mutant(
        "last-batch-believed",
        SEGMENT_FILES,
        "if not crc_ok(self.log.read(last.position, last.header.size), 0, last.header.size):",
        "if False:",
        "offsets are counted from a damaged header",
        "storage/test_storage_evidence.py::test_a_wrong_crc_in_the_last_batch_costs_that_batch",
    ),
    Mutant(
        "transaction-index-without-checksum",
        "ottla.storage.look_ups",
        "if txn_checksum(aborted) != checksum:",
        "if False:",
        "a flipped offset shows aborted records",
    ),
    Mutant(
        "transaction-index-of-compacted-log-believed",
        "ottla.storage.look_ups",
        "if rebuilt != aborted:",
        "if False:",
        "a flipped offset shows aborted records where no checksum tells",
    ),
]

FOUND_BY = {
    "duplicates-appended": 3,
    "sequence-unchecked": 0,
    "fencing-off": 3,
    "ended-means-decided": 2,
    "open-transactions-readable": 1,
    "watermark-beyond-end": 4,
    "retention-beyond-watermark": 1,
    "flush-without-sync": 0,
    "closed-segments-not-synced": 1,
    "sync-of-what-was-cut-off-counts": 353,
    "synced-when-begun": 7,
    "names-not-synced": 25,
    "rename-before-sync": 1,
    "cut-keeps-checkpoints": 0,
    "directory-stays-online": 24,
    "marker-of-clean-shutdown-stays": 20,
    "crc-unchecked-in-recovery": 8,
    "gaps-are-legal": 2,
    "torn-tail-not-cut": 12,
    "cut-not-synced": 0,
    "epochs-stay-behind": 123,
    "cleaner-passes-open-transactions": 27,
    "aborted-records-supersede": 5,
    "markers-go-at-once": 38,
    "produced-crc-unchecked": 0,
    "transaction-index-without-checksum": 11,
    "transaction-index-of-compacted-log-believed": 13,
}
"""The seed that found each one last time. It is played first, so that the others need not be."""
