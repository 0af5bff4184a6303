import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The bare copy loop of benchmarks/scheduler/throughput.py with Kafka's Java client: transactions of at most 5,000 records.
 *
 * <p>Arguments: bootstrap servers, name of the group and the transactions, source, target, records. Prints the seconds
 * of CPU from the first record on.
 */
public final class CopyBench {
    private CopyBench() {}

    public static void main(String[] arguments) {
        String source = arguments[2];
        String target = arguments[3];
        int wanted = Integer.parseInt(arguments[4]);
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1], "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", "read_committed", "max.poll.records", 5_000,
            "max.partition.fetch.bytes", 8 << 20);
        Map<String, Object> writing = Map.of(
            "bootstrap.servers", arguments[0], "transactional.id", arguments[1], "linger.ms", 1,
            "batch.size", 1_000_000, "buffer.memory", 256L << 20);
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int done = 0;
            double cpu = 0;
            while (done < wanted) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
                if (batch.isEmpty()) {
                    continue;
                }
                cpu = cpu == 0 ? Figures.cpuSeconds() : cpu;
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> one : batch) {
                    producer.send(new ProducerRecord<>(target, 0, one.key(), one.value(), one.headers()));
                    offsets.put(new TopicPartition(source, one.partition()), new OffsetAndMetadata(one.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                done += batch.count();
            }
            System.out.println(Figures.cpuSeconds() - cpu);
        }
        System.exit(0);
    }
}
