import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A share group that releases each record once: what Kafka itself has for a failed record. It comes back at once.
 *
 * <p>Arguments: bootstrap servers, records. Figures go to standard output, one a line.
 */
public final class ShareBench {
    private ShareBench() {}

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        int records = Integer.parseInt(arguments[1]);
        String topic = Load.makeTopic(servers, "share");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            var earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(
                Map.of(new ConfigResource(ConfigResource.Type.GROUP, topic), List.of(earliest))).all().get();
        }
        Load.produce(servers, topic, records, 0);
        try (var consumer = new KafkaShareConsumer<>(
            Map.<String, Object>of(
                "bootstrap.servers", servers, "group.id", topic, "share.acknowledgement.mode", "explicit"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            release(consumer, records);
        }
        System.exit(0);
    }

    private static void release(KafkaShareConsumer<byte[], byte[]> consumer, int records) {
        Map<String, Long> released = new HashMap<>();
        double[] again = new double[records];
        int count = 0;
        long began = 0;
        double cpu = Figures.cpuSeconds();
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (count < records && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                long now = System.nanoTime();
                began = began == 0 ? now : began;
                Long before = released.putIfAbsent(record.partition() + "/" + record.offset(), now);
                if (before == null) {
                    consumer.acknowledge(record, AcknowledgeType.RELEASE);
                } else {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    again[count++] = (now - before) / 1e6;
                }
            }
            consumer.commitSync();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        Arrays.sort(again, 0, count);
        Figures.tell("missing", "records", records - count);
        Figures.tell("failed and called again", "records/s", count / seconds);
        Figures.tell("CPU", "s per million", (Figures.cpuSeconds() - cpu) / count * 1e6);
        Figures.tell("p50 from release to redelivery", "ms", again[count / 2]);
        Figures.tell("p99 from release to redelivery", "ms", again[(int) (count * 0.99)]);
    }
}
