import java.math.BigInteger;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.support.PropertySourcesPlaceholderConfigurer;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * Spring Kafka's non-blocking retries: one retry topic of 2 s; a listener that fails each record once.
 *
 * <p>Arguments: bootstrap servers, seek|keep (whether the error handler seeks back after an error, its default),
 * backlog|steady, records, per second. Figures go to standard output, one a line.
 */
public final class SpringBench {
    private static final int DELAY_MS = 2_000;
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final AtomicInteger AGAIN = new AtomicInteger();
    private static String servers;
    private static boolean seeks;
    private static double[] late;
    private static volatile long firstFailure;
    private static volatile double cpu;
    private static volatile long lastCall;

    private SpringBench() {}

    public static class Listener {
        @RetryableTopic(attempts = "2", backOff = @BackOff(delay = DELAY_MS), numPartitions = "2")
        @KafkaListener(id = "${bench.group}", topics = "${bench.topic}")
        public void on(ConsumerRecord<byte[], byte[]> record) {
            var due = record.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_BACKOFF_TIMESTAMP);
            if (due == null) {
                if (FAILED.getAndIncrement() == 0) {
                    firstFailure = System.nanoTime();
                    cpu = Figures.cpuSeconds();
                }
                throw new IllegalStateException("fails once");
            }
            lastCall = System.nanoTime();
            int number = AGAIN.get();
            if (number < late.length) {
                late[number] = System.currentTimeMillis() - new BigInteger(due.value()).longValue();
            }
            AGAIN.incrementAndGet();
        }
    }

    @Configuration
    @EnableKafka
    public static class Setup extends RetryTopicConfigurationSupport {
        @Override
        protected void configureCustomizers(CustomizersConfigurer customizers) {
            customizers.customizeErrorHandler(handler -> handler.setSeekAfterError(seeks));
        }

        @Bean
        static PropertySourcesPlaceholderConfigurer placeholders() {
            return new PropertySourcesPlaceholderConfigurer();
        }

        @Bean
        TaskScheduler taskScheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        KafkaAdmin kafkaAdmin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", servers));
        }

        @Bean
        ProducerFactory<byte[], byte[]> producerFactory() {
            return new DefaultKafkaProducerFactory<>(
                Map.of("bootstrap.servers", servers, "linger.ms", 0), new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Bean
        KafkaTemplate<byte[], byte[]> kafkaTemplate(ProducerFactory<byte[], byte[]> factory) {
            return new KafkaTemplate<>(factory);
        }

        @Bean
        ConsumerFactory<byte[], byte[]> consumerFactory() {
            return new DefaultKafkaConsumerFactory<>(
                Map.of("bootstrap.servers", servers, "auto.offset.reset", "earliest"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory(
            ConsumerFactory<byte[], byte[]> factory) {
            var containers = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            containers.setConsumerFactory(factory);
            return containers;
        }
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        seeks = arguments[1].equals("seek");
        boolean steady = arguments[2].equals("steady");
        int records = Integer.parseInt(arguments[3]);
        late = new double[records];
        String topic = Load.makeTopic(servers, "spring");
        System.setProperty("bench.topic", topic);
        System.setProperty("bench.group", "group-" + topic);
        if (!steady) {
            Load.produce(servers, topic, records, 0);
        }
        try (var context = new AnnotationConfigApplicationContext(Setup.class, Listener.class)) {
            if (steady) {
                Thread.sleep(4_000);
                Load.produce(servers, topic, records, Integer.parseInt(arguments[4]));
            }
            Load.await(AGAIN::get, records);
            int count = AGAIN.get();
            Figures.tell("missing", "records", records - count);
            if (steady) {
                Figures.tellLateness(" at a consumer", late, count);
            } else {
                double seconds = (lastCall - firstFailure) / 1e9 - DELAY_MS / 1e3;
                Figures.tell("failed and called again", "records/s", count / seconds);
                Figures.tell("CPU", "s per million", (Figures.cpuSeconds() - cpu) / count * 1e6);
                var containers = context.getBean(KafkaListenerEndpointRegistry.class).getAllListenerContainers();
                Figures.tell("consumers", "of a group", containers.size());
            }
        }
        System.exit(0);
    }
}
