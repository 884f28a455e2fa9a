import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Members of groups, each in a thread of its own, driven by one command at a time (`Tools` runs `main` once for each, and
 * what is static lives as long as the JVM).
 *
 * <p>Settings of a client are given as name=value. A member commits after every poll, and remembers the values once they
 * are committed. A copier writes what it read to another topic, in one transaction with the offsets.
 */
public final class Members {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Map<String, Group> GROUPS = new ConcurrentHashMap<>();
    private static final Map<String, KafkaProducer<String, String>> LEFT_OPEN = new HashMap<>();

    public static void main(String[] words) throws Exception {
        String[] rest = Arrays.copyOfRange(words, 1, words.length);
        switch (words[0]) {
            case "join" -> start(new Member(rest[0], rest[1], settings(rest, 2)));
            case "copy" -> start(new Copier(rest[0], rest[1], rest[2], settings(rest, 3)));
            case "leave" -> leave(group(rest[0]).members, Arrays.copyOfRange(rest, 1, rest.length));
            case "states" -> group(rest[0]).members.values().forEach(member -> System.out.println(member.state()));
            case "taken" -> group(rest[0]).taken.forEach(System.out::println);
            case "read" -> read(rest[0], settings(rest, 1)).forEach(System.out::println);
            case "write" -> write(rest[0], Integer.parseInt(rest[1]), Integer.parseInt(rest[2]), settings(rest, 3));
            case "open" -> open(rest[0], settings(rest, 1));
            default -> throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private static Properties settings(String[] words, int from) {
        Properties settings = new Properties();
        for (String word : Arrays.copyOfRange(words, from, words.length)) {
            String[] parts = word.split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        return settings;
    }

    private static Group group(String name) {
        return GROUPS.computeIfAbsent(name, ignored -> new Group());
    }

    private static void start(Member member) {
        member.group.members.put(member.getName(), member);
        member.start();
    }

    private static void leave(Map<String, Member> members, String[] names) throws InterruptedException {
        for (String name : names) {
            members.get(name).leaving = true;
        }
        for (String name : names) {
            members.remove(name).join();
        }
    }

    private static KafkaConsumer<String, String> consumer(Properties settings) {
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.putIfAbsent("isolation.level", "read_committed");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** All that is committed in a topic by now. */
    private static List<String> read(String topic, Properties settings) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(POLL).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    /** Numbers, spread over the partitions in turn. */
    private static void write(String topic, int from, int to, Properties settings) {
        try (KafkaProducer<String, String> producer = producer(settings)) {
            int partitions = producer.partitionsFor(topic).size();
            for (int number = from; number < to; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, null, String.valueOf(number)));
            }
        }
    }

    /** Begin a transaction, write in it, and leave it so. */
    private static void open(String topic, Properties settings) {
        KafkaProducer<String, String> producer = producer(settings);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "left open"));
        producer.flush();
        LEFT_OPEN.put(settings.getProperty("transactional.id"), producer);
    }

    private static KafkaProducer<String, String> producer(Properties settings) {
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static final class Group {
        final Map<String, Member> members = new TreeMap<>();
        final ConcurrentLinkedQueue<String> taken = new ConcurrentLinkedQueue<>();
    }

    private static class Member extends Thread implements ConsumerRebalanceListener {
        final Group group;
        final KafkaConsumer<String, String> consumer;
        private final String topic;
        private final AtomicInteger revoked = new AtomicInteger();
        private final AtomicInteger lost = new AtomicInteger();
        private volatile List<Integer> owned = List.of();
        private volatile Throwable failure;
        volatile boolean leaving;

        Member(String name, String topic, Properties settings) {
            super(name);
            this.topic = topic;
            this.group = Members.group(settings.getProperty("group.id"));
            settings.putIfAbsent("client.id", name);
            this.consumer = Members.consumer(settings);
            setDaemon(true);
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic), this);
                while (!leaving) {
                    ConsumerRecords<String, String> records = consumer.poll(POLL);
                    if (!records.isEmpty()) {
                        take(records);
                    }
                    owned = consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
                }
            } catch (Throwable thrown) {
                failure = thrown;
            }
        }

        void take(ConsumerRecords<String, String> records) {
            try {
                consumer.commitSync();
                records.forEach(record -> group.taken.add(record.value()));
            } catch (CommitFailedException | RebalanceInProgressException lateForThis) {
                goBack();
            }
        }

        /** To what the group has committed: what came after it will come again, here or at another member. */
        void goBack() {
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            List<TopicPartition> fromStart = new ArrayList<>();
            committed.forEach((partition, offset) -> {
                if (offset == null) {
                    fromStart.add(partition);
                } else {
                    consumer.seek(partition, offset);
                }
            });
            if (!fromStart.isEmpty()) {
                consumer.seekToBeginning(fromStart);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.addAndGet(partitions.size());
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost.addAndGet(partitions.size());
        }

        String state() {
            String partitions = owned.stream().map(String::valueOf).collect(Collectors.joining(","));
            return String.join("\t", getName(), partitions, revoked.toString(), lost.toString(), String.valueOf(failure));
        }
    }

    private static final class Copier extends Member {
        private final String target;
        private final Properties settings = new Properties();
        private KafkaProducer<String, String> producer;

        Copier(String name, String source, String target, Properties settings) {
            super(name, source, settings);
            this.target = target;
            this.settings.setProperty("bootstrap.servers", settings.getProperty("bootstrap.servers"));
            this.settings.setProperty("transactional.id", settings.getProperty("group.id") + "-" + name);
        }

        @Override
        public void run() {
            makeProducer();
            super.run();
            producer.close();
        }

        private void makeProducer() {
            producer = Members.producer(settings);
            producer.initTransactions();
        }

        @Override
        void take(ConsumerRecords<String, String> records) {
            try {
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                producer.commitTransaction();
                return;
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                producer.close(Duration.ZERO);
                makeProducer();
            } catch (KafkaException undone) {
                producer.abortTransaction();
            }
            goBack();
        }
    }
}
