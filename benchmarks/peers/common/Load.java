import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A topic with two partitions, and the records of 200 bytes that a peer fails. */
final class Load {
    private Load() {}

    static String makeTopic(String servers, String name) throws Exception {
        String topic = name + "-" + System.nanoTime();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        }
        return topic;
    }

    /** Produces as fast as it goes, or so many per second. */
    static void produce(String servers, String topic, int records, int perSecond) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            long began = System.nanoTime();
            for (int number = 0; number < records; number++) {
                while (perSecond > 0 && System.nanoTime() - began < number * 1_000_000_000L / perSecond) {
                    LockSupport.parkNanos(200_000);
                }
                producer.send(new ProducerRecord<>(topic, ("k" + number).getBytes(), new byte[200]));
            }
        }
    }

    /** Waits until a count is reached; three minutes at most. */
    static void await(java.util.function.IntSupplier count, int wanted) throws InterruptedException {
        long deadline = System.nanoTime() + 180_000_000_000L;
        while (count.getAsInt() < wanted && System.nanoTime() < deadline) {
            Thread.sleep(5);
        }
    }
}
