import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's parallel-consumer: 20 threads, each record fails once and is tried again after 2 s, from memory.
 *
 * <p>Arguments: bootstrap servers, backlog|steady, records, per second. Figures go to standard output, one a line.
 */
public final class ParallelBench {
    private static final int DELAY_MS = 2_000;

    private ParallelBench() {}

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        boolean steady = arguments[1].equals("steady");
        int records = Integer.parseInt(arguments[2]);
        String topic = Load.makeTopic(servers, "parallel");
        if (!steady) {
            Load.produce(servers, topic, records, 0);
        }
        double[] late = new double[records];
        long[] moments = new long[2];
        double[] cpu = new double[1];
        AtomicInteger failed = new AtomicInteger();
        AtomicInteger again = new AtomicInteger();
        var consumer = new KafkaConsumer<>(
            Map.<String, Object>of(
                "bootstrap.servers", servers, "group.id", topic, "auto.offset.reset", "earliest",
                "enable.auto.commit", false),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(consumer).ordering(ProcessingOrder.UNORDERED).maxConcurrency(20)
            .defaultMessageRetryDelay(Duration.ofMillis(DELAY_MS)).build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        processor.poll(context -> {
            var record = context.getSingleRecord();
            if (record.getNumberOfFailedAttempts() == 0) {
                if (failed.getAndIncrement() == 0) {
                    moments[0] = System.nanoTime();
                    cpu[0] = Figures.cpuSeconds();
                }
                throw new IllegalStateException("fails once");
            }
            moments[1] = System.nanoTime();
            long due = record.getLastFailureAt().orElseThrow().toEpochMilli() + DELAY_MS;
            late[again.getAndIncrement()] = System.currentTimeMillis() - due;
        });
        if (steady) {
            Thread.sleep(4_000);
            Load.produce(servers, topic, records, Integer.parseInt(arguments[3]));
        }
        Load.await(again::get, records);
        int count = again.get();
        Figures.tell("missing", "records", records - count);
        if (steady) {
            Figures.tellLateness(" at a consumer", late, count);
        } else {
            double seconds = (moments[1] - moments[0]) / 1e9 - DELAY_MS / 1e3;
            Figures.tell("failed and called again", "records/s", count / seconds);
            Figures.tell("CPU", "s per million", (Figures.cpuSeconds() - cpu[0]) / count * 1e6);
        }
        System.exit(0);
    }
}
