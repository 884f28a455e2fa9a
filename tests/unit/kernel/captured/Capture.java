// Writes the java_*.hex files beside it: what Apache Kafka's own classes make of records, batches and filters.
//   java -cp '<jars of kafka-server 4.3.1 and what it needs>/*' Capture.java <directory>
// The librdkafka_*.hex files are the first batch of the segments of a Kafka 4.3.1 broker after confluent-kafka
// produced records() to a topic for each compression.type.

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class Capture {
    static final long T = 1_700_000_000_000L;
    static final TimestampType CREATE = TimestampType.CREATE_TIME;
    static final TimestampType APPEND = TimestampType.LOG_APPEND_TIME;
    static Path directory;

    public static void main(String[] args) throws Exception {
        directory = Path.of(args[0]);
        Map<String, Compression> codecs = new LinkedHashMap<>();
        codecs.put("none", Compression.NONE);
        codecs.put("gzip", Compression.gzip().build());
        codecs.put("snappy", Compression.snappy().build());
        codecs.put("lz4", Compression.lz4().build());
        codecs.put("zstd", Compression.zstd().build());
        for (var codec : codecs.entrySet())
            write("java_" + codec.getKey(),
                "MemoryRecords.withRecords, " + codec.getKey() + ": key, null key, null value, headers",
                MemoryRecords.withRecords(codec.getValue(), records()));

        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < 9000; i++)
            lines.append("line ").append(i % 97).append(' ');
        for (String codec : new String[] {"snappy", "lz4"})
            write("java_" + codec + "_blocks",
                codec + " in more than one block: a value of " + lines.length() + " bytes",
                MemoryRecords.withRecords(codecs.get(codec), new SimpleRecord(T, utf8("k"), utf8(lines.toString()))));

        write("java_commit", "end of transaction marker COMMIT, coordinator epoch 12, offset 50", commit());
        write("java_abort", "end of transaction marker ABORT, coordinator epoch 13, offset 51",
            MemoryRecords.withEndTransactionMarker(51, T, 3, 77, (short) 2,
                new EndTransactionMarker(ControlRecordType.ABORT, 13)));
        filters();
        validations(codecs.get("gzip"));
    }

    static SimpleRecord[] records() {
        return new SimpleRecord[] {
            new SimpleRecord(T, utf8("k0"), utf8("v0")),
            new SimpleRecord(T + 5, null, utf8("value one ".repeat(20))),
            new SimpleRecord(T + 3, utf8("k2"), null, new Header[] {
                new RecordHeader("h1", utf8("x")), new RecordHeader("n\u00e9", null),
                new RecordHeader("", new byte[0])}),
        };
    }

    static MemoryRecords commit() {
        return MemoryRecords.withEndTransactionMarker(50, T, 3, 77, (short) 2,
            new EndTransactionMarker(ControlRecordType.COMMIT, 12));
    }

    // What the cleaner's filter leaves of a batch.

    static void filters() throws Exception {
        write("java_filter_in", "transactional batch of keys a b a c(tombstone) d at offset 100", toFilter(CREATE));
        write("java_filter_in_append_time", "the same under LogAppendTime", toFilter(APPEND));
        Set<Long> allButFirst = Set.of(101L, 102L, 103L, 104L);
        MemoryRecords once = filter(toFilter(CREATE), allButFirst, BatchRetention.DELETE_EMPTY, false);
        write("java_filter_tombstone", "java_filter_in after filterTo keeping 101 to 104", once);
        write("java_filter_again", "java_filter_tombstone after filterTo keeping 102 and 104",
            filter(once, Set.of(102L, 104L), BatchRetention.DELETE_EMPTY, false));
        write("java_filter_values", "java_filter_in after filterTo keeping 101 and 104",
            filter(toFilter(CREATE), Set.of(101L, 104L), BatchRetention.DELETE_EMPTY, false));
        write("java_filter_append_time", "java_filter_in_append_time after filterTo keeping 101 to 104",
            filter(toFilter(APPEND), allButFirst, BatchRetention.DELETE_EMPTY, false));
        write("java_filter_empty", "java_filter_in after filterTo keeping nothing, RETAIN_EMPTY",
            filter(toFilter(CREATE), Set.of(), BatchRetention.RETAIN_EMPTY, false));
        write("java_filter_marker", "java_commit after filterTo, marker of an empty transaction",
            filter(commit(), Set.of(50L), BatchRetention.DELETE_EMPTY, true));
    }

    static MemoryRecords toFilter(TimestampType type) {
        ByteBuffer buffer = ByteBuffer.allocate(10_000);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
            type, 100, type == APPEND ? T + 9 : -1, 7, (short) 1, 40, true, false, 5, buffer.capacity());
        String[] keys = {"a", "b", "a", "c", "d"};
        for (int i = 0; i < keys.length; i++)
            builder.append(T + (i * 7) % 5, utf8(keys[i]), i == 3 ? null : utf8("v" + i));
        return builder.build();
    }

    static MemoryRecords filter(MemoryRecords records, Set<Long> keep, BatchRetention retention, boolean emptyTxn) {
        var filter = new MemoryRecords.RecordFilter(T + 100_000, 1000) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(retention, emptyTxn);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keep.contains(record.offset());
            }
        };
        ByteBuffer out = records.filterTo(filter, ByteBuffer.allocate(10_000), BufferSupplier.NO_CACHING).outputBuffer();
        out.flip();
        return MemoryRecords.readableRecords(out);
    }

    // What the broker's validator makes of a produced batch.

    static void validations(Compression gzip) throws Exception {
        write("java_produced", "a produced batch of an idempotent producer", produced(Compression.NONE));
        write("java_produced_gzip", "the same in gzip", produced(gzip));
        write("java_valid_create_time", "java_produced after LogValidator, CreateTime, offset 1000, epoch 9",
            validate(produced(Compression.NONE), CompressionType.NONE, Compression.NONE, CREATE));
        write("java_valid_append_time", "java_produced after LogValidator, LogAppendTime",
            validate(produced(Compression.NONE), CompressionType.NONE, Compression.NONE, APPEND));
        write("java_valid_gzip_append_time", "java_produced_gzip after LogValidator, LogAppendTime",
            validate(produced(gzip), CompressionType.GZIP, gzip, APPEND));
        write("java_valid_gunzipped", "java_produced_gzip after LogValidator, compression.type=uncompressed",
            validate(produced(gzip), CompressionType.GZIP, Compression.NONE, CREATE));
        write("java_valid_gunzipped_append_time",
            "java_produced_gzip after LogValidator, compression.type=uncompressed, LogAppendTime",
            validate(produced(gzip), CompressionType.GZIP, Compression.NONE, APPEND));

        ByteBuffer buffer = ByteBuffer.allocate(10_000);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
            APPEND, 0, T + 77, -1, (short) -1, -1, false, false, -1, buffer.capacity());
        for (SimpleRecord record : records())
            builder.append(record);
        write("java_claimed", "a produced batch that claims LogAppendTime", builder.build());
        write("java_valid_claimed", "java_claimed after LogValidator, CreateTime",
            validate(builder.build(), CompressionType.NONE, Compression.NONE, CREATE));
    }

    static MemoryRecords produced(Compression compression) {
        return MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, 0, compression, CREATE, 7, (short) 1, 40, -1, false,
            records());
    }

    static MemoryRecords validate(MemoryRecords records, CompressionType from, Compression to, TimestampType type) {
        return new LogValidator(records, new TopicPartition("t", 0), always(Time.class, T + 60_000), from, to, false,
            RecordBatch.MAGIC_VALUE_V2, type, Long.MAX_VALUE, 3_600_000L, 9, AppendOrigin.CLIENT)
            .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(1000), always(LogValidator.MetricsRecorder.class, 0),
                BufferSupplier.NO_CACHING)
            .validatedRecords();
    }

    /** An implementation of an interface that answers every question for a number with the same one. */
    static <X> X always(Class<X> type, long answer) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (self, method, arguments) -> method.getReturnType() == long.class ? (Object) answer : null));
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void write(String name, String note, MemoryRecords records) throws Exception {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        String hex = HexFormat.of().formatHex(bytes);
        StringBuilder text = new StringBuilder("# Apache Kafka 4.3.1 (Java): " + note + "\n");
        for (int i = 0; i < hex.length(); i += 118)
            text.append(hex, i, Math.min(i + 118, hex.length())).append('\n');
        Files.writeString(directory.resolve(name + ".hex"), text);
    }
}
